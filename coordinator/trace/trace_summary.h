#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_

// Where the time of an aligned job went: what every stage did, and why the stages were not always computing.

#include <array>
#include <cstdint>
#include <vector>

#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// What a stage did at every moment of an aligned job. Each microsecond counts once, for the first of these that holds:
//   compute              it computes a micro-batch
//   send                 it sends a frame: the part of a send that computing does not hide
//   wait for upstream    a submitted micro-batch has not begun here: its frame is upstream, on its way, or being taken
//                        over by the computing thread
//   wait for downstream  every micro-batch in flight has passed it
//   idle                 nothing is in flight
// They add up to the job's time from the first submission to the last result.
enum class StageState { kCompute, kSend, kWaitUpstream, kWaitDownstream, kIdle };
inline constexpr int kStageStates = 5;

struct StateSpan {
  StageState state;
  int64_t begin_us, end_us;  // begin < end
};

// Without a gap from the job's begin to its end, neighbours differ.
std::vector<StateSpan> StageStates(const TraceJob& job, int stage);

using StateSums = std::array<int64_t, kStageStates>;  // microseconds

// Why the stages of an aligned job were not always computing while there was work, in the words of
// coordinator/plan/prediction.h.
//
// The run is replayed, each time with one obstacle less; what that saves of the time with work is the obstacle's share.
// In every replay a stage takes one micro-batch at a time, in order. A micro-batch enters when what it waited for in
// the run is there: the result confirmed last before it was ready, or a later command.
//   1. as it was: turns of the coordinator, hops and computing as measured
//   2. without the coordinator's turns (ready until submitted)      what that saves: coordinator
//   3. and without hops: frames are there at once, and begun        hop
//   4. and every stage takes the stages' mean for a micro-batch     imbalance
//   5. and nothing waits for a result, only for its command         too few sequences (in flight)
//   6. all stages compute all the time                              fill and drain, and steps of unequal length
//   7. and nothing that proved void                                 void guesses: computed, but no work
// Obstacles overlap, so the shares depend on this order. Time without work (nothing in flight, and no turn under way)
// is in none of them: it is owed to the requests.
struct BubbleCauses {
  double busy_us = 0;  // time with work, in the replay of the run as it was
  double bubble = 0;   // 1 - sum of (compute - void) / (stages * busy): the sum of the shares
  // The bubble of replay 3: this work on these stages, were hops and turns to take no time.
  double floor = 0;
  double coordinator = 0, hop = 0, imbalance = 0, few_sequences = 0, fill_drain = 0, void_guesses = 0;

  const char* Main() const;  // the name of the largest share; empty without a bubble
};
inline constexpr struct {
  const char *name, *key;
  double BubbleCauses::*share;
} kBubbleCauses[] = {{"too few sequences", "too_few_sequences", &BubbleCauses::few_sequences},
                     {"imbalance", "imbalance", &BubbleCauses::imbalance},
                     {"fill and drain", "fill_and_drain", &BubbleCauses::fill_drain},
                     {"hop", "hop", &BubbleCauses::hop},
                     {"coordinator", "coordinator", &BubbleCauses::coordinator},
                     {"void guesses", "void_guesses", &BubbleCauses::void_guesses}};

struct TraceSummary {
  int64_t wall_us = 0;  // from the first submission to the last result
  int64_t micro_batches = 0, prefill_rows = 0, decode_rows = 0, guessed_rows = 0;
  int64_t void_rows = 0;          // of the guessed ones
  std::vector<StateSums> stages;  // each adds up to wall_us exactly
  std::vector<double> void_us;    // [stages] of what it computed: for rows that proved void
  BubbleCauses causes;
};

TraceSummary SummarizeTrace(const TraceJob& job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_
