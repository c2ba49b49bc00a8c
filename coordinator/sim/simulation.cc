#include "coordinator/sim/simulation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "coordinator/engine/engine.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/schedule/groups/group_planner.h"
#include "coordinator/trace/trace_file.h"

namespace stagecoach {
namespace {

constexpr uint64_t kFailureStream = 0xfa11;
constexpr double kSecondsOfYear = 365.25 * 86400;

// When a job that begins now will lose a stage. Chance has no memory, so each job draws anew.
int64_t NextFailureNs(const SimOptions& options, int64_t now_ns, uint64_t job) {
  int64_t next_ns = kNeverNs;
  for (const double at_s : options.failures.at_s) {
    if (NsOf(at_s) > now_ns) next_ns = std::min(next_ns, NsOf(at_s));
  }
  if (options.failures.mean_between_s > 0) {
    const double mean_s = options.failures.mean_between_s / options.cluster.pipeline.size();
    const double wait_s = -std::log1p(-UniformAt(MixBits(options.seed) + kFailureStream, job)) * mean_s;
    next_ns = std::min(next_ns, now_ns + NsOf(wait_s));
  }
  return next_ns;
}

std::vector<int> HostsOf(const PipelineModel& pipeline) {
  std::vector<int> hosts;
  for (const PipelineStage& stage : pipeline.stages) hosts.push_back(stage.host);
  return hosts;
}

Speculator::Options GuessesOf(const SimOptions& options) {
  return {.suffix = false,
          .vocab = std::max<int64_t>(options.vocab, SimGuesser::kWrongToken + 1),
          .more = [outcomes = options.guesses](const Sequence& sequence) {
            return std::make_unique<SimGuesser>(sequence.spec().id, outcomes);
          }};
}

// The engine has handed a micro-batch over before the coordinator's turn, in its own time, passes in the pipeline.
class TurnDelay : public StepSink {
 public:
  TurnDelay(StepSink* sink, double turn_s) : sink_(sink), turn_us_(NsOf(turn_s) / 1000) {}
  void Write(StepRecord record) override {
    record.submit_us += turn_us_;
    sink_->Write(std::move(record));
  }

 private:
  StepSink* const sink_;
  const int64_t turn_us_;
};

// One job: from when it is ready until all requests are done or a stage is lost.
class SimJob {
 public:
  SimJob(const SimOptions& options, VirtualClock* clock, SimFront* front, uint64_t number)
      : clock_(clock),
        front_(front),
        pipeline_(&options.cluster, clock, MixBits(options.seed + number),
                  NextFailureNs(options, clock->now_ns(), number), NsOf(options.failures.detect_s)),
        scheduler_(options.scheduler),
        steps_(options.steps, options.cluster.turn_s) {
    if (options.guesses != nullptr) speculator_ = std::make_unique<Speculator>(GuessesOf(options));
    if (options.decode_groups > 0) scheduler_.SetDecodeGroups(options.decode_groups);
    if (options.decode_groups == 0 || speculator_ != nullptr) {
      groups_ = std::make_unique<GroupPlanner>(HostsOf(options.cluster.pipeline), scheduler_.most_groups(),
                                               options.scheduler.reads,
                                               GroupPlanner::Options{.guess_rows = options.scheduler.most_guesses + 1,
                                                                     .groups = options.decode_groups,
                                                                     .idle_us = options.cluster.stage_delay_s * 1e6});
    }
    engine_ = std::make_unique<Engine>(&pipeline_, &scheduler_, front, clock, options.vocab,
                                       options.steps != nullptr ? &steps_ : nullptr, groups_.get(), speculator_.get());
    clock->OnPause([this] { ToNextEvent(kNeverNs); });
    front->OnWait([this](int64_t most_us) { ToNextEvent(clock_->now_ns() + most_us * 1000); });
  }

  absl::Status Run() {
    while (!front_->Done() && !stuck_) {
      if (clock_->now_s() >= kLongestRunS) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "the run takes longer than %.0f years of simulated time; give fewer or shorter requests, or "
            "hosts, links and relaunches that are faster",
            kLongestRunS / kSecondsOfYear));
      }
      RETURN_IF_ERROR(engine_->Step());
    }
    if (stuck_) {
      return absl::InternalError(absl::StrCat("nothing happens any more after ", clock_->now_s(), " s with ",
                                              scheduler_.running(), " sequences running and ", scheduler_.waiting(),
                                              " waiting"));
    }
    return scheduler_.CheckIntegrity();
  }

  EngineStatus Status() const { return engine_->Status(); }
  uint64_t events() const { return pipeline_.events(); }

 private:
  // Time goes on to what happens next, as far as the engine can see it, or to `limit_ns`.
  void ToNextEvent(int64_t limit_ns) {
    const int64_t arrival_ns = std::max(front_->NextNs(), clock_->now_ns());
    const std::optional<int64_t> next_ns = pipeline_.NextNs(std::min(limit_ns, arrival_ns));
    const int64_t to_ns = next_ns.value_or(std::min(limit_ns, arrival_ns));
    stuck_ = to_ns == kNeverNs || (limit_ns != kNeverNs && arrival_ns == kNeverNs && scheduler_.in_flight() == 0);
    if (to_ns != kNeverNs) clock_->AdvanceTo(to_ns);
  }

  VirtualClock* const clock_;
  SimFront* const front_;
  SimPipeline pipeline_;
  Scheduler scheduler_;
  TurnDelay steps_;
  std::unique_ptr<GroupPlanner> groups_;
  std::unique_ptr<Speculator> speculator_;
  std::unique_ptr<Engine> engine_;
  bool stuck_ = false;
};

}  // namespace

absl::StatusOr<SimOutcome> Simulate(const SimOptions& options) {
  VirtualClock clock;
  SimFront front(RequestFeed(options.requests, options.concurrency), options.vocab,
                 RequestMeter(options.slo_ttft_s, options.slo_itl_s), options.hand_over_s, &clock);
  SimOutcome outcome;
  int in_vain = 0;
  if (options.on_job) options.on_job(0);
  for (uint64_t number = 0;; ++number) {
    const int64_t produced = front.produced();
    SimJob job(options, &clock, &front, number);
    const absl::Status status = job.Run();
    outcome.jobs.push_back(job.Status());
    outcome.events += job.events();
    if (status.ok()) break;
    if (!absl::IsUnavailable(status)) return status;
    in_vain = front.produced() > produced ? 0 : in_vain + 1;
    if (in_vain == SimFailures::kMostInVain) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%d jobs in a row were lost before one token came, at %.3f s of simulated time; let stages "
                          "live longer, or relaunch faster",
                          in_vain, clock.now_s()));
    }
    if (options.on_job) options.on_job(clock.NowUs());
    clock.AdvanceTo(clock.now_ns() + NsOf(options.failures.relaunch_s));
    front.Resubmit();
  }
  outcome.requests = front.requests();
  outcome.result = front.Result();
  outcome.result.relaunches = outcome.relaunches();
  outcome.begin_ns = outcome.requests.empty() ? 0 : outcome.requests.front().arrived_ns;
  outcome.end_ns = outcome.begin_ns;
  for (const SimulatedRequest& request : outcome.requests) outcome.end_ns = std::max(outcome.end_ns, request.last_ns);
  return outcome;
}

SimTrace::SimTrace(TraceHeader header) : header_(std::move(header)) {
  header_.simulated = true;
  header_.start_unix_us = 0;
}

void SimTrace::BeginJob(int64_t at_us) {
  TraceJob& job = jobs_.emplace_back();
  job.header = header_;
  job.header.start_us = at_us;
}

void SimTrace::Write(StepRecord record) {
  CHECK(!jobs_.empty());
  jobs_.back().steps.push_back(TraceStepOf(record));
}

absl::Status SimTrace::Save(const std::string& path) {
  for (TraceJob& job : jobs_) {
    RETURN_IF_ERROR(AlignTrace(&job));
    job.cut = &job != &jobs_.back();  // its stages were lost
  }
  return WriteTrace(path, jobs_);
}

}  // namespace stagecoach
