#include "common/job/job_limits.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {

absl::Status CheckJobField(const JobField& field, int64_t value) {
  if (Contains(field.range, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", field.name, "` is ", value, ", ", Expected(field.range)));
}

absl::Status CheckJobFieldOrDefault(const JobField& field, int64_t value) {
  return value == 0 ? absl::OkStatus() : CheckJobField(field, value);
}

absl::Status CheckBlockTokens(int64_t block_tokens) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kBlockTokens, block_tokens));
  if (block_tokens % JobLimits::kBlockTokensStep == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", JobLimits::kBlockTokens.name, "` is ", block_tokens,
                                                 ", expected a multiple of ", JobLimits::kBlockTokensStep));
}

}  // namespace stagecoach
