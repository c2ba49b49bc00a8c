#include "coordinator/cli/quantize_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_raw_metadata.h"
#include "common/gguf/gguf_stream_writer.h"
#include "common/gguf/tensor_damage.h"
#include "common/parallel/parallel_for.h"

namespace stagecoach {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;
constexpr uint32_t kQuantizationVersion = 2;  // of the block formats, as llama.cpp counts them
constexpr float kLargestHalf = 65504;

// Some rows of a tensor, or all of a copied one's bytes within a range.
struct Piece {
  size_t step = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

struct Scratch {
  std::vector<uint8_t> source;
  std::vector<float> floats;
  std::vector<uint8_t> encoded;
};

std::vector<Piece> CutIntoPieces(const QuantizePlan& plan) {
  std::vector<Piece> pieces;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const GgufTensor& tensor = *plan.steps[s].tensor;
    const int64_t rows_a_piece = std::max<int64_t>(1, kPieceElements / tensor.cols());
    for (int64_t row = 0; row < tensor.rows(); row += rows_a_piece) {
      pieces.push_back({s, row, std::min(rows_a_piece, tensor.rows() - row)});
    }
  }
  return pieces;
}

// Whether every value can be encoded: types with fp16 values or scales hold what a half holds.
absl::Status CheckValues(const GgufTensor& tensor, const Piece& piece, TensorType type,
                         const std::vector<float>& values) {
  const bool wide = type == TensorType::kF32 || type == TensorType::kBF16;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && (wide || std::fabs(values[i]) <= kLargestHalf)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' has the weight ", values[i], " in row ",
                     piece.first_row + static_cast<int64_t>(i) / tensor.cols(), ", expected ",
                     wide ? "finite numbers" : "numbers of at most 65504 in magnitude", " for type ",
                     GetTensorType(type).name, "; the file is damaged, or no good model"));
  }
  return absl::OkStatus();
}

uint64_t SourceRowBytes(const GgufTensor& tensor) { return tensor.bytes / static_cast<uint64_t>(tensor.rows()); }

absl::Status WritePiece(const GgufFile& file, const QuantizeStep& step, const Piece& piece, DamageScan* damage_scan,
                        Scratch* scratch, GgufStreamWriter* writer) {
  const GgufTensor& tensor = *step.tensor;
  const uint64_t source_row_bytes = SourceRowBytes(tensor);
  const uint64_t source_at = static_cast<uint64_t>(piece.first_row) * source_row_bytes;
  scratch->source.resize(static_cast<uint64_t>(piece.rows) * source_row_bytes);
  RETURN_IF_ERROR(file.Read(tensor, source_at, absl::MakeSpan(scratch->source)));
  if (damage_scan != nullptr) {
    const std::optional<TensorDamage> damage = damage_scan->Examine(tensor, source_at, scratch->source);
    if (damage.has_value()) return DamagedError(file, tensor, *damage);
  }
  if (step.copied()) return writer->Write(piece.step, source_at, scratch->source);

  const auto type = static_cast<TensorType>(step.type_id);
  const int64_t elements = piece.rows * tensor.cols();
  scratch->floats.resize(static_cast<size_t>(elements));
  DequantizeRow(static_cast<TensorType>(tensor.type_id), scratch->source.data(), elements, scratch->floats.data());
  RETURN_IF_ERROR(CheckValues(tensor, piece, type, scratch->floats));
  scratch->encoded.resize(RowBytes(type, elements));
  QuantizeRow(type, scratch->floats.data(), elements, scratch->encoded.data());
  return writer->Write(piece.step, static_cast<uint64_t>(piece.first_row) * RowBytes(type, tensor.cols()),
                       scratch->encoded);
}

absl::StatusOr<std::unique_ptr<GgufStreamWriter>> CreateFile(const GgufFile& file, const QuantizePlan& plan,
                                                             const QuantizeRun& run) {
  ASSIGN_OR_RETURN(std::vector<GgufRawEntry> metadata, ReadGgufRawMetadata(file.shard_paths().front()));
  std::erase_if(metadata, [](const GgufRawEntry& entry) { return absl::StartsWith(entry.key, "split."); });
  SetGgufRawU32("general.quantization_version", kQuantizationVersion, &metadata);
  SetGgufRawU32("general.file_type", GgufFileType(run.file_type), &metadata);
  std::vector<GgufStreamTensor> tensors;
  for (const QuantizeStep& step : plan.steps) tensors.push_back({step.tensor->name, step.tensor->dims, step.type_id});
  return GgufStreamWriter::Create(run.out_path, metadata, std::move(tensors));
}

}  // namespace

absl::StatusOr<uint64_t> Quantize(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufStreamWriter> writer, CreateFile(file, plan, run));
  const std::vector<Piece> pieces = CutIntoPieces(plan);
  std::vector<Scratch> scratch(static_cast<size_t>(ParallelWorkers(run.threads)));
  DamageScan damage_scan;
  std::mutex mu;
  uint64_t done_bytes = 0;  // guarded by mu
  RETURN_IF_ERROR(ParallelFor(run.threads, static_cast<int64_t>(pieces.size()), [&](int worker, int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const QuantizeStep& step = plan.steps[piece.step];
    RETURN_IF_ERROR(WritePiece(file, step, piece, run.allow_damaged ? nullptr : &damage_scan,
                               &scratch[static_cast<size_t>(worker)], writer.get()));
    const std::lock_guard<std::mutex> lock(mu);
    done_bytes += static_cast<uint64_t>(piece.rows) * SourceRowBytes(*step.tensor);
    return run.progress ? run.progress(done_bytes) : absl::OkStatus();
  }));
  RETURN_IF_ERROR(writer->Finish(run.replace));
  return writer->file_bytes();
}

}  // namespace stagecoach
