#ifndef STAGECOACH_COORDINATOR_SIM_SIM_TRACE_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_TRACE_H_

// The timeline of a simulated run, the same as a real run's (coordinator/trace) but that its header says what it is.
// All hosts have one clock, from 0. It stays in memory until it is saved: 40 bytes a stage and 150 more a micro-batch.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/obs/step_record.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Not thread-safe.
class SimTrace : public StepSink {
 public:
  // `header`: of every job, but for when it begins; no time since the epoch, and simulated.
  explicit SimTrace(TraceHeader header);

  void BeginJob(int64_t at_us);            // before its first micro-batch
  void Write(StepRecord record) override;  // CHECK: a job has begun

  // Writes the jobs, in place of what the file holds. kInvalidArgument when it cannot be written.
  absl::Status Save(const std::string& path);

  const std::vector<TraceJob>& jobs() const { return jobs_; }  // aligned once saved

 private:
  TraceHeader header_;
  std::vector<TraceJob> jobs_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_TRACE_H_
