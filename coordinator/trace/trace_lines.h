#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_

// The lines of a trace file that carry its facts; everything else in it is drawn from them. The file is a JSON array in
// the Trace Event Format (Chrome's tracing, Perfetto) with one event per line, so that it can grow during a run and be
// read piece by piece. Our own events are
//   {"ph":"M","name":"stagecoach_job",..}   a job begins: its header, and its clocks once they are aligned
//   {"ph":"b","cat":"micro-batch",..}       a micro-batch from its submission on: an async event whose args hold its
//                                           rows, its times on every stage relative to its own, "ts", and the queues
//                                           after its result
// Lines here are without comma and newline.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Without its steps.
std::string TraceJobLine(const TraceJob& job);

// `id`: of the async event; an "e" event of the same id, see TraceStepEndLine, ends it.
void AppendTraceStepLine(const TraceStep& step, uint64_t id, std::string* lines);
void AppendTraceStepEndLine(const TraceStep& step, uint64_t id, std::string* lines);

// The other direction, for bytes of unknown origin. Absent: a line that carries none of it. kInvalidArgument: one that
// should, and does not. Every number is at most kMostTraceNumber from 0, every list at most kMostTraceStages long.
inline constexpr int64_t kMostTraceNumber = int64_t{1} << 52;
inline constexpr size_t kMostTraceStages = 4096;
absl::StatusOr<std::optional<TraceJob>> ParseTraceJobLine(absl::string_view line);
// `stages`: of the job that it is in.
absl::StatusOr<std::optional<TraceStep>> ParseTraceStepLine(absl::string_view line, size_t stages);

// What a viewer of traces (ui.perfetto.dev, chrome://tracing) shows of an aligned job. Every rank is a process:
//   rank 0, the coordinator   micro-batches in flight (async spans), its turns, counters of requests, of micro-batches
//                             in flight and of KV blocks
//   each stage                the lanes compute (prefill, decode and mixed steps, each kind in a colour of its own),
//                             send (frames, side by side cut to follow each other) and wait (what for, trace_summary.h)
// A flow of arrows follows every micro-batch from the coordinator's turn through the stages.
//
// `ordinal`: the job's among those of the file, from 0. `event` takes one event after the other, each a JSON object
// without a newline; the first is the job's line.
void DrawTrace(const TraceJob& job, int ordinal, const std::function<void(const std::string& event)>& event);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_
