#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_

// A trace file (trace_lines.h) and its two states. During the job the engine appends what it learns: a viewer shows the
// micro-batches in flight, and a kill loses nothing, because a JSON array of events may stay open. After the run the
// file is finished: clocks are aligned and everything else is drawn.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/obs/step_log.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Records the micro-batches of one job. `append`: after those of earlier jobs, finished or not. kInvalidArgument: the
// file cannot be written.
absl::StatusOr<std::unique_ptr<StepLog>> OpenTraceLog(const std::string& path, bool append, const TraceHeader& header);

// All jobs of a file. kNotFound: it cannot be read. kInvalidArgument: it is no trace, and which line shows it. An
// incomplete last line of a killed job is ignored.
absl::StatusOr<std::vector<TraceJob>> ReadTrace(const std::string& path);

// Writes aligned jobs as a WholeFile, whose errors these are.
absl::Status WriteTrace(const std::string& path, const std::vector<TraceJob>& jobs);

// Aligns and draws the jobs of a file that are not finished.
absl::Status FinishTrace(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
