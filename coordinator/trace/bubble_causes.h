#ifndef STAGECOACH_COORDINATOR_TRACE_BUBBLE_CAUSES_H_
#define STAGECOACH_COORDINATOR_TRACE_BUBBLE_CAUSES_H_

// Why the stages of an aligned job were not always computing while there was work, in the words of
// coordinator/plan/prediction.h.
//
// The run is played again, each time with one obstacle less, and what that saves of the time with work is the
// obstacle's share. In every play a stage takes one micro-batch at a time, in order, and a micro-batch enters when what
// it waited for in the run is there (the result confirmed last before it was ready, or a command that came later):
//   1. as it was: turns of the coordinator, hops and computing as measured
//   2. without the coordinator's turns (ready until submitted)      what that saves: coordinator
//   3. and without hops: frames are there at once, and begun        hop
//   4. and every stage takes the stages' mean for a micro-batch     imbalance
//   5. and nothing waits for a result, only for its command         too few sequences (in flight)
//   6. all stages compute all the time                              fill and drain, and steps of unequal length
// Obstacles overlap, so the shares depend on this order. Time without work (nothing in flight, and no turn under way)
// is in none of them: it is owed to the requests.

#include "coordinator/trace/trace_job.h"

namespace stagecoach {

struct BubbleCauses {
  double busy_us = 0;  // time with work, in the replay of the run as it was
  double bubble = 0;   // 1 - sum of compute / (stages * busy): the sum of the shares
  double coordinator = 0, hop = 0, imbalance = 0, few_sequences = 0, fill_drain = 0;

  // "too few sequences", ...: the largest share; empty without a bubble.
  const char* Main() const;
};

BubbleCauses FindBubbleCauses(const TraceJob& job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_BUBBLE_CAUSES_H_
