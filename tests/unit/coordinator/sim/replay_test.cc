#include "coordinator/sim/replay.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/obs/step_log.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

// What a run with these options writes to its step log, and how it ended.
std::vector<StepRecord> Recorded(SimOptions options, SimOutcome* outcome) {
  const testing::TempDir dir;
  auto log = StepLog::Open(dir.File("steps.jsonl"), false).value();
  options.steps = log.get();
  *outcome = Simulate(options).value();
  EXPECT_TRUE(log->Close().ok());
  return ReadStepLog(dir.File("steps.jsonl")).value();
}

std::vector<ArrivingRequest> Busy(int64_t requests) {
  RequestLoad load;
  load.arrivals = {.kind = Arrivals::Kind::kPoisson, .rate_per_s = 40};
  load.prompt = *ParseLengths("8:700");
  load.output = *ParseLengths("1:120");
  load.requests = requests;
  return MakeRequests(load);
}

class ReplayOf : public ::testing::TestWithParam<std::tuple<int, Policy>> {};

TEST_P(ReplayOf, ARunHandsOutTheSameMicroBatchesBetweenTheSameResults) {
  const auto [stages, policy] = GetParam();
  TestCluster cluster(std::vector<int>(static_cast<size_t>(stages), 0));  // of one host, so that groups change
  cluster.sim.turn_s = 30e-6;
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link.jitter_s = 0.0005;
  SimOptions options = RunOf(cluster, 0, 1, 1, 12);
  options.requests = Busy(80);
  for (size_t i = 0; stages == 4 && i < options.requests.size(); ++i) {
    ArrivingRequest& request = options.requests[i];
    request.tenant = absl::StrCat("tenant ", i % 4);
    request.weight = 0.3 * static_cast<double>(1 + i % 4);
    request.priority_class = kPriorityClasses[i / 4 % 3].value;
  }
  // Some wait for the next micro-batch, because this one defines as many grammars as it may.
  for (size_t i = 0; stages == 2 && i < options.requests.size(); i += 2) {
    options.requests[i].grammar.assign(700'000, static_cast<char>('a' + i % 20));
  }
  options.scheduler.policy = policy;
  options.scheduler.prefill_chunk = 128;
  options.scheduler.max_num_batched_tokens = 140;
  options.scheduler.group_blocks = {34};  // some are preempted
  if (stages == 1) {
    options.scheduler.group_blocks = {34, 30};
    options.scheduler.group_windows = {0, 100};
  }
  if (stages == 4) {
    options.scheduler.state_slots = 15;  // of 12 sequences
    options.scheduler.state_blocks = 3;
  }
  options.scheduler.context = 34 * 32;
  options.scheduler.prefix_caching = stages != 2;  // what is preempted finds its own blocks
  SimOutcome outcome;
  const std::vector<StepRecord> records = Recorded(options, &outcome);
  const auto jobs = Replay(records).value();
  ASSERT_EQ(jobs.size(), 1u);
  const ReplayedJob& job = jobs.front();
  const SchedulerCounters& was = outcome.jobs[0].counters;
  EXPECT_EQ(job.stages, stages);
  EXPECT_EQ(job.requests, 80);
  EXPECT_EQ(job.tokens, outcome.result.output_tokens);
  EXPECT_EQ(job.status.counters.micro_batches, was.micro_batches);
  EXPECT_EQ(job.status.counters.prefill_rows, was.prefill_rows);
  EXPECT_EQ(job.status.counters.decode_rows, was.decode_rows);
  EXPECT_EQ(job.status.counters.preemptions, was.preemptions);
  EXPECT_GT(was.preemptions, 0u);
  EXPECT_EQ(job.status.counters.prefix_hits, was.prefix_hits);
  EXPECT_EQ(was.prefix_hits > 0, stages != 2);
  EXPECT_EQ(job.status.counters.prefix_stateless, was.prefix_stateless);
  EXPECT_EQ(was.prefix_stateless > 0, stages == 4);
  EXPECT_EQ(records.back().slices.back().state_write != kNoSlot, stages == 4);
  const bool defined = std::any_of(records.begin(), records.end(),
                                   [](const StepRecord& record) { return !record.define_grammars.empty(); });
  EXPECT_EQ(defined, stages == 2);
  // A micro-batch is handed out at the time of what it waited for: the coordinator's turn is not part of the replay.
  EXPECT_NEAR(job.status.bubble, outcome.jobs[0].bubble, 0.02);
  EXPECT_NEAR(job.status.bubble_floor, outcome.jobs[0].bubble_floor, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, ReplayOf,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(Policy::kInterleaved, Policy::kPrefillFirst,
                                                              Policy::kDecodePriority)));

TEST(Replay, KnowsWhatTheJobsExpertsRead) {
  const TestCluster cluster({0, 1, 2, 3});
  SimOptions options = RunOf(cluster, 0, 1, 1, 12);
  options.requests = Busy(60);
  options.scheduler.policy = Policy::kPhases;
  options.scheduler.reads = {.experts = 0.95, .chosen = 8.0 / 256};
  SimOutcome outcome;
  const std::vector<StepRecord> records = Recorded(options, &outcome);
  EXPECT_EQ(records.front().inputs.job->experts, 0.95);
  EXPECT_EQ(records.front().inputs.job->experts_chosen, 8.0 / 256);
  EXPECT_EQ(Replay(records).value().front().tokens, outcome.result.output_tokens);
  std::vector<StepRecord> others = records;
  others.front().inputs.job->experts_chosen = 0;
  EXPECT_THAT(Replay(others).status().message(), HasSubstr("`experts_chosen` is 0, expected a share"));
}

struct ReplayTest : ::testing::Test {
  ReplayTest() : cluster_({0, 1}) {
    SimOptions options = RunOf(cluster_, 0, 1, 1, 8);
    options.requests = Busy(20);
    records_ = Recorded(options, &outcome_);
  }
  std::string Error() const { return std::string(Replay(records_).status().message()); }

  TestCluster cluster_;
  SimOutcome outcome_;
  std::vector<StepRecord> records_;
};

TEST_F(ReplayTest, FollowsARunThatLostStagesJobByJob) {
  SimOptions options = RunOf(cluster_, 0, 1, 1, 8);
  options.requests = Busy(60);
  options.failures = {.at_s = {0.5, 1.1}, .detect_s = 0.1, .relaunch_s = 0.1};
  records_ = Recorded(options, &outcome_);
  const auto jobs = Replay(records_).value();
  ASSERT_EQ(jobs.size(), 3u);
  int64_t tokens = 0;
  for (const ReplayedJob& job : jobs) tokens += job.tokens;
  EXPECT_EQ(tokens, outcome_.result.output_tokens);
}

TEST_F(ReplayTest, NamesTheMicroBatchThatDiffers) {
  ASSERT_GT(records_.size(), 30u);
  records_[20].slices.back().count += 1;
  EXPECT_THAT(Error(), HasSubstr("micro-batch 20 differs: the replay has ["));
}

TEST_F(ReplayTest, NoticesAGrammarThatIsNotDefined) {
  records_[10].define_grammars = {1};
  EXPECT_THAT(Error(), HasSubstr("micro-batch 10 differs"));
}

TEST_F(ReplayTest, NoticesAnotherOrderOfSlicesAndAnotherPlaceBetweenResults) {
  const std::vector<StepRecord> good = records_;
  const auto several = std::find_if(records_.begin() + 5, records_.end(),
                                    [](const StepRecord& record) { return record.slices.size() > 1; });
  ASSERT_NE(several, records_.end());
  std::swap(several->slices[0], several->slices[1]);
  EXPECT_THAT(Error(), HasSubstr(absl::StrCat("micro-batch ", several->number, " differs")));
  records_ = good;
  records_[10].submit_us = records_[9].confirm_us + 100;
  records_[10].confirm_us += 1000000;
  EXPECT_THAT(Error(), HasSubstr("micro-batch 10 is handed out after"));
}

TEST_F(ReplayTest, RefusesALogThatItCannotRelyOn) {
  const std::vector<StepRecord> good = records_;
  records_[0].inputs.job.reset();
  EXPECT_THAT(Error(), HasSubstr("record the run again"));
  records_ = good;
  records_.erase(records_.begin() + 3);
  EXPECT_THAT(Error(), HasSubstr("micro-batch 4: expected 3; lines are missing"));
  records_ = good;
  records_[4].times.pop_back();
  EXPECT_THAT(Error(), HasSubstr("times of 1 stages, the job has 2"));
  records_ = good;
  records_[0].inputs.job->max_num_seqs = 0;
  EXPECT_THAT(Error(), HasSubstr("max_num_seqs"));
  records_ = good;
  records_[0].inputs.commands.at(0).prompt_tokens = int64_t{1} << 40;
  EXPECT_THAT(Error(), HasSubstr("does not fit a context of 2048 tokens"));
  records_ = good;
  records_[0].inputs.commands.at(0).sequence = 1'000'000'000'000;
  EXPECT_THAT(Error(), HasSubstr("comes after 0"));
  records_ = good;
  records_[2].inputs.decode_groups = 7;
  EXPECT_THAT(Error(), HasSubstr("has 7 decode groups"));
  EXPECT_THAT(Replay({}).status().message(), HasSubstr("no micro-batches"));
}

TEST_F(ReplayTest, OfALogWhoseEndIsMissingReplaysWhatIsThere) {
  records_.resize(records_.size() / 2);
  EXPECT_GE(Replay(records_).value().front().status.counters.micro_batches, records_.size());
}

TEST(StepLogReader, GivesBackWhatWasWrittenAndNamesTheLineThatIsNone) {
  StepRecord record;
  record.number = 0;
  record.slices = {{.sequence = 3, .start = 64, .count = 2, .sample = true}};
  record.submit_us = 9;
  record.confirm_us = 16;
  record.times = {{.stage = 0, .received_us = 10, .start_us = 11, .end_us = 12}};
  record.inputs.commands = {
      {.sequence = 3, .confirmed = 0, .prompt_tokens = 66, .max_new_tokens = 5, .score_from = 1},
      {.sequence = 2, .confirmed = 1, .cancel = true},
      {.sequence = 4, .prompt_tokens = 2, .max_new_tokens = 1, .tenant = 77, .weight = 0.3, .priority_class = 2}};
  record.inputs.decode_groups = 1;
  record.inputs.job =
      RecordedJob{{.max_num_seqs = 9, .policy = Policy::kPhases, .slo_itl_s = 0.25, .prefix_caching = false},
                  {.group_blocks = {5, 6}, .context = 99},
                  /*stages=*/1};
  const auto back = ParseStepLogLine(StepLogLine(record)).value();
  EXPECT_EQ(StepLogLine(back), StepLogLine(record));
  EXPECT_EQ(back.inputs, record.inputs);
  // As earlier versions wrote it.
  const std::string old = absl::StrReplaceAll(
      StepLogLine(record), {{"\"slo_itl_s\":0.25", "\"slo_itl_us\":250000.0"}, {",\"prefix_caching\":false", ""}});
  ASSERT_EQ(old.find("prefix_caching"), std::string::npos);
  EXPECT_EQ(ParseStepLogLine(old).value().inputs, record.inputs);
  const std::pair<const char*, const char*> wrong[] = {
      {"x", "expected a JSON object"},
      {"[]", "the line: expected an object, found array"},
      {"{}", "number: expected a value, found none"},
      {R"({"number":-1})", "number: expected an integer"},
      {R"({"number":1,"slices":[{"sequence":1,"start":99999999999,"count":1,"sample":true}]})", "slices[0].start"},
      {R"({"number":1,"slices":[3]})", "slices[0]: expected an object"},
      {R"({"number":1,"slices":{}})", "slices: expected a list, found object"},
      {R"({"number":1,"slices":[],"submit_us":1,"confirm_us":1,"stages":[],"job":5})", "job: expected an object"},
      {R"({"number":1,"slices":[],"submit_us":1,"confirm_us":1,"stages":[],"commands":[{"add":1}]})", "commands[0]."}};
  for (const auto& [line, message] : wrong) {
    EXPECT_THAT(ParseStepLogLine(line).status().message(), HasSubstr(message)) << line;
  }
  const testing::TempDir dir;
  std::ofstream(dir.File("log")) << StepLogLine(record) << "\n\nnonsense\n";
  EXPECT_THAT(ReadStepLog(dir.File("log")).status().message(), HasSubstr("line 3: expected a JSON object"));
  EXPECT_TRUE(absl::IsNotFound(ReadStepLog("/nowhere").status()));
}

}  // namespace
}  // namespace stagecoach
