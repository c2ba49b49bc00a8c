#include "stage_worker/weights/damage_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace stagecoach {

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

}  // namespace stagecoach
