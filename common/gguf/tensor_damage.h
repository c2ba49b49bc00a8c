#ifndef STAGECOACH_COMMON_GGUF_TENSOR_DAMAGE_H_
#define STAGECOACH_COMMON_GGUF_TENSOR_DAMAGE_H_

// Finds tensors whose bytes cannot come from training:
//   all zeros    every byte of a tensor of weights is zero.
//   a hole       kShortestHole zero bytes or more that begin or end inside a row, where a row beside it has data in the
//                same columns, or there is one row. Chunks of a damaged download do not end where rows do.
//   not finite   an element of a plain float type, or the scale or minimum of a block, is an infinity or NaN.
// Real models have rows of zeros (unused tokens, pruned experts), zero columns (padding), and zeros in biases and
// sinks. So a hole of whole rows, to within 16 bytes (64 of plain floats), is found only if it covers a tensor.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach {

struct TensorDamage {
  enum class Kind { kAllZeros, kHole, kNotFinite };
  Kind kind = Kind::kAllZeros;
  uint64_t offset = 0;  // bytes into the tensor
  uint64_t bytes = 0;   // the zeros; the element or block that is not finite
};

// "tensor 'blk.3.ffn_down.weight' of layer 3 has a hole, 65536 zero bytes at offset 8192 of '/m.gguf'".
std::string DescribeDamage(const GgufFile& file, const GgufTensor& tensor, const TensorDamage& damage);

// kDataLoss with that, and what to do.
absl::Status DamagedError(const GgufFile& file, const GgufTensor& tensor, const TensorDamage& damage);

// Looks for damage in the tensors of one file while they are read. Thread-safe.
class DamageScan {
 public:
  // A shorter run of zeros may be anything.
  static constexpr size_t kShortestHole = 4096;

  // Examines whole rows read from `offset` bytes into the tensor; call it for every row once, in any order. Finds holes
  // within these rows, and with the tensor's last rows that all are zero. Costs a look at every page, every scale and
  // every plain float. Types without kernels are checked for zeros only. The tensor outlives the scan.
  std::optional<TensorDamage> Examine(const GgufTensor& tensor, uint64_t offset, absl::Span<const uint8_t> rows);

 private:
  std::mutex mu_;
  absl::flat_hash_map<const GgufTensor*, uint64_t> zero_bytes_;  // in rows that were all zeros; guarded by mu_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_TENSOR_DAMAGE_H_
