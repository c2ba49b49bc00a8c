#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_

// A trace file (trace_lines.h) and its two states. While a job runs, the engine adds what it learns: a viewer shows the
// micro-batches in flight, and whoever kills the job loses nothing, because a JSON array of events may stay open. When
// the run is over it is finished: the clocks are aligned and everything else is drawn.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/obs/step_log.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Takes the micro-batches of one job, to be finished later. `append`: after those of earlier jobs, finished or not.
// kInvalidArgument when the file cannot be written.
absl::StatusOr<std::unique_ptr<StepLog>> OpenTraceLog(const std::string& path, bool append, const TraceHeader& header);

// All jobs of a file, as it has them. kNotFound: it cannot be read; kInvalidArgument: it is no trace, with the line
// that shows it. What a killed job left of its last line does not count.
absl::StatusOr<std::vector<TraceJob>> ReadTrace(const std::string& path);

// Writes aligned jobs, in place of whatever is there; the file is never there by half.
absl::Status WriteTrace(const std::string& path, const std::vector<TraceJob>& jobs);

// Aligns and draws the jobs of a file that are not finished.
absl::Status FinishTrace(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
