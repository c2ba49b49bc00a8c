#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_DRAWING_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_DRAWING_H_

#include <functional>
#include <string>

#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// What a viewer of traces (ui.perfetto.dev, chrome://tracing) shows of an aligned job. Every rank is a process,
// and so are the requests. Spans of one kind have one name, their numbers are arguments; lanes have numbers of their
// own across processes.
//   rank 0, the coordinator   micro-batches in flight (async spans), its turns, counters of requests, of micro-batches
//                             in flight and of KV blocks
//   requests                  a lane for each: queued, prefill, decode, preempted
//   each stage                the lanes compute (prefill, decode and mixed steps, steps of guesses alone, and of void
//                             guesses alone, each kind in a colour of its own),
//                             send (frames, side by side cut to follow each other) and wait (what for, trace_summary.h)
// A flow of arrows follows every micro-batch from the coordinator's turn through the stages.
//
// `ordinal`: the job's among those of the file, from 0. `event` takes one event after the other, each a JSON object
// without a newline; the first is the job's line.
void DrawTrace(const TraceJob& job, int ordinal, const std::function<void(const std::string& event)>& event);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_DRAWING_H_
