#include "coordinator/request/sequence.h"

#include "common/base/check.h"

namespace stagecoach {

bool IsValidTransition(SequenceState from, SequenceState to) {
  if (to == SequenceState::kFinished) return from != SequenceState::kFinished;  // cancelled, scored or ended
  switch (from) {
    case SequenceState::kWaiting: return to == SequenceState::kPrefilling;  // admitted
    case SequenceState::kPrefilling:                                        // first token known, blocks taken away
      return to == SequenceState::kDecoding || to == SequenceState::kPreempted;
    case SequenceState::kDecoding: return to == SequenceState::kPreempted;
    case SequenceState::kPreempted: return to == SequenceState::kWaiting;  // drained
    case SequenceState::kFinished: return false;
  }
  return false;
}

void Sequence::MoveTo(SequenceState next) {
  if (!IsValidTransition(state_, next)) {
    internal::CheckFailed(__FILE__, __LINE__, "IsValidTransition",
                          "sequence " + std::to_string(spec_.id) + " from " + SequenceStateName(state_) + " to " +
                              SequenceStateName(next));
  }
  state_ = next;
}

TokenId Sequence::token(int64_t position) const {
  CHECK_GE(position, 0);
  CHECK_LT(position, tokens());
  const int64_t prompt = static_cast<int64_t>(spec_.prompt.size());
  return position < prompt ? spec_.prompt[position] : output_[position - prompt];
}

}  // namespace stagecoach
