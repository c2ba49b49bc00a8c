#ifndef STAGECOACH_COORDINATOR_JOB_CHANNEL_FRONT_H_
#define STAGECOACH_COORDINATOR_JOB_CHANNEL_FRONT_H_

// The front at the other end of a socket, and what a job tells it of itself.

#include <string>

#include "coordinator/channel/engine_channel.h"
#include "coordinator/engine/front.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/plan/job_plan.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// What the engine counted and measured, without its stages.
pb::JobStatistics StatisticsOf(const EngineStatus& status);

// What the job agreed on, and how it fares. Not thread-safe.
class JobReport {
 public:
  // Plans and rosters outlive the report; the plans are complete. Those of the draft: nullptr without one.
  JobReport(const pb::ConfigureJob& job, const JobPlan* plan, const Roster* roster, const JobPlan* draft_plan = nullptr,
            const Roster* draft_roster = nullptr);

  pb::LoadProgress Progress() const;
  pb::JobReady Ready() const;  // once all stages are
  pb::EngineStatus Status(const EngineStatus& status) const;

 private:
  static void Describe(const JobPlan& plan, const Roster& roster, int stage, pb::StageSummary* out);

  const int32_t block_tokens_;
  const std::string speculation_;  // JobReady's
  const JobPlan* const plan_;
  const Roster* const roster_;
  const JobPlan* const draft_plan_;
  const Roster* const draft_roster_;
};

// Not thread-safe.
class ChannelFront : public Front {
 public:
  // Both outlive this object.
  ChannelFront(EngineChannel* channel, const JobReport* report) : channel_(channel), report_(report) {}

  absl::StatusOr<std::optional<FrontCommand>> Next() override;
  absl::Status Publish(const RequestEvents& events) override;
  absl::Status Report(const EngineStatus& status) override;
  bool Behind() override { return behind_.Waits(channel_->pending_bytes()); }
  bool Wait(int64_t most_us) override;

 private:
  EngineChannel* const channel_;
  const JobReport* const report_;
  WaterMark behind_ = kEngineToFront;
  bool drained_ = false;  // the last command was the last one of what was read
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_CHANNEL_FRONT_H_
