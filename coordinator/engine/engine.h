#ifndef STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_
#define STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_

// THE loop: requests from the front become sequences, the scheduler's micro-batches go to the pipeline, results become
// events for the front. It knows neither sockets nor messages, and time only by its clock. Not thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/grammar/matcher.h"
#include "common/obs/step_record.h"
#include "common/transport/wait_ladder.h"
#include "coordinator/engine/bubble_meter.h"
#include "coordinator/engine/front.h"
#include "coordinator/guess/draft/draft_runner.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/schedule/groups/group_planner.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

// The engine's time and its pauses: real or simulated.
class EngineClock {
 public:
  virtual ~EngineClock() = default;
  virtual int64_t NowUs() = 0;         // never goes back; the clock of this host's stages, too
  virtual void Pause(int64_t us) = 0;  // 0: look again at once
};

// Real time. For the thread that makes it.
class SystemClock : public EngineClock {
 public:
  SystemClock() {
    AllowShortSleeps();
    AskForTurns(Turns::kShort);
  }
  int64_t NowUs() override { return MonotonicUs(); }
  void Pause(int64_t us) override {
    if (us > 0) sleeper_.Sleep(us);
  }

 private:
  Sleeper sleeper_;
};

class Engine {
 public:
  // All pointers outlive the engine; `steps`, which is told of every micro-batch, may be nullptr. `vocab`: of the
  // model, which requests are checked against. `groups`: chooses the scheduler's decode groups, and who guesses;
  // nullptr: they stay as they are. `speculator`: guesses; nullptr: nobody. `check`: refuses requests that the stages
  // could not compute, and says where the output of one with a grammar stands; nullptr: they take any. `draft`: a model
  // whose guesses the speculator asks for; nullptr: none.
  using RequestCheck = std::function<absl::Status(const SequenceSpec&, std::optional<GrammarMatcher>*)>;
  Engine(Pipeline* pipeline, Scheduler* scheduler, Front* front, EngineClock* clock, int64_t vocab, StepSink* steps,
         GroupPlanner* groups = nullptr, Speculator* speculator = nullptr, RequestCheck check = nullptr,
         DraftRunner* draft = nullptr);

  // Admit, fill the pipeline, await one result, fill again where it made room, publish it: the first stage waits for
  // the successor of what came back, the front for nothing. Waits a bounded time when there is nothing to do. While the
  // front is behind in reading, what is in flight comes back and nothing is submitted. kUnavailable: a stage is lost or
  // the front is gone.
  absl::Status Step();

  // After a shutdown command: no more commands are taken.
  bool shutting_down() const { return shutting_down_; }
  // Sends the shutdown frame through all stages and waits for it to come back, behind whatever is in flight; a lost
  // stage ends the wait.
  absl::Status ShutDownStages();

  EngineStatus Status() const;

 private:
  struct Submitted {
    MicroBatch batch;
    int64_t ready_us;      // when what it may have waited for was there, a result or a command
    int64_t submitted_us;  // when it was handed to the pipeline
    int32_t in_flight;     // micro-batches then, with this one
    StepInputs inputs;     // for records
  };
  // A request that was taken and has not ended. Times are 0 until they are.
  struct Live {
    RequestId request = 0;
    int64_t arrived_us = 0, admitted_us = 0, first_token_us = 0;
    PredictionCost prediction;
    std::optional<RequestCost> told;  // in its latest delta that said
    bool reports_progress = false;
    int64_t progress_us = 0, progress = 0;  // told last
  };

  absl::Status TakeCommands();  // until a report is due, but one at least
  absl::Status Take(SubmitCommand command);
  absl::Status Take(const CancelCommand& command);
  absl::Status Take(const ShutdownCommand& command);
  absl::Status PollDraft();
  absl::Status Fill();  // with all that the scheduler gives
  absl::Status Submit(MicroBatch batch);
  absl::Status TakeResult(const StepResult& result);
  void TakeOutcomes(const std::vector<SequenceEvent>& events);
  void TakeEvent(SequenceEvent event, int64_t now_us);
  void ReportPrompts(int64_t now_us);
  absl::Status ReportChecksums(const StepResult& result);
  static RequestCost CostOf(const Live& live, int64_t now_us);
  void End(RequestEnd end);
  absl::Status PublishEvents();
  bool ReportIsDue() const;
  absl::Status Report();  // when it is due
  void Confirm(const StepResult& result, int64_t now_us);
  void Record(const StepResult& result, int64_t now_us, Submitted* submitted);
  void RecordJob();
  void RecordFilled(const MicroBatch& batch);
  void RecordHeld(const StepResult& result);
  void RecordBlocks(const Sequence& sequence, int64_t start, int64_t end);
  void PlanGroups(const StepResult& result, const Submitted& submitted, int64_t void_rows, int64_t now_us);
  void WaitForWork();  // after a turn in which nothing happened

  Pipeline* const pipeline_;
  Scheduler* const scheduler_;
  Front* const front_;
  EngineClock* const clock_;
  StepSink* const steps_;
  GroupPlanner* const groups_;
  Speculator* const speculator_;
  DraftRunner* const draft_;
  const int64_t vocab_;
  const RequestCheck check_;
  BubbleMeter bubble_;
  WaitPolicy waits_;
  std::deque<Submitted> in_flight_;
  StepInputs inputs_;       // for records: since the last micro-batch
  uint64_t confirmed_ = 0;  // results
  SequenceId next_sequence_ = 1;
  absl::flat_hash_map<SequenceId, Live> live_;
  absl::flat_hash_map<RequestId, SequenceId> sequence_of_;
  int64_t reporting_ = 0;  // of live_: prompts whose progress is asked for and that have no token yet
  RequestEvents events_;   // of this turn
  int64_t reported_us_;
  int64_t ready_us_ = 0;  // when the latest result or command was there
  bool shutting_down_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_ENGINE_H_
