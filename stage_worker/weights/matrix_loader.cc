#include "stage_worker/weights/matrix_loader.h"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// Large enough for the disk, small enough for the second-level cache and the memory bound.
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

absl::Status MatrixLoader::Add(const GgufTensor& tensor, int64_t first_row, int64_t rows, PackedMatrix* out) {
  out->type = static_cast<TensorType>(tensor.type_id);
  out->rows = rows;
  out->cols = tensor.cols();
  if (out->type != TensorType::kF32 && out->cols % 2 != 0) {
    return absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", tensor.name, "' of type ",
                                                 GetTensorType(out->type).name, " has rows of ", out->cols,
                                                 " elements; supported are even lengths"));
  }
  matrices_.push_back({&tensor, first_row, bytes_, out});
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
  return pieces;
}

absl::Status MatrixLoader::LoadPiece(const Piece& piece, std::vector<uint8_t>* raw, uint8_t* memory,
                                     std::atomic<uint64_t>* bytes_loaded) const {
  const Matrix& matrix = matrices_[piece.matrix];
  const PackedMatrix& out = *matrix.out;
  const size_t row_bytes = RowBytes(out.type, out.cols);
  const int64_t first_row = piece.first_panel * kPanelRows;
  const int64_t rows = std::min(piece.panels * kPanelRows, out.rows - first_row);
  raw->resize(row_bytes * static_cast<size_t>(rows));
  RETURN_IF_ERROR(file_.Read(*matrix.tensor, row_bytes * static_cast<uint64_t>(matrix.first_row + first_row),
                             absl::MakeSpan(*raw)));
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
  tbb::enumerable_thread_specific<std::vector<uint8_t>> scratch;
  std::mutex mu;
  absl::Status first_error;  // guarded by mu
  std::atomic<bool> failed{false};
  // More than the library's own limit would only earn a warning on stderr.
  tbb::task_arena(std::min(threads, tbb::info::default_concurrency())).execute([&] {
    tbb::parallel_for(size_t{0}, pieces.size(), [&](size_t i) {
      if (failed.load(std::memory_order_relaxed)) return;
      absl::Status status = LoadPiece(pieces[i], &scratch.local(), memory->data(), bytes_loaded);
      if (status.ok()) return;
      failed.store(true, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mu);
      first_error.Update(std::move(status));
    });
  });
  return first_error;
}

}  // namespace stagecoach
