#include "coordinator/sim/sim_trace.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {

SimTrace::SimTrace(TraceHeader header) : header_(std::move(header)) {
  header_.simulated = true;
  header_.start_unix_us = 0;
}

void SimTrace::BeginJob(int64_t at_us) {
  TraceJob& job = jobs_.emplace_back();
  job.header = header_;
  job.header.start_us = at_us;
}

void SimTrace::Write(StepRecord record) {
  CHECK(!jobs_.empty());
  jobs_.back().steps.push_back(TraceStepOf(record));
}

absl::Status SimTrace::Save(const std::string& path) {
  for (TraceJob& job : jobs_) RETURN_IF_ERROR(AlignTrace(&job));
  return WriteTrace(path, jobs_);
}

}  // namespace stagecoach
