#include "coordinator/request/sequence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

int64_t MostKvTokens(int64_t prompt_tokens, int64_t max_new_tokens) {
  return prompt_tokens + std::max<int64_t>(max_new_tokens - 1, 0);
}

absl::Status CheckRoom(int64_t prompt_tokens, int64_t max_new_tokens, const RoomLimits& limits) {
  if (prompt_tokens + (max_new_tokens > 0 ? 1 : 0) > limits.context) {
    return absl::OutOfRangeError(absl::StrCat(
        "the prompt has ", prompt_tokens, " tokens", max_new_tokens > 0 ? " and needs room for a new one" : "",
        ", the context holds ", limits.context, "; shorten the prompt or enlarge the context"));
  }
  const int64_t new_tokens = std::min(max_new_tokens, limits.context - prompt_tokens);
  const int64_t kept = MostKvTokens(prompt_tokens, new_tokens);
  const int64_t pool = limits.blocks * limits.block_tokens;
  if (kept <= pool) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(prompt_tokens, " prompt tokens and up to ", new_tokens,
                                            " new ones need KV for ", kept, " tokens, the pool holds ", pool, " (",
                                            limits.blocks, " blocks of ", limits.block_tokens,
                                            "); ask for fewer tokens or give the KV cache more memory"));
}

}  // namespace stagecoach
