#include "coordinator/schedule/policy/interleaved.h"

namespace stagecoach {
namespace {

// Latency: decode rows first, then at most kPrefillQuantum prompt rows while any sequence is decoding, even if every
// decode row is in flight: a returning row queues behind the prompt rows at each stage. So the gap between two tokens
// is no longer with few decode groups than with many. Prompts are owed full chunks.
class DecodePriorityPolicy : public InterleavedPolicy {
 public:
  using InterleavedPolicy::InterleavedPolicy;

 private:
  int64_t MostPromptRows(const PolicyDraft& draft, const NextPrompt&) override {
    return draft.Load().decoding > 0 ? kPrefillQuantum : kAllRows;
  }
  int64_t RowsOwed(const NextPrompt& next) const override { return next.full_chunk; }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag<Policy::kDecodePriority>, const PolicyOptions& options) {
  return std::make_unique<DecodePriorityPolicy>(options);
}

}  // namespace stagecoach
