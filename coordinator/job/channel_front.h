#ifndef STAGECOACH_COORDINATOR_JOB_CHANNEL_FRONT_H_
#define STAGECOACH_COORDINATOR_JOB_CHANNEL_FRONT_H_

// The front at the other end of a socket.

#include "coordinator/channel/engine_channel.h"
#include "coordinator/channel/water_mark.h"
#include "coordinator/engine/front.h"
#include "coordinator/job/job_report.h"

namespace stagecoach {

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
