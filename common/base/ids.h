#ifndef STAGECOACH_COMMON_BASE_IDS_H_
#define STAGECOACH_COMMON_BASE_IDS_H_

// The identifiers every module shares.

#include <cstdint>

namespace stagecoach {

using TokenId = int32_t;      // an index into the vocabulary; negative values are never valid tokens
using SequenceId = uint64_t;  // given by the engine, unique within one job
using RequestId = uint64_t;   // given by the front, unique within one run and kept across relaunches
using BlockId = int32_t;      // an index into every stage's KV pool
using SlotId = int32_t;       // an index into every stage's pool of recurrent states
using GrammarId = uint64_t;   // given by the scheduler, to one grammar within one job

inline constexpr TokenId kNoToken = -1;
inline constexpr BlockId kNoBlock = -1;  // of a place in a table
inline constexpr SlotId kNoSlot = -1;    // read: a state of zeros
inline constexpr GrammarId kNoGrammar = 0;

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_IDS_H_
