#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_

// The lines of a trace file that carry its facts; everything else in it is drawn from them. The file is a JSON array in
// the Trace Event Format (Chrome's tracing, Perfetto) with one event per line, so that it can grow during a run and be
// read piece by piece. Our own events are
//   {"ph":"M","name":"stagecoach_job",..}   a job begins: its header, and its clocks once they are aligned
//   {"ph":"b","cat":"micro-batch",..}       a micro-batch from its submission on: an async event whose args hold its
//                                           rows, its times on every stage relative to its own, "ts", the queues after
//                                           its result, the requests that came before it and its slices
// Lines here are without comma and newline.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Every rank is a process of its own. Numbers from 1: viewers keep 0 for what is nobody's.
constexpr int TraceProcess(int rank) { return rank + 1; }
// Lane 0 .. 3 of a process. Perfetto names threads by their number alone, so no two processes share one.
constexpr int TraceThread(int process, int lane) { return process * 4 + lane; }

// "prefill", "decode", "mixed"; with guessed rows "decode, guess", and of guessed rows alone "guess" or, where none of
// them held, "guess (void)": the name of all that is drawn of it. Viewers sum up what has one name, so its numbers are
// arguments.
const char* TraceStepName(const TraceStep& step);

// Without its steps.
std::string TraceJobLine(const TraceJob& job);

// `id`: of the async event; an "e" event of the same id, see TraceStepEndLine, ends it.
void AppendTraceStepLine(const TraceStep& step, uint64_t id, std::string* lines);
void AppendTraceStepEndLine(const TraceStep& step, uint64_t id, std::string* lines);

// The other direction, for bytes of unknown origin. Absent: a line that carries none of it. kInvalidArgument: one that
// should, and does not. Every number is at most kMostTraceNumber from 0, every list at most kMostTraceStages long, one
// of requests kMostTraceCommands.
inline constexpr int64_t kMostTraceNumber = int64_t{1} << 52;
inline constexpr size_t kMostTraceStages = 4096;
inline constexpr size_t kMostTraceCommands = 1 << 20;
absl::StatusOr<std::optional<TraceJob>> ParseTraceJobLine(absl::string_view line);
// `stages`: of the job that it is in.
absl::StatusOr<std::optional<TraceStep>> ParseTraceStepLine(absl::string_view line, size_t stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_LINES_H_
