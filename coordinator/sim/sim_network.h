#ifndef STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_

// Frames between simulated hosts: latency plus bytes over bandwidth, jitter, and shared uplinks.

#include <cstdint>
#include <vector>

#include "coordinator/plan/prediction.h"
#include "coordinator/sim/fair_sharing.h"

namespace stagecoach {

// A frame of b bytes that is ready at time t
//   begins   when its stage's link has sent what was ready before it: large frames of one connection take turns
//   is sent  b / (the least bandwidth on its way) later, where no other stage's frames can hold it up; else when it has
//            had its b bytes of what the uplinks give it, which frames share max-min fairly (fair_sharing.h)
//   arrives  latency + jitter after that, never before the frame ahead of it on the same link; jitter is exponential,
//            drawn by (seed, stage, frame)
// Uplinks lie on the way of frames that leave one (from a host behind it to one that is not) or enter one; the two
// directions have a bandwidth each. One that can carry all its stages' frames at once at the speed of their links
// counts as none. Frames of the last stage carry no hidden states and occupy nothing. Not thread-safe.
class SimNetwork {
 public:
  // `pipeline` outlives this.
  SimNetwork(const PipelineModel* pipeline, uint64_t seed);

  struct Delivery {
    int64_t sent_ns = 0;
    int64_t arrives_ns = 0;
  };
  // Whether other stages' frames can delay those of the stage. If so, the caller queues them, and calls Begin for each
  // when the one before it is sent. If not, the caller uses Send.
  bool SharesItsWay(int stage) const { return ways_[static_cast<size_t>(stage)].kind >= 0; }

  // The frame of `rows` rows from a stage to the one behind it, or to the coordinator. Calls for a stage are in the
  // order of `ready_ns`; `frame` counts those of a stage.
  Delivery Send(int stage, uint64_t frame, double rows, int64_t ready_ns);

  // The same frame where it shares its way. Times of these calls never decrease, whatever the stage.
  void Begin(int stage, double rows, int64_t now_ns);
  // When the next such frame is sent, if none begins before; kNeverNs: none is under way.
  int64_t NextSentNs() const { return sharing_.NextEndNs(); }
  // The stages whose frames are sent by then: to be called at NextSentNs. FrameSent says of each when it arrives.
  std::vector<int> TakeSent(int64_t now_ns);
  Delivery FrameSent(int stage, uint64_t frame, int64_t sent_ns);

 private:
  // Of a stage's frames.
  struct Way {
    double bytes_per_s = 0;  // the least on it
    int kind = -1;           // of sharing_; -1: they meet nobody who could hold them up
    int64_t free_ns = 0;     // then its last frame is sent; of frames that meet nobody
    int64_t last_arrival_ns = 0;
  };

  const PipelineModel* const pipeline_;
  const uint64_t seed_;
  std::vector<Way> ways_;  // [stages]
  FairSharing sharing_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_
