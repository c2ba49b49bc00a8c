#include "stage_worker/weights/matrix_loader.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// What lies in the tensor at row `row` of a matrix: its row there, and how many of the run it begins or continues.
struct TensorRows {
  int64_t first, rows;
};
TensorRows FindRun(const std::vector<RowRuns>& all, int64_t row) {
  for (const RowRuns& runs : all) {
    if (row < runs.all()) {
      return {runs.first + row / runs.rows * runs.stride + row % runs.rows, runs.rows - row % runs.rows};
    }
    row -= runs.all();
  }
  CHECK(false);
}

}  // namespace

absl::Status DamageCheck::Examine(const GgufTensor& tensor, uint64_t offset, absl::Span<const uint8_t> rows) {
  if (!file_.has_files()) return absl::OkStatus();
  const std::optional<TensorDamage> damage = scan_.Examine(tensor, offset, rows);
  if (!damage.has_value()) return absl::OkStatus();
  size_t number = 0;  // among the damaged tensors, from 1; 0: known already
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (std::find(damaged_.begin(), damaged_.end(), &tensor) == damaged_.end()) {
      damaged_.push_back(&tensor);
      number = damaged_.size();
    }
  }
  if (!allow_) return DamagedError(file_, tensor, *damage);
  if (number > 0 && number <= kMostLines) {
    LogInfo(absl::StrCat(DescribeDamage(file_, tensor, *damage), "; it is loaded all the same"));
  }
  if (number == kMostLines + 1) LogInfo("more tensors are damaged, and loaded all the same");
  return absl::OkStatus();
}

void DamageCheck::DiscardCopies() const {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const GgufTensor* tensor : damaged_) file_.Discard(*tensor);
}

absl::Status MatrixLoader::Add(const GgufTensor& tensor, std::vector<RowRuns> rows, PackedMatrix* out) {
  out->type = static_cast<TensorType>(tensor.type_id);
  out->rows = 0;
  for (const RowRuns& runs : rows) out->rows += runs.all();
  out->cols = tensor.cols();
  if (out->type != TensorType::kF32 && out->cols % 2 != 0) {
    return absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", tensor.name, "' of type ",
                                                 GetTensorType(out->type).name, " has rows of ", out->cols,
                                                 " elements; supported are even lengths"));
  }
  matrices_.push_back({&tensor, std::move(rows), bytes_, out});
  bytes_ += RoundUp(out->bytes(), kBufferAlignment);
  return absl::OkStatus();
}

std::vector<MatrixLoader::Piece> MatrixLoader::CutIntoPieces() const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const PackedMatrix& matrix = *matrices_[i].out;
    const size_t panel_bytes = RowBytes(matrix.type, matrix.cols) * kPanelRows;
    const int64_t step = static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / panel_bytes));
    for (int64_t panel = 0; panel < matrix.panels(); panel += step) {
      pieces.push_back({i, panel, std::min(step, matrix.panels() - panel)});
    }
  }
  // So that each file is read from its begin to its end.
  std::sort(pieces.begin(), pieces.end(), [this](const Piece& a, const Piece& b) { return PlaceOf(a) < PlaceOf(b); });
  return pieces;
}

std::pair<int, uint64_t> MatrixLoader::PlaceOf(const Piece& piece) const {
  const Matrix& matrix = matrices_[piece.matrix];
  const auto row = static_cast<uint64_t>(FindRun(matrix.rows, piece.first_panel * kPanelRows).first);
  return {matrix.tensor->shard, matrix.tensor->file_offset + row * RowBytes(matrix.out->type, matrix.out->cols)};
}

// Rows of the matrix from first_row on, as many as `raw` has room for, run by run.
absl::Status MatrixLoader::ReadRows(const Matrix& matrix, int64_t first_row, absl::Span<uint8_t> raw) const {
  const size_t row_bytes = RowBytes(matrix.out->type, matrix.out->cols);
  while (!raw.empty()) {
    const auto [first, rows] = FindRun(matrix.rows, first_row);
    const absl::Span<uint8_t> part = raw.subspan(0, row_bytes * static_cast<size_t>(rows));
    const uint64_t offset = row_bytes * static_cast<uint64_t>(first);
    RETURN_IF_ERROR(file_.Read(*matrix.tensor, offset, part));
    RETURN_IF_ERROR(damage_->Examine(*matrix.tensor, offset, part));
    raw.remove_prefix(part.size());
    first_row += rows;
  }
  return absl::OkStatus();
}

absl::Status MatrixLoader::LoadPiece(const Piece& piece, std::vector<uint8_t>* raw, uint8_t* memory,
                                     std::atomic<uint64_t>* bytes_loaded) const {
  const Matrix& matrix = matrices_[piece.matrix];
  const PackedMatrix& out = *matrix.out;
  const size_t row_bytes = RowBytes(out.type, out.cols);
  const int64_t first_row = piece.first_panel * kPanelRows;
  const int64_t rows = std::min(piece.panels * kPanelRows, out.rows - first_row);
  raw->resize(row_bytes * static_cast<size_t>(rows));
  RETURN_IF_ERROR(ReadRows(matrix, first_row, absl::MakeSpan(*raw)));
  const size_t panel_bytes = PanelBytes(out.type, out.cols);
  for (int64_t p = 0; p < piece.panels; ++p) {
    const int64_t row = p * kPanelRows;
    kernels_.pack_panel(out.type, raw->data() + row_bytes * static_cast<size_t>(row), row_bytes,
                        static_cast<int>(std::min<int64_t>(kPanelRows, rows - row)), out.cols,
                        memory + matrix.offset + panel_bytes * static_cast<size_t>(piece.first_panel + p));
  }
  bytes_loaded->fetch_add(raw->size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<PageMemory> MatrixLoader::Allocate() {
  ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(bytes_, "the weights"));
  for (const Matrix& matrix : matrices_) matrix.out->data = memory.data() + matrix.offset;
  return memory;
}

absl::Status MatrixLoader::Load(int threads, std::atomic<uint64_t>* bytes_loaded, PageMemory* memory) {
  const std::vector<Piece> pieces = CutIntoPieces();
  std::mutex mu;
  absl::Status first_error;  // guarded by mu
  std::atomic<bool> failed{false};
  std::atomic<size_t> next{0};
  const auto work = [&](int) {
    std::vector<uint8_t> raw;
    while (!failed.load(std::memory_order_relaxed)) {
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= pieces.size()) return;
      absl::Status status = LoadPiece(pieces[i], &raw, memory->data(), bytes_loaded);
      if (status.ok()) continue;
      failed.store(true, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mu);
      first_error.Update(std::move(status));
    }
  };
  // One worker of a thread waits for its piece while the other packs. The library would refuse more workers than cores,
  // with a warning on stderr.
  const int workers = kWorkersAThread * std::min(threads, tbb::info::default_concurrency());
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(workers));
  tbb::task_arena(workers).execute([&] { tbb::parallel_for(0, workers, work, tbb::simple_partitioner()); });
  return first_error;
}

}  // namespace stagecoach
