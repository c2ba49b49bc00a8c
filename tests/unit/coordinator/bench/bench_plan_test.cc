#include "coordinator/bench/bench_plan.h"

#include "coordinator/schedule/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(const std::vector<BenchTest>& tests) {
  std::vector<std::string> names;
  for (const BenchTest& test : tests) names.push_back(test.Name());
  return names;
}

TEST(BenchTests, AreThePromptsAndTheProductOfTheDecodeLists) {
  BenchLists lists;
  lists.prompts = {128, 512};
  lists.generated = {64};
  lists.depths = {0, 2048};
  lists.sequences = {1, 8};
  EXPECT_THAT(NamesOf(TestsOf(lists)),
              ElementsAre("pp128", "pp512", "tg64", "tg64 x8", "tg64 @ d2048", "tg64 @ d2048 x8"));
}

TEST(BenchTests, LeaveOutWhatIsZero) {
  BenchLists lists;
  lists.prompts = {0};
  EXPECT_THAT(NamesOf(TestsOf(lists)), ElementsAre("tg128"));
  lists.generated = {0};
  EXPECT_THAT(TestsOf(lists), IsEmpty());
}

TEST(BenchTests, CountTheTokensWhoseRateIsGiven) {
  const BenchTest prefill = {.prompt = 512}, decode = {.generated = 64, .depth = 100, .sequences = 8};
  EXPECT_EQ(prefill.tokens(), 512);
  EXPECT_EQ(prefill.prompt_tokens(), 512);
  EXPECT_EQ(decode.tokens(), 512);
  EXPECT_EQ(decode.prompt_tokens(), 101);  // its first token is the prompt's: depth 100 comes before the second
}

TEST(BenchJobs, AreTheProductOfModelsStagesAndThreads) {
  BenchLists lists;
  lists.models = {"a", "b"};
  lists.stages = {1, 2};
  lists.threads = {4, 2};
  const std::vector<BenchJob> jobs = JobsOf(lists);
  ASSERT_EQ(jobs.size(), 8u);
  EXPECT_EQ(jobs[1].model, "a");
  EXPECT_EQ(jobs[1].stages, 1);
  EXPECT_EQ(jobs[1].threads, 2);
  EXPECT_EQ(jobs[2].stages, 2);
  EXPECT_EQ(jobs[4].model, "b");
}

// So steep a cost of attention that chunks of equal time are as small as they ever are.
int64_t SteepTimeUs(const MicroBatch& batch) {
  int64_t us = 0;
  for (const SequenceSlice& slice : batch.slices) {
    us += int64_t{1000} * slice.count + int64_t{100} * slice.count * (slice.count + 2 * slice.start);
  }
  return us;
}

struct Start {
  int64_t least_left = 0;     // of the tokens that any sequence may still produce
  int64_t micro_batches = 0;  // that it took
};

// Runs a test through the real scheduler, with results that come at once, until the last sequence has its first token.
Start StartOf(const BenchTest& test, const BenchScheduling& scheduling) {
  SchedulerOptions options;
  options.max_num_seqs = static_cast<int32_t>(test.sequences);
  options.max_num_batched_tokens = static_cast<int32_t>(scheduling.max_num_batched_tokens);
  options.prefill_chunk = static_cast<int32_t>(scheduling.prefill_chunk);
  options.policy = scheduling.policy;
  options.chunking = scheduling.chunking;
  if (scheduling.policy == Policy::kThrottled) options.slo_itl_us = 1;  // no gap that it could keep: the least rows
  options.micro_batches = static_cast<int32_t>(scheduling.micro_batches);
  options.context = ContextOf(test, scheduling);
  options.group_blocks = {static_cast<int32_t>(BlocksOf(test, scheduling, options.block_tokens))};
  options.max_open_tokens = std::max<int64_t>(options.context, 16384);
  Scheduler scheduler(options);
  for (int64_t i = 0; i < test.sequences; ++i) {
    SequenceSpec spec;
    spec.id = static_cast<SequenceId>(i + 1);
    spec.prompt.assign(static_cast<size_t>(test.prompt_tokens()), 1);
    spec.max_new_tokens = MaxNewTokens(test, scheduling);
    EXPECT_TRUE(scheduler.Add(spec).ok());
  }
  std::vector<int64_t> produced(static_cast<size_t>(test.sequences));
  std::deque<MicroBatch> in_flight;
  while (*std::min_element(produced.begin(), produced.end()) == 0) {
    while (auto batch = scheduler.Next()) in_flight.push_back(*batch);
    StepResult result;
    result.number = in_flight.front().number;
    for (const SequenceSlice& slice : in_flight.front().slices) {
      if (!slice.sample) continue;
      result.sampled.push_back({.sequence = slice.sequence, .position = slice.start + slice.count, .token = 2});
      ++produced[slice.sequence - 1];
    }
    EXPECT_TRUE(scheduler.Confirm(result).ok());
    scheduler.ObserveStepTime(in_flight.front(), SteepTimeUs(in_flight.front()));
    in_flight.pop_front();
  }
  EXPECT_EQ(scheduler.counters().preemptions, 0u);
  return {MaxNewTokens(test, scheduling) - *std::max_element(produced.begin(), produced.end()),
          static_cast<int64_t>(scheduler.counters().micro_batches)};
}

TEST(MaxNewTokens, LeavesEverySequenceTheCountedTokensWhenTheLastPromptIsThrough) {
  for (const auto& [policy, name] : kPolicies) {
    for (int64_t sequences : {1, 8, 32}) {
      for (int64_t depth : {0, 40, 700}) {
        for (int64_t micro_batches : {1, 3}) {
          const BenchTest test = {.generated = 16, .depth = depth, .sequences = sequences};
          for (const auto& [chunking, cut] : kChunkings) {
            const BenchScheduling scheduling = {policy, 128, 96, micro_batches, chunking};
            EXPECT_GT(StartOf(test, scheduling).least_left, 16)
                << name << " " << cut << " " << test.Name() << " " << micro_batches << " micro-batches";
          }
        }
      }
    }
  }
}

// However the rows of a micro-batch, its chunks and the sequences that decode in it stand to each other.
TEST(MaxNewTokens, LeavesThemWhereChunksShrinkAndMicroBatchesAreFullOfDecodeRows) {
  const struct {
    int64_t budget, chunk, depth;
  } kCuts[] = {{8, 512, 100}, {9, 32, 100}, {70, 512, 700}, {300, 100, 1500}, {512, 512, 1500}};
  for (const auto& [policy, name] : kPolicies) {
    for (const auto& [budget, chunk, depth] : kCuts) {
      for (int64_t micro_batches : {1, 3}) {
        const BenchTest test = {.generated = 16, .depth = depth, .sequences = 8};
        std::map<Chunking, int64_t> taken;  // micro-batches
        for (const auto& [chunking, cut] : kChunkings) {
          const Start start = StartOf(test, {policy, budget, chunk, micro_batches, chunking});
          EXPECT_GT(start.least_left, 16) << name << ", " << budget << " rows, " << cut << " chunks of " << chunk
                                          << ", " << micro_batches << " micro-batches";
          taken[chunking] = start.micro_batches;
        }
        if (policy != Policy::kPrefillFirst || std::min(budget, chunk) < 2 * kEqualTimeLeastRows) continue;
        EXPECT_GT(taken[Chunking::kEqualTime], 2 * taken[Chunking::kConstant]) << "chunks did not shrink";
      }
    }
  }
}

TEST(CheckFits, NamesTheTestThatIsTooLongForTheModel) {
  const BenchScheduling scheduling;
  EXPECT_TRUE(CheckFits({{.prompt = 1023}}, scheduling, "m", 1024).ok());
  const absl::Status prompt = CheckFits({{.prompt = 64}, {.prompt = 2048}}, scheduling, "m", 1024);
  EXPECT_EQ(prompt.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompt.message()), HasSubstr("-p: pp2048 needs 2049 tokens of context, but 'm' has 1024"));
  const absl::Status depth = CheckFits({{.generated = 64, .depth = 1000}}, scheduling, "m", 1024);
  EXPECT_THAT(std::string(depth.message()), HasSubstr("-d, -n: tg64 @ d1000 needs"));
}

}  // namespace
}  // namespace stagecoach
