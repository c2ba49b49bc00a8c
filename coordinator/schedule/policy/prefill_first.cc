#include "coordinator/schedule/policy/scheduling_policy.h"

namespace stagecoach {
namespace {

// Throughput: chunks alone while any prompt has work, decode rows otherwise.
class PrefillFirstPolicy : public SchedulingPolicy {
 public:
  explicit PrefillFirstPolicy(const PolicyOptions&) {}
  void Compose(PolicyDraft& draft) override {
    draft.AddPromptRows(kAllRows);
    if (draft.empty()) draft.AddDecodeRows();
  }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag<Policy::kPrefillFirst>, const PolicyOptions& options) {
  return std::make_unique<PrefillFirstPolicy>(options);
}

}  // namespace stagecoach
