#ifndef STAGECOACH_COORDINATOR_QUANTIZE_QUANTIZE_H_
#define STAGECOACH_COORDINATOR_QUANTIZE_QUANTIZE_H_

// A model file in smaller types: which tensor gets which type, from the tensor directory alone, and the new file.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

struct QuantizeTypes {
  TensorType matrices = TensorType::kQ8_0;
  std::optional<TensorType> output;     // of the head: output.weight, or the embedding when it serves as head too
  std::optional<TensorType> embedding;  // of token_embd.weight; goes before `output` where that is the head too
  bool pure = false;                    // the head gets no better type than the other matrices
};

struct QuantizeStep {
  const GgufTensor* tensor = nullptr;  // of the source
  uint32_t type_id = 0;                // in the new file; the tensor's own: its bytes are copied
  bool copied() const { return type_id == tensor->type_id; }
};

struct QuantizePlan {
  std::vector<QuantizeStep> steps;  // one a tensor, in file order
  std::vector<std::string> notes;   // what the user should know: types that a row length does not allow
};

// Matrices (two dimensions or more) whose names end in ".weight" get the wanted type, but norms and the router of
// experts stay as they are, as do vectors. Without `pure` the head gets Q6_K when the wanted type has fewer bits, as
// with llama.cpp. Where a row is no multiple of a type's block, the tensor gets Q8_0, or F16 when that does not divide
// it either. kUnimplemented for a matrix that is neither F32, F16 nor BF16 nor of the wanted type already.
absl::StatusOr<QuantizePlan> PlanQuantize(const GgufFile& file, const QuantizeTypes& types);

// The value of general.file_type: llama.cpp's number for a file that is mostly of this type.
uint32_t GgufFileType(TensorType type);

struct QuantizeRun {
  std::string out_path;
  TensorType file_type = TensorType::kQ8_0;  // what general.file_type says
  int64_t threads = 0;                       // 0: one a core
  bool replace = false;                      // an existing file
  bool allow_damaged = false;                // take damaged tensors as they are
  // Told after each piece how many bytes of the source's tensors are done; one call at a time. Not OK: the work ends
  // with that status. May be empty.
  std::function<absl::Status(uint64_t done_bytes)> progress;
};

// Writes the file: metadata as stored, without the keys of shards, with general.file_type and
// general.quantization_version. Returns its size. Errors: kDataLoss for a damaged tensor, kInvalidArgument for weights
// that are not finite or too large for the type, those of GgufStreamWriter and of reading. After an error there is no
// new file.
absl::StatusOr<uint64_t> Quantize(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_QUANTIZE_QUANTIZE_H_
