#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_INTERLEAVED_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_INTERLEAVED_H_

#include <algorithm>
#include <cstdint>

#include "coordinator/schedule/policy/scheduling_policy.h"

namespace stagecoach {

// Micro-batches in a row that owed prompts rows before one begins with prompts.
inline constexpr int32_t kStarvationBound = 8;

// Decode rows, then as many prompt rows as the micro-batch has room for. A prompt cannot starve: after kStarvationBound
// micro-batches in a row that gave prompts fewer rows than they are owed, one at least, the next one begins with a full
// chunk, and decode rows take what is left. Also the frame of the policies that give prompts other shares.
class InterleavedPolicy : public SchedulingPolicy {
 public:
  explicit InterleavedPolicy(const PolicyOptions&) {}

  void Compose(PolicyDraft& draft) final {
    const NextPrompt next = draft.Next().value_or(NextPrompt());
    if (next.full_chunk > 0 && starved_ >= kStarvationBound) {
      draft.AddPromptRows(RowsAfterStarving(next));
      draft.AddDecodeRows();
    } else {
      draft.AddDecodeRows();
      draft.AddPromptRows(MostPromptRows(draft, next));
    }
    if (draft.empty()) return;
    starved_ = draft.prompt_rows < std::min(next.full_chunk, RowsOwed(next)) ? starved_ + 1 : 0;
  }

 private:
  virtual int64_t MostPromptRows(const PolicyDraft&, const NextPrompt&) { return kAllRows; }  // beside its decode rows
  virtual int64_t RowsOwed(const NextPrompt&) const { return 1; }
  virtual int64_t RowsAfterStarving(const NextPrompt& next) const { return next.full_chunk; }

  int32_t starved_ = 0;  // micro-batches in a row
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_INTERLEAVED_H_
