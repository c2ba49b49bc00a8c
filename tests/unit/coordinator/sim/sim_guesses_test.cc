// Runs in simulated time in which guesses prove right by chance: what one user gains by them, and nobody loses.

#include "coordinator/sim/sim_guesses.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/counter_rng.h"
#include "common/obs/step_log.h"
#include "coordinator/sim/replay.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

constexpr int64_t kTokens = 2000;

// Of so many users at once, each with a short prompt.
SimOptions UsersOf(const TestCluster& cluster, int users, int64_t tokens, SimOutcomes guesses) {
  SimOptions options = RunOf(cluster, users, 4, tokens, users);
  options.scheduler.most_groups = cluster.sim.pipeline.size() + 1;
  options.scheduler.most_guesses = std::min(cluster.sim.pipeline.size(), 15);
  options.guesses = std::move(guesses);
  return options;
}

// A user's guesses, by request from 1 on.
SimOutcomes EachByChance(std::vector<double> acceptance) {
  return [acceptance = std::move(acceptance)](SequenceId sequence, int64_t position) {
    return ByChance(acceptance[sequence - 1], 5)(sequence, position);
  };
}

double MsAToken(const SimOutcome& outcome, size_t user) {
  const SimulatedRequest& request = outcome.requests[user];
  return SecondsOf(request.last_ns - request.first_ns) * 1e3 / static_cast<double>(request.tokens - 1);
}

SimOutcome Simulated(const SimOptions& options) {
  SimOutcome outcome = Simulate(options).value();
  for (const SimulatedRequest& request : outcome.requests) EXPECT_TRUE(request.ended);
  return outcome;
}

TEST(SimGuesses, OfOneUserOnEqualStagesGainWhatTheFormulaSays) {
  for (const int stages : {2, 4, 8}) {
    const TestCluster cluster = TestCluster::OfOwnHosts(stages);
    for (const double right : {0.5, 0.7, 0.9}) {
      const SimOutcome outcome = Simulated(UsersOf(cluster, 1, kTokens, ByChance(right, 1)));
      const SchedulerCounters& counters = outcome.jobs[0].counters;
      const double share = static_cast<double>(counters.guesses_right) / kTokens;
      EXPECT_NEAR(share, right, 0.04);
      EXPECT_NEAR(MsAToken(outcome, 0) / (stages * (share / stages + 1 - share)), 1, 0.05) << stages << " " << right;
      EXPECT_EQ(counters.decode_rows + counters.guesses - counters.guesses_void + 1, uint64_t{kTokens})
          << "of each token one row";
    }
  }
}

TEST(SimGuesses, ThatAreAllRightMakeOneUserAsFastAsTheSlowestStage) {
  const TestCluster cluster = TestCluster::OfOwnHosts(4);
  const SimOutcome outcome = Simulated(UsersOf(cluster, 1, 2000, ByChance(1, 1)));
  EXPECT_LT(MsAToken(outcome, 0), 1.05);
  EXPECT_EQ(outcome.jobs[0].counters.guesses_void, 0u);
  EXPECT_LT(outcome.jobs[0].bubble, 0.05);
}

TEST(SimGuesses, ThatAreNeverRightCostNothingThatShows) {
  const std::vector<std::pair<std::vector<int>, std::vector<int>>> pipelines = {
      {{0, 1, 2, 3}, {}}, {{0, 1, 2, 3}, {1, 1, 1, 2}}, {{0, 0}, {}}, {{0, 0, 1, 1}, {}}};
  for (const auto& [hosts, layers] : pipelines) {
    const TestCluster cluster(hosts, layers);
    const SimOutcome without = Simulated(UsersOf(cluster, 1, 1500, nullptr));
    const SimOutcome with = Simulated(UsersOf(cluster, 1, 1500, ByChance(0, 1)));
    EXPECT_LT(MsAToken(with, 0), MsAToken(without, 0) / 0.97);
    EXPECT_LT(with.jobs[0].counters.guesses_void, 300u) << "it gives up";
  }
}

// The quickstart's case: what one of the two stages gains, the other loses.
TEST(SimGuesses, StagesOfOneHostLoseNothing) {
  const TestCluster cluster({0, 0});
  const SimOutcome without = Simulated(UsersOf(cluster, 1, kTokens, nullptr));
  const SimOutcome with = Simulated(UsersOf(cluster, 1, kTokens, ByChance(0.8, 1)));
  EXPECT_LT(MsAToken(with, 0), MsAToken(without, 0) / 0.99);
}

TEST(SimGuesses, StepsThatSleepGainOnOneHostToo) {
  TestCluster cluster({0, 0, 0, 0});
  cluster.sim.stage_delay_s = 0.02;
  const SimOutcome outcome = Simulated(UsersOf(cluster, 1, 1000, ByChance(0.8, 1)));
  EXPECT_LT(MsAToken(outcome, 0), 84 * 0.5);
}

TEST(SimGuesses, OfTwoUsersOnFourStagesGainAThird) {
  TestCluster cluster({0, 1, 2, 3});
  for (PartWork& layer : cluster.parts.layers) layer.int8_ops = 1e12;  // a row takes as long as the reading
  const SimOutcome without = Simulated(UsersOf(cluster, 2, 1500, nullptr));
  const SimOutcome with = Simulated(UsersOf(cluster, 2, 1500, ByChance(0.6, 1)));
  for (const size_t user : {0u, 1u}) EXPECT_GT(MsAToken(without, user) / MsAToken(with, user), 1.3);
}

// By the second user's answer, which ends before the first one's: alone he loses nothing, and that would hide some.
TEST(SimGuesses, OneWhoDoesNotGuessLosesNothingBesideOneWhoDoes) {
  for (const double row_share : {0.05, 0.3, 1.0}) {  // of the time that reading takes
    TestCluster cluster({0, 1, 2, 3});
    for (PartWork& layer : cluster.parts.layers) layer.int8_ops = row_share * 1e12;
    for (const double right : {0.3, 0.6, 0.8}) {
      SimOptions options = UsersOf(cluster, 2, kTokens, nullptr);
      options.requests[1].output_tokens = kTokens / 3;
      const SimOutcome without = Simulated(options);
      options.guesses = EachByChance({right, 0});
      const SimOutcome with = Simulated(options);
      ASSERT_GT(with.requests[0].last_ns, with.requests[1].last_ns);
      EXPECT_LT(MsAToken(with, 1), MsAToken(without, 1) * 1.01) << row_share << " " << right;
      EXPECT_LT(MsAToken(with, 0), MsAToken(without, 0) * (right > 0.5 ? 0.8 : 1)) << row_share << " " << right;
    }
  }
}

TEST(SimGuesses, AreNoneWithAsManyGroupsAsStages) {
  const TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOptions options = UsersOf(cluster, 8, 400, ByChance(0.9, 1));
  options.scheduler.most_groups = 16;  // there are places
  for (const int32_t groups : {4, 2}) {
    options.decode_groups = groups;
    EXPECT_EQ(Simulated(options).jobs[0].counters.guesses > 0, groups < 4) << groups;
  }
}

// Whatever comes and goes: the scheduler's books balance in the end (Simulate checks them), and nothing is left in use.
TEST(SimGuesses, TenThousandRequestsEndWithEverythingFree) {
  const TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOptions options = UsersOf(cluster, 1, 1, nullptr);
  options.guesses = [](SequenceId sequence, int64_t position) {
    return ByChance(UniformAt(9, sequence), 3)(sequence, position);
  };
  RequestLoad load;
  load.arrivals = {.kind = Arrivals::Kind::kPoisson, .rate_per_s = 60};
  load.prompt = *ParseLengths("1:100");
  load.output = *ParseLengths("1:30");
  load.requests = 10'000;
  options.requests = MakeRequests(load);
  for (size_t i = 0; i < options.requests.size(); i += 4) {
    options.requests[i].cancel_after = static_cast<int64_t>(UniformAt(11, i) * 30);
  }
  options.scheduler.max_num_seqs = 6;
  options.scheduler.group_blocks = {12, 9};
  options.scheduler.group_windows = {0, 64};
  options.scheduler.context = 192;
  options.scheduler.state_slots = 14;
  options.scheduler.state_blocks = 3;
  options.scheduler.prefix_caching = true;
  const SimOutcome outcome = Simulated(options);
  ASSERT_EQ(outcome.jobs.size(), 1u);
  const EngineStatus& job = outcome.jobs[0];
  EXPECT_GT(job.counters.guesses_right, 10'000u);
  EXPECT_GT(job.counters.guesses_void, 1'000u);
  EXPECT_GT(job.counters.preemptions, 0u);
  int64_t cut_short = 0;
  for (size_t i = 0; i < outcome.requests.size(); ++i) {
    cut_short += outcome.requests[i].tokens < options.requests[i].output_tokens ? 1 : 0;
  }
  EXPECT_GT(cut_short, 500);
  EXPECT_THAT(job.blocks_used, ElementsAre(0, 0));
  EXPECT_EQ(job.states_used, 0);
}

TEST(SimGuesses, SurviveTheLossOfAStage) {
  const TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOptions options = UsersOf(cluster, 3, 400, ByChance(0.7, 1));
  options.failures = {.at_s = {0.1, 0.5}, .detect_s = 0.05, .relaunch_s = 0.05};
  const SimOutcome outcome = Simulated(options);
  EXPECT_EQ(outcome.relaunches(), 2);
  for (const SimulatedRequest& request : outcome.requests) EXPECT_EQ(request.tokens, 400);
}

std::vector<StepRecord> RecordsOf(SimOptions options, SimOutcome* outcome) {
  const testing::TempDir dir;
  auto log = StepLog::Open(dir.File("steps.jsonl"), false).value();
  options.steps = log.get();
  *outcome = Simulated(options);
  EXPECT_TRUE(log->Close().ok());
  return ReadStepLog(dir.File("steps.jsonl")).value();
}

TEST(SimGuesses, OfARecordedRunAreReplayed) {
  TestCluster cluster = TestCluster::OfOwnHosts(4);
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link.jitter_s = 0.0005;
  cluster.sim.turn_s = 30e-6;
  SimOptions options = UsersOf(cluster, 1, 1, ByChance(0.7, 1));
  RequestLoad load;
  load.arrivals = {.kind = Arrivals::Kind::kPoisson, .rate_per_s = 20};
  load.prompt = *ParseLengths("8:200");
  load.output = *ParseLengths("1:150");
  load.requests = 60;
  options.requests = MakeRequests(load);
  options.scheduler.max_num_seqs = 6;
  options.scheduler.context = 512;
  options.scheduler.group_blocks = {24, 20};
  options.scheduler.group_windows = {0, 100};
  options.scheduler.state_slots = 16;
  options.scheduler.state_blocks = 3;
  options.scheduler.prefix_caching = true;
  SimOutcome outcome;
  std::vector<StepRecord> records = RecordsOf(options, &outcome);
  const SchedulerCounters& was = outcome.jobs[0].counters;
  EXPECT_GT(was.guesses_right, 500u);
  EXPECT_GT(was.guesses_void, 100u);
  const ReplayedJob job = Replay(records).value().front();
  EXPECT_EQ(job.tokens, outcome.result.output_tokens);
  EXPECT_EQ(job.status.counters.guesses, was.guesses);
  EXPECT_EQ(job.status.counters.guesses_right, was.guesses_right);
  EXPECT_EQ(job.status.counters.guesses_void, was.guesses_void);
  EXPECT_EQ(job.status.counters.prefix_hits, was.prefix_hits);
  // A guess that is not in the record differs, and so does one too many.
  const auto guessed = std::find_if(records.begin() + 50, records.end(),
                                    [](const StepRecord& record) { return record.guess_rows() > 0; });
  ASSERT_NE(guessed, records.end());
  std::erase_if(guessed->slices, [](const StepRecord::Slice& slice) { return slice.guess != GuessRecord::kNone; });
  EXPECT_FALSE(Replay(records).ok());
  guessed->inputs.guess_places = 99;
  EXPECT_FALSE(Replay(records).ok());
}

TEST(SimGuesses, CanBeThoseOfAStepLog) {
  const TestCluster cluster = TestCluster::OfOwnHosts(4);
  SimOutcome first, second;
  const std::vector<StepRecord> records = RecordsOf(UsersOf(cluster, 1, 1000, ByChance(0.7, 1)), &first);
  const SimOutcomes same = ByLog(records, {4});
  ASSERT_NE(same, nullptr);
  const SimOutcome again = Simulated(UsersOf(cluster, 1, 1000, same));
  EXPECT_NEAR(MsAToken(again, 0) / MsAToken(first, 0), 1, 0.03);
  EXPECT_EQ(ByLog(RecordsOf(UsersOf(cluster, 1, 20, nullptr), &second), {4}), nullptr);
}

// A log of one micro-batch.
StepRecord GuessesAfter(int64_t prompt_tokens, const std::vector<StepRecord::Slice>& slices, SequenceId requests) {
  StepRecord record;
  for (SequenceId sequence = 1; sequence <= requests; ++sequence) {
    record.inputs.commands.push_back({.sequence = sequence, .prompt_tokens = prompt_tokens, .max_new_tokens = 4});
  }
  record.slices = slices;
  return record;
}

TEST(SimGuesses, OfAStepLogAreThoseOfTheRequestOfTheSameNumber) {
  const auto guess = [](int32_t start, GuessRecord what) {
    return StepRecord::Slice{.sequence = 2, .start = start, .count = 1, .sample = true, .guess = what};
  };
  const std::vector<StepRecord> records = {
      GuessesAfter(10, {guess(11, GuessRecord::kRight), guess(12, GuessRecord::kVoid)}, 3)};
  const SimOutcomes outcomes = ByLog(records, {4, 6, 5});
  ASSERT_NE(outcomes, nullptr);
  for (const SequenceId sequence : {1, 3}) {
    for (int64_t position = 0; position < 20; ++position) EXPECT_EQ(outcomes(sequence, position), std::nullopt);
  }
  EXPECT_EQ(outcomes(2, 5), std::nullopt) << "of the prompt";
  EXPECT_EQ(outcomes(2, 6), std::nullopt) << "it was not guessed";
  EXPECT_EQ(outcomes(2, 7), true);
  EXPECT_EQ(outcomes(2, 8), false);
  EXPECT_EQ(outcomes(2, 9), std::nullopt) << "from the start";
  EXPECT_EQ(outcomes(2, 10), true);
}

// Of as many requests as would fill the memory, if a place were taken for a size.
TEST(SimGuesses, OfAStepLogMayBeAtAnyPosition) {
  constexpr int32_t kFar = std::numeric_limits<int32_t>::max();
  std::vector<StepRecord::Slice> slices;
  for (SequenceId sequence = 1; sequence <= 1000; ++sequence) {
    slices.push_back({.sequence = sequence, .start = kFar, .count = 1, .sample = true, .guess = GuessRecord::kRight});
  }
  const SimOutcomes outcomes = ByLog({GuessesAfter(3, slices, 1000)}, {3});
  ASSERT_NE(outcomes, nullptr);
  EXPECT_EQ(outcomes(1000, kFar), true);
  EXPECT_EQ(outcomes(1000, 3), std::nullopt);
}

MicroBatch RowAt(uint64_t number, int32_t start, TokenId guess) {
  MicroBatch batch{.number = number};
  batch.slices.push_back({.sequence = 1, .start = start, .count = 1, .tokens = {guess}, .sample = true});
  batch.slices[0].guess = start > 3;
  return batch;
}

TEST(SimAnswers, VoidGuessesThatStandOnAnotherTokenUntilItsRightRowComes) {
  SimAnswers answers;
  const TokenId right = kSimulatedToken, wrong = SimGuesser::kWrongToken;
  auto is_void = [&answers, number = uint64_t{0}](int32_t start, TokenId guess) mutable {
    const SampledToken token = answers.To(RowAt(number++, start, guess)).sampled[0];
    EXPECT_EQ(token.position, start + 1);
    EXPECT_EQ(token.token, token.is_void ? kNoToken : kSimulatedToken);
    return token.is_void;
  };
  EXPECT_FALSE(is_void(3, 9));
  EXPECT_FALSE(is_void(4, right));
  EXPECT_TRUE(is_void(5, wrong));
  EXPECT_TRUE(is_void(6, right)) << "it stands on a wrong one";
  MicroBatch known = RowAt(9, 5, right);
  known.slices[0].guess = false;
  EXPECT_FALSE(answers.To(known).sampled[0].is_void);
  EXPECT_FALSE(is_void(6, right));
}

TEST(SimAnswers, VoidRowsDoNotGoThroughTheHead) {
  SimAnswers answers;
  const MicroBatch batch = RowAt(0, 7, kSimulatedToken);
  const StepResult result = answers.To(batch);
  EXPECT_TRUE(result.sampled[0].is_void);
  EXPECT_EQ(LoadOf(batch, 0, &result).head_rows, 0);
  EXPECT_EQ(LoadOf(batch, 0, &result).rows, 1);
  EXPECT_EQ(LoadOf(batch).head_rows, 1);
}

}  // namespace
}  // namespace stagecoach
