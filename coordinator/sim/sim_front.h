#ifndef STAGECOACH_COORDINATOR_SIM_SIM_FRONT_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_FRONT_H_

// A front whose requests arrive by plan, and which records the times of their tokens. It outlives the engines: requests
// that a lost job left unfinished are resubmitted to the next one, with their output so far.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/sweep_measure.h"
#include "coordinator/engine/front.h"
#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {

// One request's life, in nanoseconds of simulated time.
struct SimulatedRequest {
  int64_t arrived_ns = -1;  // what its latency counts from; -1: it never came
  int64_t first_ns = -1;    // its first token
  int64_t last_ns = -1;
  int64_t tokens = 0;  // produced
  bool ended = false;  // or cancelled, or rejected
  std::string error;   // why it was rejected
};

// Not thread-safe.
class SimFront : public Front {
 public:
  // Prompts are made-up tokens below `vocab`, different for every request. `hand_over_s`: the time to hand over one
  // request, or to learn of an end; one after the other, in parallel with the engine. `clock` outlives this.
  SimFront(RequestFeed feed, int64_t vocab, RequestMeter meter, double hand_over_s, VirtualClock* clock);

  absl::StatusOr<std::optional<FrontCommand>> Next() override;
  absl::Status Publish(const RequestEvents& events) override;
  absl::Status Report(const EngineStatus&) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  bool Wait(int64_t most_us) override;
  // What Wait does: moves time to the next event of the simulation, at most so long.
  void OnWait(std::function<void(int64_t most_us)> to_next_event) { to_next_event_ = std::move(to_next_event); }

  // A new job: all that is unfinished is submitted again, in order of arrival.
  void Resubmit();

  // When a request will be there to be taken by time alone; kNeverNs: a result must come first, or all have come.
  int64_t NextNs() const;
  bool Done() const { return feed_.AllTaken() && unfinished_ == 0; }

  const std::vector<SimulatedRequest>& requests() const { return requests_; }
  SweepResult Result() const { return meter_.Result(); }  // all but what the engines' statistics say
  int64_t produced() const { return produced_; }          // tokens

 private:
  SubmitCommand CommandFor(size_t number) const;
  void Take(const RequestDelta& delta, int64_t now_ns);
  void Finish(const RequestEnd& end);

  RequestFeed feed_;
  const bool at_once_;  // all requests: each arrives when it is handed out
  const int64_t vocab_;
  RequestMeter meter_;
  const int64_t hand_over_ns_;
  VirtualClock* const clock_;
  int64_t free_ns_ = 0;  // from when on the next request can be handed over
  std::function<void(int64_t)> to_next_event_;
  std::deque<size_t> again_;
  std::deque<RequestId> cancels_;           // to be sent; of those that have ended meanwhile, too
  std::vector<SimulatedRequest> requests_;  // by number; a request's id is its number + 1
  int64_t produced_ = 0;
  int64_t unfinished_ = 0;
  size_t oldest_ = 0;  // all before it have ended
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_FRONT_H_
