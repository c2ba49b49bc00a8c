#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PREFILL_FIRST_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PREFILL_FIRST_H_

#include "coordinator/schedule/policy/scheduling_policy.h"

namespace stagecoach {

// Throughput: chunks alone while any prompt has work, decode rows otherwise.
class PrefillFirstPolicy : public SchedulingPolicy {
 public:
  explicit PrefillFirstPolicy(const PolicyOptions&) {}
  void Compose(PolicyDraft& draft) override {
    draft.AddPromptRows(kAllRows);
    if (draft.empty()) draft.AddDecodeRows();
  }
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_PREFILL_FIRST_H_
