#ifndef STAGECOACH_COORDINATOR_QUANTIZE_QUANTIZE_H_
#define STAGECOACH_COORDINATOR_QUANTIZE_QUANTIZE_H_

// Quantises a model file: chooses each tensor's type from the tensor directory, and writes the new file.

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

// Matrices (two or more dimensions) whose names end in ".weight" get the wanted type; vectors, norms, routers, the gate
// of a shared expert, and a delta net's convolution, alpha and beta stay as they are. Without `pure` the head gets Q6_K
// if the wanted type has fewer bits, as in llama.cpp. If a row is no multiple of a type's block, the tensor gets Q8_0,
// else F16. kUnimplemented: a matrix that is neither F32, F16, BF16 nor already of the wanted type.
absl::StatusOr<QuantizePlan> PlanQuantize(const GgufFile& file, const QuantizeTypes& types);

struct QuantizeRun {
  std::string out_path;
  TensorType file_type = TensorType::kQ8_0;  // what general.file_type says
  int64_t threads = 0;                       // 0: one a core
  bool replace = false;                      // an existing file
  bool allow_damaged = false;                // take damaged tensors as they are
  // Called after each piece, one call at a time, with the bytes of source tensors done so far. An error ends the work
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
