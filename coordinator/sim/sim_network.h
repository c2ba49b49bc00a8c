#ifndef STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_

// Frames on their way between simulated hosts: alpha + beta per byte, chance, and links that share an uplink.

#include <cstdint>
#include <vector>

#include "coordinator/plan/prediction.h"

namespace stagecoach {

// An uplink as a simulation needs it: the hosts behind it, by the numbers of PipelineStage::host.
struct SimUplink {
  double bytes_per_s = 0;
  std::vector<int> hosts;
};

// A frame of b bytes that is ready at time t
//   begins   when its stage's link has sent what was ready before it, and the uplinks on its way have taken what came
//   to
//            them before it (FIFO each)
//   is sent  b / (the least bandwidth on its way) later; each of them is occupied for b / (its own bandwidth)
//   arrives  latency + jitter after that, never before the frame ahead of it on the same link; jitter is exponential,
//            drawn by (seed, stage, frame)
// Uplinks lie on the way of frames that leave one (from a host behind it to one that is not) or enter one; the two
// directions have a bandwidth each. Frames of the last stage carry no hidden states and occupy nothing. Not
// thread-safe.
class SimNetwork {
 public:
  // `pipeline` outlives this.
  SimNetwork(const PipelineModel* pipeline, const std::vector<SimUplink>& uplinks, uint64_t seed);

  struct Delivery {
    int64_t sent_ns = 0;
    int64_t arrives_ns = 0;
  };
  // Whether frames of the stage share anything with those of others. They are then for the caller to queue: Send comes
  // for each when the one before it is sent.
  bool SharesItsWay(int stage) const { return way_[static_cast<size_t>(stage)].size() > 1; }

  // The frame of `rows` rows from a stage to the one behind it, or to the coordinator. Calls are in the order of
  // `ready_ns`; `frame` counts those of a stage.
  Delivery Send(int stage, uint64_t frame, double rows, int64_t ready_ns);

 private:
  // One direction of a link or an uplink.
  struct Wire {
    double bytes_per_s = 0;
    int64_t free_ns = 0;
  };

  const PipelineModel* const pipeline_;
  const uint64_t seed_;
  std::vector<Wire> wires_;
  std::vector<std::vector<size_t>> way_;  // [stages] of wires_
  std::vector<int64_t> last_arrival_ns_;  // [stages]
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_NETWORK_H_
