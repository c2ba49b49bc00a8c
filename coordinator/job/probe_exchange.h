#ifndef STAGECOACH_COORDINATOR_JOB_PROBE_EXCHANGE_H_
#define STAGECOACH_COORDINATOR_JOB_PROBE_EXCHANGE_H_

// Rank 0's messages with the stages of a probe and with its front: orders, answers and the detection of silent stages.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/endpoint.h"
#include "common/transport/link_meter.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame_buffer.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/pipeline/roster.h"
#include "proto/control.pb.h"
#include "proto/probe.pb.h"

namespace stagecoach {

// Not thread-safe: the endpoint's thread owns it. Every method that waits returns kUnavailable when a stage has been
// silent for too long, sent a bad frame, or when the front is gone; and a stage's own failure as it told it.
class ProbeExchange {
 public:
  // `stages`: in pipeline order. All outlive the exchange.
  ProbeExchange(Endpoint* endpoint, const std::vector<pb::Hello>& stages, EngineChannel* channel);

  // Opens the receives from every stage. First of all.
  absl::Status Open();

  // Gives a stage an order, which this numbers. With the first one after a wait the answers of before are forgotten.
  absl::Status Order(int stage, pb::ProbeOrder order);

  // Waits until every order has its answer, at most so long; those without one are given up.
  absl::Status AwaitAnswers(int64_t most_us);
  // The same for as long as heartbeats come, within minutes. An answer may be a stage's error.
  absl::Status AwaitAll();
  // The same, where a stage's error is one: with its name.
  absl::Status AwaitWork();
  const std::map<int, pb::ProbeAnswer>& answers() const { return answers_; }  // to the latest orders, by stage

  // Measures the link to a stage, at most so long. Whether it came to its end.
  absl::StatusOr<bool> AwaitMeter(LinkMeter* meter, int64_t most_us);

  // To the front: how far the probe is, at once and then twice a second; and the complete report.
  absl::Status ReportProgress(double done, const std::string& doing);
  absl::Status Send(const pb::ProbeReport& report);
  absl::Status AwaitShutdown();  // of the front
  // Waits until everything that was sent to the stages is on its way, at most so long.
  absl::Status Drain(int64_t most_us);

  int RankOf(int stage) const { return stages_[static_cast<size_t>(stage)].rank(); }
  std::string NameOf(int stage) const;  // "stage 1 on node7"

 private:
  absl::Status Turn();  // one round of the loop: a frame, the front, who is silent
  absl::Status TurnWhile(absl::FunctionRef<bool()> goes_on, int64_t most_us);
  absl::Status Take(const ReceivedFrame& frame);
  absl::Status SendProgress();

  Endpoint* const endpoint_;
  const std::vector<pb::Hello>& stages_;
  EngineChannel* const channel_;

  FramePool pool_;
  Roster roster_;
  WaitLadder ladder_;
  uint32_t last_order_ = 0;
  LinkMeter* meter_ = nullptr;    // of the link that is being measured from here
  std::map<int, uint32_t> open_;  // orders without an answer, by stage
  std::map<int, pb::ProbeAnswer> answers_;
  double done_ = 0;
  std::string doing_;
  int64_t next_progress_us_ = 0;
  int64_t next_check_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_PROBE_EXCHANGE_H_
