#include "coordinator/request/sequence.h"

#include "common/base/check.h"

namespace stagecoach {

const char* SequenceStateName(SequenceState state) {
  switch (state) {
    case SequenceState::kWaiting: return "waiting";
    case SequenceState::kPrefilling: return "prefilling";
    case SequenceState::kDecoding: return "decoding";
    case SequenceState::kPreempted: return "preempted";
    case SequenceState::kFinished: return "finished";
  }
  return "invalid";
}

bool IsValidTransition(SequenceState from, SequenceState to) {
  switch (from) {
    case SequenceState::kWaiting:  // admitted, cancelled
      return to == SequenceState::kPrefilling || to == SequenceState::kFinished;
    case SequenceState::kPrefilling:  // first token known, blocks taken away, scored or ended
      return to == SequenceState::kDecoding || to == SequenceState::kPreempted || to == SequenceState::kFinished;
    case SequenceState::kDecoding: return to == SequenceState::kPreempted || to == SequenceState::kFinished;
    case SequenceState::kPreempted:  // drained, or what was in flight ended it
      return to == SequenceState::kWaiting || to == SequenceState::kFinished;
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
