#ifndef STAGECOACH_COORDINATOR_SIM_SIM_PIPELINE_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_PIPELINE_H_

// Stages that cost time instead of doing work.
//   Computing    a stage works on one micro-batch at a time, in order, as soon as its frame is there. Its speed depends
//                on how many stages of its host compute at that moment (StageSeconds of prediction.h): whenever one
//                begins or ends, what the others have left goes on at the new speed (processor sharing).
//   Frames       go by SimNetwork, and are found `wake_s` after they came, for whoever waits for one sleeps.
//   Coordinator  takes `turn_s` to make and send a micro-batch; in that time nothing else of it happens.
//   Delay        where steps are to take longer (`stage_delay_s`), a stage sleeps after computing, as in a job: its
//                step goes on, but slows nobody on its host.
// Times of stages are as in a job: a micro-batch tells of the send that was complete last when its computing began.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/step/step.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/plan/prediction.h"
#include "coordinator/sim/sim_network.h"
#include "coordinator/sim/virtual_clock.h"

namespace stagecoach {

// A micro-batch costs what the planner's model says (coordinator/plan/cost_model.h); its tokens are made up.
inline constexpr TokenId kSimulatedToken = 1;

// A token for every slice that is sampled, log-probabilities for every slice with targets, no times.
StepResult AnswerTo(const MicroBatch& batch);

// What the last stage answers to the micro-batches of a job, in order: as AnswerTo, but guesses that do not hold are
// void. Every token of an output is kSimulatedToken, so a guess of another one is wrong.
class SimAnswers {
 public:
  StepResult To(const MicroBatch& batch);

 private:
  absl::flat_hash_map<SequenceId, int64_t> tokens_;  // known of sequences with an output
};

// The rows of a micro-batch, whatever mix they are of. Rows whose targets are asked for go through the head as those do
// that are sampled. `window`: see StepLoad. `result`: void rows do not go through the head; nullptr: all do.
StepLoad LoadOf(const MicroBatch& batch, int64_t window = 0, const StepResult* result = nullptr);

struct SimCluster {
  PipelineModel pipeline;    // 1 .. 512 stages; its costs outlive all use
  double turn_s = 0;         // of the coordinator, for each micro-batch
  double wake_s = 0;         // of every stage and of the coordinator, for each frame that comes
  double stage_delay_s = 0;  // of every stage, for each micro-batch with rows
};

// Not thread-safe.
class SimPipeline : public Pipeline {
 public:
  // `cluster` and `clock` outlive this. `fails_at_ns`: from then on no stage does anything, and `detect_ns` later Poll
  // says so; kNeverNs: it never fails.
  SimPipeline(const SimCluster* cluster, VirtualClock* clock, uint64_t seed, int64_t fails_at_ns = kNeverNs,
              int64_t detect_ns = 0);

  int stages() const override { return cluster_->pipeline.size(); }
  absl::Status Submit(const MicroBatch& batch) override;
  absl::StatusOr<std::optional<StepResult>> Poll() override;

  // When Poll will next return something (a result or the loss of a stage), if that is known by `limit_ns`: runs the
  // stages up to that moment and no farther. Advancing the clock is the caller's task.
  std::optional<int64_t> NextNs(int64_t limit_ns);

  uint64_t events() const { return next_order_; }  // so far: what the simulation costs

 private:
  struct Flight {
    StepLoad load;
    StepResult result;
    int64_t ready_ns = kNeverNs;  // at the coordinator
  };
  struct Event {
    int64_t at_ns = 0;
    uint64_t order = 0;  // of two at the same time the one that was made first
    enum class Kind { kArrival, kComputed, kStepOver, kSent } kind = Kind::kArrival;
    int stage = 0;         // stages(): the coordinator; kSent: unused
    uint64_t subject = 0;  // kArrival: the micro-batch's number; kComputed: Stage::plan; kSent: sent_plan_
    bool operator>(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };
  struct Sending {
    int64_t begin_ns = 0, end_ns = kNeverNs;
  };
  struct Stage {
    std::deque<uint64_t> waiting;  // numbers of micro-batches whose frames are there
    bool busy = false;             // with a step
    uint64_t number = 0;           // the micro-batch
    double left = 0;               // of its step, 1 at its beginning
    std::vector<double> step_s;    // [stages of the host] of the whole step while so many, less one, compute beside it;
                                   // negative: not asked for yet
    int64_t since_ns = 0;          // `left` is of this time
    uint64_t plan = 0;             // of its end: a new one voids the events of those before
    std::deque<Sending> sends;     // that nobody has asked for since they were complete, the last of these included
    std::deque<uint64_t> to_send;  // numbers, where its frames share their way: the first one is on it
  };

  Flight& FlightOf(uint64_t number) { return flights_[number - first_number_]; }
  void Push(int64_t at_ns, Event::Kind kind, int stage, uint64_t subject);
  void RunUntil(int64_t limit_ns);
  void Take(const Event& event);
  void OnArrival(int stage, uint64_t number, int64_t now_ns);
  void Begin(int stage, int64_t now_ns);
  void OnComputed(int stage, int64_t now_ns);
  void EndStep(int stage, int64_t now_ns);
  void BeginNext(int stage, int64_t now_ns);
  void LeaveHost(int stage, int64_t now_ns);
  void Send(int stage, uint64_t number, int64_t now_ns);
  void TakeSent(int64_t now_ns);
  void ScheduleNextSent();
  void Deliver(int stage, uint64_t number, const SimNetwork::Delivery& delivery);
  static void ReportLastSend(int64_t now_ns, Stage* stage, StageTimes* times);
  double StepSeconds(Stage& stage, int number, int active);
  void RescheduleHost(int host, int active_before, int64_t now_ns);

  const SimCluster* const cluster_;
  VirtualClock* const clock_;
  const int64_t fails_at_ns_, detect_ns_;
  SimNetwork network_;
  SimAnswers answers_;
  std::vector<Stage> stages_;
  std::vector<int> host_of_;                 // [stages] 0 .. hosts - 1
  std::vector<std::vector<int>> computing_;  // [hosts] stages that compute
  std::deque<Flight> flights_;               // by number, from first_number_
  uint64_t first_number_ = 0;
  std::vector<Event> events_;  // a heap, the earliest on top
  uint64_t next_order_ = 0;
  uint64_t sent_plan_ = 0;  // of when the next frame that shares its way is sent: as Stage::plan
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_PIPELINE_H_
