#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_DAMAGE_CHECK_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_DAMAGE_CHECK_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/tensor_damage.h"

namespace stagecoach {

// Refuses damaged weights (common/gguf/tensor_damage.h) while they are loaded. Thread-safe.
class DamageCheck {
 public:
  static constexpr size_t kMostLines = 8;

  // With `allow` damage is logged, once a tensor and in at most kMostLines lines, and is no error. The file outlives
  // the check.
  DamageCheck(const GgufFile& file, bool allow) : file_(file), allow_(allow) {}

  // Whole rows that were read from `offset` bytes into the tensor on, every row once. kDataLoss with tensor, layer,
  // file, offset and what to do. A model without files is taken as it is.
  absl::Status Examine(const GgufTensor& tensor, uint64_t offset, absl::Span<const uint8_t> rows);

  // After a failure, when nobody reads any more: no copy that somebody keeps of a damaged tensor is used again.
  void DiscardCopies() const;

 private:
  const GgufFile& file_;
  const bool allow_;
  DamageScan scan_;
  mutable std::mutex mu_;
  std::vector<const GgufTensor*> damaged_;  // each once; guarded by mu_
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_DAMAGE_CHECK_H_
