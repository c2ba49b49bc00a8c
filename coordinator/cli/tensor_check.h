#ifndef STAGECOACH_COORDINATOR_CLI_TENSOR_CHECK_H_
#define STAGECOACH_COORDINATOR_CLI_TENSOR_CHECK_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/tensor_damage.h"

namespace stagecoach {

struct CheckedTensor {
  uint32_t crc32c = 0;                 // of its bytes
  std::optional<TensorDamage> damage;  // the first that was found
};

// Reads every tensor, on all cores, and checks it for damage. One result per tensor, in the order of file.tensors().
// Errors: those of reading.
absl::StatusOr<std::vector<CheckedTensor>> CheckTensors(const GgufFile& file);

// How many of them are damaged.
int64_t CountDamaged(const std::vector<CheckedTensor>& checked);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_TENSOR_CHECK_H_
