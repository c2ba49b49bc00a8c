// Whole simulated runs over made-up clusters: their times, their traces, and what long prompts do to the sequences that
// decode beside them.

#include "coordinator/sim/simulation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "common/job/job_choices.h"
#include "coordinator/plan/prediction.h"
#include "coordinator/schedule/policy/throttled.h"
#include "coordinator/trace/trace_file.h"
#include "coordinator/trace/trace_summary.h"
#include "gmock/gmock.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

int64_t Tokens(const SimOutcome& outcome) {
  int64_t tokens = 0;
  for (const SimulatedRequest& request : outcome.requests) tokens += request.tokens;
  return tokens;
}

SimOutcome OutcomeOf(const SimOptions& options) { return Simulate(options).value(); }

TEST(Simulation, GivesEveryRequestItsTokens) {
  const TestCluster cluster({0, 1});
  const SimOutcome outcome = OutcomeOf(RunOf(cluster, 20, 100, 30, 8));
  EXPECT_EQ(outcome.requests.size(), 20u);
  for (const SimulatedRequest& request : outcome.requests) {
    EXPECT_TRUE(request.ended);
    EXPECT_EQ(request.tokens, 30);
    EXPECT_GE(request.first_ns, request.arrived_ns);
    EXPECT_GT(request.last_ns, request.first_ns);
  }
  ASSERT_EQ(outcome.jobs.size(), 1u);
  EXPECT_EQ(outcome.jobs[0].counters.prefill_rows, 2000u);
  EXPECT_EQ(outcome.jobs[0].counters.decode_rows, 20u * 29);
  EXPECT_EQ(outcome.jobs[0].running + outcome.jobs[0].waiting, 0);
  EXPECT_EQ(outcome.result.itl_s.count, 20 * 29);
  EXPECT_EQ(outcome.result.requests, 20);
  EXPECT_EQ(outcome.result.output_tokens, 600);
}

// With costs that do not depend on the rows, every closed formula of prediction.h holds exactly.
class ClosedFormula : public ::testing::TestWithParam<std::tuple<int, int, double>> {};

TEST_P(ClosedFormula, IsWhatComesOutOfTheSimulation) {
  const auto [stages, groups, latency_s] = GetParam();
  TestCluster cluster = TestCluster::OfOwnHosts(stages);
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {latency_s, 4e7};  // 0.1 ms a row
  cluster.sim.pipeline.to_first_s = latency_s;
  const int64_t sequences = 2 * groups;
  SimOptions options = RunOf(cluster, sequences, 4, 400, static_cast<int>(sequences));
  options.scheduler.micro_batches = groups;
  options.decode_groups = groups;
  const SimOutcome outcome = OutcomeOf(options);
  const DecodePrediction predicted = PredictDecode(cluster.sim.pipeline, sequences, 100, groups);
  EXPECT_NEAR(outcome.result.itl_s.p50 / predicted.itl_s, 1, 0.002);
  const double seconds = SecondsOf(outcome.end_ns - outcome.requests[0].first_ns);
  EXPECT_NEAR(static_cast<double>(sequences) * 399 / seconds / predicted.tokens_per_s, 1, 0.02);
  EXPECT_NEAR(outcome.jobs[0].bubble, predicted.bubble, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, ClosedFormula,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values(1, 3, 4, 6),
                                            ::testing::Values(0.0, 0.0005)));

TEST(Simulation, AChunkedPromptsFirstTokenComesWhenTheFormulaSays) {
  TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOptions options = RunOf(cluster, 1, 800, 1, 1);
  options.scheduler.prefill_chunk = options.scheduler.max_num_batched_tokens = 100;
  const SimOutcome outcome = OutcomeOf(options);
  const double predicted_s = PredictPrefill(cluster.sim.pipeline, 800, 100, 4).ttft_s;
  EXPECT_NEAR(SecondsOf(outcome.requests[0].first_ns), predicted_s, 1e-5);
  EXPECT_NEAR(predicted_s, (8 + 4 - 1) * 0.001, 1e-4);
}

TEST(Simulation, IsTheSameForTheSameSeedAndAnotherForAnother) {
  TestCluster cluster = TestCluster::OfOwnHosts(3);
  cluster.sim.pipeline.stages[1].link.jitter_s = 0.001;
  SimOptions options = RunOf(cluster, 60, 40, 50, 8);
  RequestLoad load;
  load.arrivals = {.kind = Arrivals::Kind::kPoisson, .rate_per_s = 20};
  load.prompt = *ParseLengths("8:128");
  load.output = *ParseLengths("lognormal:30:0.5:200");
  load.requests = 60;
  options.requests = MakeRequests(load);
  options.seed = 3;
  const SimOutcome first = OutcomeOf(options), again = OutcomeOf(options);
  EXPECT_EQ(first.result, again.result);
  EXPECT_EQ(first.end_ns, again.end_ns);
  EXPECT_EQ(first.events, again.events);
  for (size_t i = 0; i < first.requests.size(); ++i) {
    EXPECT_EQ(first.requests[i].first_ns, again.requests[i].first_ns);
    EXPECT_EQ(first.requests[i].arrived_ns, NsOf(options.requests[i].arrival_s));
  }
  options.seed = 4;
  EXPECT_NE(OutcomeOf(options).end_ns, first.end_ns);
}

TEST(Simulation, AnUplinkThatTwoHopsShareHalvesWhatItsLinksAllow) {
  TestCluster cluster({0, 1, 2, 3});
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {.latency_s = 0, .bytes_per_s = 1e6};
  SimOptions options = RunOf(cluster, 16, 4, 200, 16);
  options.scheduler.micro_batches = 8;
  options.decode_groups = 8;
  const SimOutcome free = OutcomeOf(options);
  ShareUplinks({{1e6, {0, 2}}}, &options.cluster.pipeline);
  EXPECT_NEAR(OutcomeOf(options).result.itl_s.p50 / free.result.itl_s.p50, 2, 0.01);
}

TEST(Simulation, GoesOnAfterEveryLossWithAllTokens) {
  TestCluster cluster = TestCluster::OfOwnHosts(3);
  SimOptions options = RunOf(cluster, 30, 100, 60, 8);
  options.failures = {.at_s = {0.05, 0.2, 7}, .detect_s = 6, .relaunch_s = 1};
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_EQ(Tokens(outcome), 30 * 60);
  for (const SimulatedRequest& request : outcome.requests) EXPECT_EQ(request.tokens, 60);
  // The one at 0.2 s falls into the time in which nothing runs, that at 7 s into the relaunch.
  EXPECT_EQ(outcome.relaunches(), 1);
  EXPECT_GT(outcome.end_ns, NsOf(7.05));
  options.failures.at_s = {};
  const SimOutcome calm = OutcomeOf(options);
  EXPECT_LT(calm.end_ns, outcome.end_ns - NsOf(6.9));
  EXPECT_EQ(Tokens(calm), 30 * 60);
}

TEST(Simulation, LosesStagesByChanceAndStillFinishes) {
  TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOptions options = RunOf(cluster, 40, 50, 200, 8);
  options.failures = {.mean_between_s = 2, .detect_s = 0, .relaunch_s = 0.1};
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_GT(outcome.relaunches(), 2);
  EXPECT_EQ(Tokens(outcome), 40 * 200);
  EXPECT_EQ(OutcomeOf(options).end_ns, outcome.end_ns);
}

TEST(Simulation, GivesUpWhereNoJobLivesLongEnough) {
  TestCluster cluster = TestCluster::OfOwnHosts(2);
  SimOptions options = RunOf(cluster, 1, 50, 10, 1);
  options.failures = {.mean_between_s = 1e-6, .detect_s = 0, .relaunch_s = 0.1};
  const absl::Status status = Simulate(options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(Simulation, PreemptsWhereBlocksRunOutAndStillGivesAllTokens) {
  TestCluster cluster = TestCluster::OfOwnHosts(2);
  SimOptions options = RunOf(cluster, 12, 60, 500, 12);
  options.scheduler.group_blocks = {70};
  options.scheduler.context = 1024;
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_GT(outcome.jobs[0].counters.preemptions, 0u);
  EXPECT_EQ(Tokens(outcome), 12 * 500);
}

TEST(Simulation, LetsOnlySoManyRunAtOnceInAClosedLoop) {
  TestCluster cluster({0});
  SimOptions options = RunOf(cluster, 10, 10, 20, 8);
  options.concurrency = 1;
  const SimOutcome outcome = OutcomeOf(options);
  for (size_t i = 1; i < outcome.requests.size(); ++i) {
    EXPECT_EQ(outcome.requests[i].arrived_ns, outcome.requests[i - 1].last_ns);
  }
  EXPECT_NEAR(SecondsOf(outcome.end_ns), 10 * 20 * 0.001, 1e-6);
}

TEST(Simulation, AFrontHandsRequestsOverOneAfterTheOther) {
  TestCluster cluster({0});
  SimOptions options = RunOf(cluster, 3, 10, 1, 8);
  options.hand_over_s = 0.0004;
  const SimOutcome outcome = OutcomeOf(options);
  // The first is alone in its pass, of 1 ms; the others come during it, and share the next one.
  EXPECT_EQ(outcome.jobs[0].counters.micro_batches, 2u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(outcome.requests[i].arrived_ns, static_cast<int64_t>(i) * 400'000);
  EXPECT_EQ(outcome.requests[0].first_ns, 1'400'000);
  EXPECT_EQ(outcome.requests[1].first_ns, 2'400'000);
  EXPECT_EQ(outcome.requests[2].first_ns, 2'400'000);
}

TEST(Simulation, SaysWhyARequestWasRefusedAndGoesOnWithTheOthers) {
  TestCluster cluster({0});
  SimOptions options = RunOf(cluster, 3, 10, 20, 8);
  options.requests[1].prompt_tokens = 5000;
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_EQ(outcome.requests[1].tokens, 0);
  EXPECT_NE(outcome.requests[1].error, "");
  EXPECT_EQ(outcome.result.failed, 1);
  EXPECT_EQ(Tokens(outcome), 40);
}

TEST(Simulation, WaitsOutLongPausesBetweenArrivals) {
  TestCluster cluster({0});
  SimOptions options = RunOf(cluster, 3, 10, 5, 8);
  options.requests[1].arrival_s = 100.5;
  options.requests[2].arrival_s = 3600;
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_EQ(outcome.requests[2].arrived_ns, NsOf(3600));
  EXPECT_EQ(outcome.requests[2].first_ns, NsOf(3600.001));
  EXPECT_EQ(outcome.jobs[0].busy_us, 15000);
}

TEST(Simulation, TheCoordinatorsTurnDelaysEveryMicroBatch) {
  TestCluster cluster({0});
  cluster.sim.turn_s = 0.0005;
  EXPECT_NEAR(SecondsOf(OutcomeOf(RunOf(cluster, 1, 10, 101, 1)).end_ns), 101 * 0.0015, 1e-6);
}

// What it costs is counted, not timed: two events a stage and micro-batch, whatever the pauses of the engine.
TEST(Simulation, Of512StagesTakesTwoEventsAStageAndMicroBatch) {
  TestCluster cluster = TestCluster::OfOwnHosts(512);
  SimOptions options = RunOf(cluster, 512, 4, 4, 512);
  options.decode_groups = 256;
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_EQ(Tokens(outcome), 512 * 4);
  const uint64_t passes = outcome.jobs[0].counters.micro_batches;
  EXPECT_EQ(outcome.events, passes * (2 * 512 + 1));
}

TEST(Simulation, OfUplinksThatAllStagesShareTakesTwoEventsMoreAtMost) {
  TestCluster cluster = TestCluster::OfOwnHosts(512);
  std::vector<int> rack;
  for (int host = 0; host < 512; host += 2) rack.push_back(host);
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {.latency_s = 0.0001, .bytes_per_s = 1e9};
  ShareUplinks({{1e9, rack}}, &cluster.sim.pipeline);
  SimOptions options = RunOf(cluster, 512, 4, 4, 512);
  options.decode_groups = 256;
  const SimOutcome outcome = OutcomeOf(options);
  EXPECT_EQ(Tokens(outcome), 512 * 4);
  const uint64_t passes = outcome.jobs[0].counters.micro_batches;
  EXPECT_GT(outcome.events, passes * (2 * 512 + 1));  // they do share
  EXPECT_LE(outcome.events, passes * (2 * 512 + 1 + 2 * 511));
}

// Prompts in steps as large as experts want them: a line has those of 64 rows to be the best for ever.
TEST(Simulation, PhasesOfExpertsAreFasterByTheCurveThanByALine) {
  TestCluster cluster = TestCluster::OfOwnHosts(4);
  const double experts = 0.95, chosen = 8.0 / 256;
  for (PartWork& layer : cluster.parts.layers) {
    layer = {.bytes_kept = 2e8, .expert_bytes = experts * 2e8, .expert_share = chosen, .int8_ops = 1e11};
  }
  SimOptions options = RunOf(cluster, 24, 1000, 16, 8);
  options.scheduler.policy = Policy::kPhases;
  const auto by_line = Simulate(options);
  options.scheduler.reads = {.experts = experts, .chosen = chosen};
  const auto by_curve = Simulate(options);
  ASSERT_TRUE(by_line.ok() && by_curve.ok());
  EXPECT_GT(by_curve->result.output_tokens_per_s, 1.2 * by_line->result.output_tokens_per_s);
}

constexpr int64_t kPrompt = 4096;
constexpr SequenceId kDecoding = 8;
constexpr double kPromptsArriveS = 2;

// Layers about as those of Qwen3-0.6B in Q8_0, 14 a stage.
PartWork DenseLayer() { return {.bytes_kept = 16e6, .int8_ops = 30e6, .attention_ops = 8192, .kv_token_bytes = 4096}; }

// And of Qwen3-30B-A3B, 4 a stage.
PartWork ExpertLayer() {
  return {.bytes_kept = 660e6,
          .expert_bytes = 640e6,
          .expert_share = 8.0 / 128,
          .int8_ops = 113e6,
          .attention_ops = 16384,
          .kv_token_bytes = 2048};
}

struct Figures {
  double decode_gap_s = 0;   // the longest in the second half of the time before the prompts
  double longest_gap_s = 0;  // from the first result with a row of a prompt to the last
  double prompt_rows_per_s = 0;
};

class GapSink : public StepSink {
 public:
  void Write(StepRecord record) override {
    const double at_s = static_cast<double>(record.confirm_us) * 1e-6;
    int64_t prompt_rows = 0;
    for (const StepRecord::Slice& slice : record.slices) {
      const bool decodes = slice.sequence <= kDecoding;
      if (!decodes && slice.start < kPrompt) prompt_rows += slice.count;
      if (!decodes || !slice.sample) continue;
      if (const auto last = last_s_.find(slice.sequence); last != last_s_.end())
        gaps_.push_back({at_s, at_s - last->second});
      last_s_[slice.sequence] = at_s;
    }
    if (prompt_rows == 0) return;
    if (rows_ == 0) begin_s_ = at_s;
    rows_ += prompt_rows;
    end_s_ = at_s;
  }

  Figures figures() const {
    Figures figures{.prompt_rows_per_s = static_cast<double>(rows_) / (end_s_ - begin_s_)};
    for (const auto& [at_s, gap_s] : gaps_) {
      if (at_s > kPromptsArriveS / 2 && at_s < kPromptsArriveS) {
        figures.decode_gap_s = std::max(figures.decode_gap_s, gap_s);
      }
      if (at_s >= begin_s_ && at_s <= end_s_) figures.longest_gap_s = std::max(figures.longest_gap_s, gap_s);
    }
    return figures;
  }

 private:
  std::map<SequenceId, double> last_s_;
  std::vector<std::pair<double, double>> gaps_;  // when, how long
  int64_t rows_ = 0;
  double begin_s_ = 0, end_s_ = 0;
};

// chunk: rows of a prompt in every micro-batch; 0: as the default has it.
Figures Measure(const PartWork& layer, int layers_a_stage, int64_t prompts, int32_t chunk) {
  TestCluster cluster({0, 1}, {layers_a_stage, layers_a_stage});
  for (PartWork& part : cluster.parts.layers) part = layer;
  cluster.host.cores = 2;
  cluster.host.speeds = {{.stages = 1, .threads = 1, .read_gbps = 40, .int8_gops = 800, .f32_gops = 850}};
  SimOptions options = RunOf(cluster, kDecoding, 16, 1500, kDecoding + 4);
  for (int64_t i = 0; i < prompts; ++i) options.requests.push_back({kPromptsArriveS, kPrompt, 8});
  SchedulerOptions& scheduler = options.scheduler;
  scheduler.policy = chunk == 0 ? Policy::kThrottled : Policy::kInterleaved;
  if (chunk > 0) scheduler.prefill_chunk = chunk;
  scheduler.max_num_batched_tokens = scheduler.prefill_chunk + static_cast<int32_t>(kDecoding);
  scheduler.context = 8192;
  scheduler.max_open_tokens = 1 << 20;
  scheduler.group_blocks = {12 * 200};
  GapSink sink;
  options.steps = &sink;
  const SimOutcome outcome = Simulate(options).value();
  return sink.figures();
}

double BestRate(const PartWork& layer, int layers_a_stage, int64_t prompts) {
  double best = 0;
  for (const int32_t chunk : {128, 256, 512}) {
    best = std::max(best, Measure(layer, layers_a_stage, prompts, chunk).prompt_rows_per_s);
  }
  return best;
}

constexpr double kGapS = PrefillThrottle::kGapUs * 1e-6;

TEST(DecodingBesidePrompts, OfADenseModelWaitsAQuarterOfASecondAtMostForAFifthOfTheirRate) {
  for (const int64_t prompts : {1, 4}) {
    const Figures figures = Measure(DenseLayer(), 14, prompts, 0);
    EXPECT_LE(4 * figures.decode_gap_s, kGapS) << "for this is to be the bound";
    EXPECT_LE(figures.longest_gap_s, kGapS) << prompts;
    EXPECT_GE(figures.prompt_rows_per_s, 0.8 * BestRate(DenseLayer(), 14, prompts)) << prompts;
    EXPECT_GT(Measure(DenseLayer(), 14, prompts, 512).longest_gap_s, 3 * kGapS) << "which chunks of 512 are far from";
  }
}

TEST(DecodingBesidePrompts, OfASlowModelWaitsFourStepsAtMost) {
  const Figures figures = Measure(DenseLayer(), 160, 2, 0);
  EXPECT_GE(4 * figures.decode_gap_s, 1.5 * kGapS) << "for this is to be the bound";
  EXPECT_LE(figures.longest_gap_s, 4 * figures.decode_gap_s);
  EXPECT_GE(figures.prompt_rows_per_s, 0.5 * BestRate(DenseLayer(), 160, 2));
}

TEST(DecodingBesidePrompts, OfExpertsThatChunksReadWholeWaitsLongerForHalfOfTheRate) {
  for (const int layers : {4, 24}) {
    const Figures figures = Measure(ExpertLayer(), layers, 2, 0);
    const double best = BestRate(ExpertLayer(), layers, 2);
    const double gap_s = std::max(kGapS, 4 * figures.decode_gap_s);
    EXPECT_GE(figures.prompt_rows_per_s, (figures.longest_gap_s <= gap_s ? 0.8 : 0.5) * best) << layers;
    EXPECT_LT(figures.longest_gap_s, Measure(ExpertLayer(), layers, 2, 512).longest_gap_s) << layers;
  }
}

TraceHeader HeaderOf(const TestCluster& cluster) {
  TraceHeader header = {.version = "test", .coordinator_host = "front", .start_unix_us = 5};
  for (const PipelineStage& stage : cluster.sim.pipeline.stages) {
    const int32_t rank = static_cast<int32_t>(header.stages.size()) + 1;
    header.stages.push_back({rank, "h", stage.layers.begin, stage.layers.end, 1});
  }
  return header;
}

// What a traced run leaves in its file.
std::vector<TraceJob> Traced(const TestCluster& cluster, SimOptions options, SimOutcome* outcome) {
  SimTrace trace(HeaderOf(cluster));
  options.steps = &trace;
  options.on_job = [&trace](int64_t at_us) { trace.BeginJob(at_us); };
  *outcome = Simulate(options).value();
  const testing::TempDir dir;
  EXPECT_TRUE(trace.Save(dir.File("out.json")).ok());
  return ReadTrace(dir.File("out.json")).value();
}

int64_t SumOf(const StateSums& sums) { return std::accumulate(sums.begin(), sums.end(), int64_t{0}); }

TEST(SimTrace, AccountsForEveryMicrosecondOfWhatTheRunReports) {
  TestCluster cluster({0, 1, 2}, {1, 2, 1});
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {.latency_s = 50e-6, .bytes_per_s = 2e7};
  cluster.sim.turn_s = 40e-6;
  cluster.sim.wake_s = 30e-6;
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, RunOf(cluster, 24, 100, 30, 12), &outcome);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].header.simulated);
  EXPECT_TRUE(jobs[0].aligned);
  EXPECT_EQ(jobs[0].header.start_unix_us, 0);
  const TraceSummary summary = SummarizeTrace(jobs[0]);
  const SchedulerCounters& counters = outcome.jobs[0].counters;
  EXPECT_EQ(summary.micro_batches, static_cast<int64_t>(counters.micro_batches));
  EXPECT_EQ(summary.prefill_rows + summary.decode_rows,
            static_cast<int64_t>(counters.prefill_rows + counters.decode_rows));
  EXPECT_EQ(summary.wall_us, outcome.end_ns / 1000 - 40);  // from when the first frame leaves
  ASSERT_EQ(summary.stages.size(), 3u);
  for (size_t s = 0; s < 3; ++s) {
    const StateSums& us = summary.stages[s];
    EXPECT_EQ(SumOf(us), summary.wall_us);
    EXPECT_EQ(us[static_cast<size_t>(StageState::kCompute)], outcome.jobs[0].stages[s].compute_us);
  }
  EXPECT_GT(summary.stages[0][static_cast<size_t>(StageState::kSend)], 0);
  EXPECT_NEAR(summary.causes.bubble, outcome.jobs[0].bubble, 0.02);
  EXPECT_GT(summary.causes.coordinator, 0);
}

TEST(SimTrace, TheCoordinatorsTurnLiesBeforeTheFrameLeaves) {
  TestCluster cluster({0});
  cluster.sim.turn_s = 0.0005;
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, RunOf(cluster, 1, 10, 20, 1), &outcome);
  ASSERT_EQ(jobs[0].steps.size(), 20u);
  for (const TraceStep& step : jobs[0].steps) {
    EXPECT_EQ(step.submit_us - step.ready_us, 500);
    EXPECT_EQ(step.stages[0].received_us, step.submit_us);
    EXPECT_EQ(step.confirm_us, step.submit_us + 1000);
  }
}

TEST(SimTrace, EveryJobOfARunThatLosesStagesIsThere) {
  TestCluster cluster = TestCluster::OfOwnHosts(3);
  SimOptions options = RunOf(cluster, 30, 100, 60, 8);
  options.failures = {.at_s = {0.0001, 7.5}, .detect_s = 6, .relaunch_s = 1};
  SimOutcome outcome;
  const std::vector<TraceJob> jobs = Traced(cluster, options, &outcome);
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_TRUE(jobs[0].steps.empty());  // lost before anything came back
  EXPECT_EQ(jobs[1].header.start_us, 6000100);
  EXPECT_EQ(jobs[1].begin_us(), 7000100);
  EXPECT_EQ(jobs[2].header.start_us, 13500000);
  for (const TraceJob& job : jobs) {
    const TraceSummary summary = SummarizeTrace(job);
    for (const StateSums& stage : summary.stages) EXPECT_EQ(SumOf(stage), summary.wall_us);
  }
}

TEST(SimTrace, CannotBeSavedWhereNothingCanBeWritten) {
  TestCluster cluster({0});
  SimTrace trace(HeaderOf(cluster));
  trace.BeginJob(0);
  EXPECT_TRUE(absl::IsDataLoss(trace.Save("/nowhere/out.json")));
}

}  // namespace
}  // namespace stagecoach
