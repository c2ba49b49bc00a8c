#ifndef STAGECOACH_COORDINATOR_REQUEST_REQUEST_ROOM_H_
#define STAGECOACH_COORDINATOR_REQUEST_REQUEST_ROOM_H_

// Whether a job can hold a request: known to the front, which refuses what cannot run, and to the scheduler.

#include <cstdint>

#include "absl/status/status.h"

namespace stagecoach {

struct RoomLimits {
  int64_t context = 0;       // most tokens of a sequence
  int64_t blocks = 0;        // of the KV pool
  int64_t block_tokens = 0;  // tokens a block holds
};

// Tokens whose K and V are kept at most, where `max_new_tokens` fit the context: those of the last new token would
// serve one that is not produced.
int64_t MostKvTokens(int64_t prompt_tokens, int64_t max_new_tokens);

// OK, or kOutOfRange with what is asked for and what there is. A request that asks for more new tokens than fit the
// context runs, and ends there; one whose prompt leaves no room for a single one does not.
absl::Status CheckRoom(int64_t prompt_tokens, int64_t max_new_tokens, const RoomLimits& limits);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REQUEST_REQUEST_ROOM_H_
