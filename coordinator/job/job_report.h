#ifndef STAGECOACH_COORDINATOR_JOB_JOB_REPORT_H_
#define STAGECOACH_COORDINATOR_JOB_JOB_REPORT_H_

// What a job tells its front of itself: what it agreed on, and how it fares.

#include "coordinator/engine/front.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/plan/job_plan.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Not thread-safe.
class JobReport {
 public:
  // Plan and roster outlive the report; the plan is complete.
  JobReport(const pb::ConfigureJob& job, const JobPlan* plan, const Roster* roster);

  pb::LoadProgress Progress() const;
  pb::JobReady Ready() const;  // once all stages are
  pb::EngineStatus Status(const EngineStatus& status) const;

 private:
  void Describe(int stage, pb::StageSummary* out) const;

  const int32_t block_tokens_;
  const JobPlan* const plan_;
  const Roster* const roster_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_JOB_REPORT_H_
