#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/json/json_value.h"
#include "coordinator/bench/bench_measure.h"
#include "coordinator/bench/bench_plan.h"
#include "coordinator/bench/bench_report.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/bench/fake_engine.h"

namespace stagecoach {
namespace {

std::vector<std::string> NamesOf(const std::vector<BenchTest>& tests) {
  std::vector<std::string> names;
  for (const BenchTest& test : tests) names.push_back(test.Name());
  return names;
}

TEST(BenchTests, AreThePromptsAndTheProductOfTheDecodeLists) {
  BenchLists lists = {.prompts = {128, 512}, .generated = {64}, .depths = {0, 2048}, .sequences = {1, 8}};
  EXPECT_THAT(NamesOf(TestsOf(lists)),
              ElementsAre("pp128", "pp512", "tg64", "tg64 x8", "tg64 @ d2048", "tg64 @ d2048 x8"));
  lists.equal_sequences = true;
  EXPECT_THAT(NamesOf(TestsOf(lists)),
              ElementsAre("pp128", "pp512", "tg64", "tg64 x8 equal", "tg64 @ d2048", "tg64 @ d2048 x8 equal"));
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
  BenchLists lists = {.models = {"a", "b"}, .stages = {1, 2}, .threads = {4, 2}};
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

JobSettings Scheduling(Policy policy = Policy::kPrefillFirst, int64_t budget = 512, int64_t chunk = 512,
                       int64_t micro_batches = 1, Chunking chunking = Chunking::kConstant) {
  JobSettings settings;
  settings.policy = policy;
  settings.max_num_batched_tokens = budget;
  settings.prefill_chunk = chunk;
  settings.micro_batches = micro_batches;
  settings.chunking = chunking;
  return settings;
}

// Runs a test through the real scheduler, with results that come at once, until the last sequence has its first token.
Start StartOf(const BenchTest& test, const JobSettings& scheduling) {
  SchedulerOptions options;
  options.max_num_seqs = static_cast<int32_t>(test.sequences);
  options.max_num_batched_tokens = static_cast<int32_t>(scheduling.max_num_batched_tokens);
  options.prefill_chunk = static_cast<int32_t>(scheduling.prefill_chunk);
  options.policy = scheduling.policy;
  options.chunking = scheduling.chunking;
  options.prefix_caching = false;
  if (scheduling.policy == Policy::kThrottled) options.slo_itl_s = 1e-6;  // no gap that it could keep: the least rows
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
            const JobSettings scheduling = Scheduling(policy, 128, 96, micro_batches, chunking);
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
          const Start start = StartOf(test, Scheduling(policy, budget, chunk, micro_batches, chunking));
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
  const JobSettings scheduling = Scheduling();
  EXPECT_TRUE(CheckFits({{.prompt = 1023}}, scheduling, "m", 1024).ok());
  const absl::Status prompt = CheckFits({{.prompt = 64}, {.prompt = 2048}}, scheduling, "m", 1024);
  EXPECT_EQ(prompt.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(prompt.message(), HasSubstr("-p: pp2048 needs 2049 tokens of context, but 'm' has 1024"));
  const absl::Status depth = CheckFits({{.generated = 64, .depth = 1000}}, scheduling, "m", 1024);
  EXPECT_THAT(depth.message(), HasSubstr("-d, -n: tg64 @ d1000 needs"));
}

constexpr char kReport[] = R"({"valid": true, "isa": "avx2", "cpu": "X", "comparisons": 7, "differences": [],
  "peak_of_type": {"Q8_0": "int8", "F32": "f32"}, "peaks": [
  {"threads": 1, "read_gbps": 10, "int8_gops": 100, "bf16_gops": 0, "f32_gops": 50},
  {"threads": 4, "read_gbps": 20, "int8_gops": 400, "bf16_gops": 0, "f32_gops": 200}]})";

TEST(KernelReport, IsReadFromTheLineOfTheStageProgram) {
  const KernelReport report = ParseKernelReport(kReport).value();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(report.isa, "avx2");
  EXPECT_EQ(report.comparisons, 7);
  ASSERT_EQ(report.peaks.size(), 2u);
  EXPECT_EQ(report.peaks[1].gops.at("int8"), 400);
  EXPECT_EQ(report.peak_of_type.at("Q8_0"), "int8");
}

TEST(KernelReport, ThatCannotBeReadIsAnError) {
  for (const char* text : {"", "{}", "no report", R"({"valid": "yes"})"}) {
    EXPECT_THAT(ParseKernelReport(text).status(), StatusIs(absl::StatusCode::kInternal, HasSubstr("cannot be read")))
        << text;
  }
}

TEST(KernelReport, GivesThePeaksOfAsManyThreads) {
  const KernelReport report = ParseKernelReport(kReport).value();
  EXPECT_EQ(report.PeaksOf(1)->threads, 1);
  EXPECT_EQ(report.PeaksOf(3), nullptr);
  EXPECT_EQ(report.PeaksOf(4)->threads, 4);
  EXPECT_EQ(KernelReport().PeaksOf(1), nullptr);
}

// 1 GB of weights, 2 GOP of int8 matrices and 0.5 GOP of a float head a row, 1 MOP of attention a position.
ModelWork Work() {
  ModelWork work;
  work.weights = {.bytes_kept = 1e9};
  work.kv_token_bytes = 1e5;
  work.layer_ops = {{"Q8_0", 2e9}};
  work.head_ops = {{"F32", 0.5e9}};
  work.attention_ops = 1e6;
  return work;
}

TEST(Rates, OfDecodeCountTheWeightsOncePerPassAndTheContextOncePerToken) {
  const KernelReport report = ParseKernelReport(kReport).value();
  const BenchTest test = {.generated = 5, .depth = 100, .sequences = 2};
  const BenchSample sample = {1'000'000, 10, 5, 1000};
  const Rates rates = RatesOf(Work(), test, sample, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.read_gbps, 5 + 0.1);
  EXPECT_DOUBLE_EQ(rates.read_share, 0.51);
  EXPECT_DOUBLE_EQ(rates.gops, 20 + 5 + 1);
  EXPECT_DOUBLE_EQ(rates.matrix_gops, 20 + 5);
  EXPECT_DOUBLE_EQ(rates.peak_share, 20.0 / 100 + 5.0 / 50 + 1.0 / 50);
}

TEST(Rates, OfExpertsCountThoseThatTheRowsOfAPassChoose) {
  const KernelReport report = ParseKernelReport(kReport).value();
  ModelWork work = Work();
  work.weights = {.bytes_kept = 1e9, .expert_bytes = 0.8e9, .expert_share = 0.25};
  const BenchTest test = {.generated = 5, .sequences = 2};
  const Rates rates = RatesOf(work, test, {1'000'000, 10, 5, 0}, report, report.PeaksOf(1));  // 2 rows a pass
  EXPECT_DOUBLE_EQ(rates.read_gbps, 5 * (0.2 + 0.8 * (1 - 0.75 * 0.75)));
  const BenchTest equal = {.generated = 5, .sequences = 2, .equal = true};  // which choose what one of them does
  const Rates of_one = RatesOf(work, equal, {1'000'000, 10, 5, 0}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(of_one.read_gbps, 5 * (0.2 + 0.8 * 0.25));
}

TEST(Rates, OfLayersWithAWindowEndThere) {
  const KernelReport report = ParseKernelReport(kReport).value();
  ModelWork work = Work();
  work.weights = {};
  work.window = 50;
  work.window_kv_token_bytes = 1e6;
  const BenchTest test = {.generated = 10, .depth = 100, .sequences = 1};
  const Rates rates = RatesOf(work, test, {1'000'000, 10, 10, 1000}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.read_gbps, 0.1 + 10 * 50 * 1e-3);
}

TEST(Rates, OfLayersWithAStateReadItForEveryTokenWhateverTheContext) {
  const KernelReport report = ParseKernelReport(kReport).value();
  ModelWork work = {.state_bytes = 1e8, .state_ops = 2e9};
  const BenchTest test = {.generated = 5, .depth = 100, .sequences = 2};
  const Rates decode = RatesOf(work, test, {1'000'000, 10, 5, 1000}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(decode.read_gbps, 10 * 0.1);
  EXPECT_DOUBLE_EQ(decode.gops, 10 * 2.0);
  const Rates prompt = RatesOf(work, {.prompt = 4}, {1'000'000, 4}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(prompt.gops, 4 * 2.0);
  EXPECT_DOUBLE_EQ(prompt.peak_share, 8.0 / 50);
}

TEST(Rates, OfAPromptRunTheHeadOnceAndAttendToWhatCameBefore) {
  const KernelReport report = ParseKernelReport(kReport).value();
  const BenchTest test = {.prompt = 4};
  const Rates rates = RatesOf(Work(), test, {1'000'000, 4}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.gops, 8 + 0.5 + 0.01);
  EXPECT_DOUBLE_EQ(rates.peak_share, 8.0 / 100 + 0.51 / 50);
  EXPECT_EQ(rates.read_gbps, 0);
}

TEST(Rates, HaveNoSharesWithoutPeaks) {
  const Rates rates = RatesOf(Work(), {.generated = 1}, {1'000'000, 1, 1, 10}, KernelReport(), nullptr);
  EXPECT_GT(rates.gops, 0);
  EXPECT_EQ(rates.read_share, 0);
  EXPECT_EQ(rates.peak_share, 0);
}

TEST(DecodeWindow, CountsFromTheLastFirstTokenOn) {
  DecodeWindow window(2, 4, 100);
  window.Note(1, 100, 1, 10);
  window.Note(1, 150, 1, 11);  // beside the other's prompt
  window.Note(2, 200, 1, 10);  // all have started
  window.Note(1, 300, 1, 12);
  window.Note(2, 300, 1, 11);
  window.Note(1, 400, 1, 13);
  window.Note(2, 400, 1, 12);
  EXPECT_FALSE(window.done());  // more of that result may come
  window.Note(1, 500, 1, 14);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 200);
  EXPECT_EQ(window.sample().tokens, 4);
  EXPECT_EQ(window.sample().passes, 2);
  EXPECT_EQ(window.sample().positions, 12 + 11 + 13 + 12);
}

TEST(DecodeWindow, LeavesOutTheOtherTokensOfTheResultThatStartsIt) {
  DecodeWindow window(2, 1, 100);
  window.Note(1, 100, 1, 5);
  window.Note(2, 200, 1, 5);
  window.Note(1, 200, 1, 6);
  window.Note(1, 260, 1, 7);
  window.Note(1, 300, 1, 8);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().us, 60);
  EXPECT_EQ(window.sample().tokens, 1);
  EXPECT_EQ(window.sample().passes, 1);
}

TEST(DecodeWindow, CountsAResultWholeEvenWhenFewerTokensWereWanted) {
  DecodeWindow window(1, 1, 100);
  window.Note(1, 10, 1, 1);
  window.Note(1, 20, 3, 4);
  window.Note(1, 30, 1, 5);
  ASSERT_TRUE(window.done());
  EXPECT_EQ(window.sample().tokens, 3);
  EXPECT_EQ(window.sample().positions, 4 + 3 + 2);
  window.Note(1, 40, 1, 6);  // nothing is counted any more
  EXPECT_EQ(window.sample().tokens, 3);
}

TEST(DecodeWindow, EndsWithTheFirstSequenceThatDoes) {
  DecodeWindow window(2, 8, 100);
  window.Note(1, 100, 1, 10);
  window.Note(2, 100, 1, 10);
  for (int step = 1; step <= 2; ++step) {
    window.Note(1, 100 + 50 * step, 1, 10 + step);
    window.Note(2, 100 + 50 * step, 1, 10 + step);
  }
  window.Ended();
  ASSERT_TRUE(window.done());
  EXPECT_FALSE(window.missed());
  EXPECT_EQ(window.sample().us, 100);
  EXPECT_EQ(window.sample().tokens, 4);
  EXPECT_EQ(window.sample().passes, 2);
  window.Ended();
  EXPECT_FALSE(window.missed());
}

TEST(DecodeWindow, IsMissedWhenOneEndsBeforeTheLastHasBegunOrSoonAfter) {
  DecodeWindow never(2, 8, 100);
  never.Note(1, 100, 1, 10);
  never.Ended();
  EXPECT_TRUE(never.missed());
  EXPECT_FALSE(never.done());
  DecodeWindow soon(2, 8, 100);
  soon.Note(1, 100, 1, 10);
  soon.Note(2, 100, 1, 10);
  soon.Note(1, 150, 3, 13);
  soon.Ended();
  EXPECT_TRUE(soon.missed());
  EXPECT_FALSE(soon.done());
}

TEST(DecodeWindow, IsMissedWhenOneIsTooFarAheadWhenTheLastBegins) {
  DecodeWindow window(2, 8, 3);
  window.Note(1, 100, 3, 12);
  EXPECT_FALSE(window.missed());
  window.Note(1, 110, 1, 13);
  EXPECT_TRUE(window.missed());
  window.Note(2, 120, 1, 10);
  EXPECT_FALSE(window.done());
}

TEST(BenchRunner, MeasuresAgainWhatEndedBeforeTheLastSequenceHadBegun) {
  const BenchTest test = {.generated = 4, .depth = 3, .sequences = 2};
  const JobSettings scheduling = Scheduling();
  const int64_t most = MaxNewTokens(test, scheduling);
  int submitted = 0;
  FakeEngine engine;
  const auto run = engine.Join();
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (!message.has_submit()) return;
    ++submitted;
    if (submitted == 1) {  // all of it, before the second is looked at
      for (int64_t i = 0; i < most; ++i) engine.Token(1, 10 + i);
      engine.Finish(1, pb::RequestFinished::REASON_LENGTH);
    }
    if (submitted < 4) return;
    for (int64_t i = 0; i < most; ++i) {
      engine.Token(3, 1000 + 100 * i);
      engine.Token(4, 1000 + 100 * i);
    }
  });
  BenchRunner runner(run.get(), scheduling, /*vocab=*/100, SamplingParams());
  ASSERT_TRUE(run->AwaitReady().ok());
  const BenchSample sample = runner.Run(test).value();
  EXPECT_EQ(sample.tokens, 8);
  EXPECT_EQ(sample.us, 400);
  EXPECT_EQ(sample.passes, 4);
}

TEST(BenchRunner, GivesSequencesTheirOwnTokensUnlessTheyShallBeEqual) {
  for (bool equal : {false, true}) {
    const BenchTest test = {.generated = 1, .depth = 20, .sequences = 2, .equal = equal};
    FakeEngine engine;
    const auto run = engine.Join();
    std::vector<std::vector<int32_t>> prompts;
    engine.Play([&](const pb::EngineMessage& message) {
      if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
      if (!message.has_submit()) return;
      const auto& prompt = message.submit().prompt();
      prompts.emplace_back(prompt.begin(), prompt.end());
      for (int64_t i = 0; prompts.size() == 2 && i < 3; ++i) {
        for (uint64_t request : {1, 2}) engine.Token(request, 1000 + 100 * i);
      }
    });
    BenchRunner runner(run.get(), Scheduling(), /*vocab=*/100, SamplingParams());
    ASSERT_TRUE(run->AwaitReady().ok());
    ASSERT_TRUE(runner.Run(test).ok());
    ASSERT_EQ(prompts.size(), 2u);
    EXPECT_EQ(prompts[0].size(), 21u);
    EXPECT_EQ(prompts[0] == prompts[1], equal);
  }
}

TEST(BenchRunner, SaysSoWhenItsSequencesNeverDecodeTogether) {
  FakeEngine engine;
  const auto run = engine.Join();
  const BenchTest test = {.generated = 4, .depth = 3, .sequences = 2};
  engine.Play([&](const pb::EngineMessage& message) {
    if (message.has_cancel()) return engine.Finish(message.cancel().request(), pb::RequestFinished::REASON_CANCELLED);
    if (!message.has_submit() || message.submit().request() % 2 == 0) return;
    for (int64_t i = 0; i < message.submit().max_new_tokens(); ++i) engine.Token(message.submit().request(), i);
    engine.Finish(message.submit().request(), pb::RequestFinished::REASON_LENGTH);
  });
  BenchRunner runner(run.get(), Scheduling(), /*vocab=*/100, SamplingParams());
  ASSERT_TRUE(run->AwaitReady().ok());
  EXPECT_THAT(runner.Run(test).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("tg4 @ d3 x2: in 20 attempts")));
}

BenchRecord Prefill() {
  BenchRecord record;
  record.build = "1.2.3";
  record.cpu_info = "A \"fast\" CPU";
  record.isa = "avx2";
  record.model_filename = "m.gguf";
  record.model.type = "qwen3 0.6B Q8_0";
  record.model.bytes = 604 << 20;
  record.model.elements = 596'049'920;
  record.n_batch = 512;
  record.n_ubatch = 256;
  record.n_threads = 2;
  record.n_stages = 1;
  record.type_kv = "f16";
  record.test = {.prompt = 512};
  record.test_time = "2024-02-29T12:00:00Z";
  record.samples = {{1'000'000, 512}, {2'000'000, 512}};
  record.rates = {{0, 0, 450, 0.5}, {0, 0, 225, 0.25}};
  record.checked = true;
  return record;
}

BenchRecord Decode() {
  BenchRecord record = Prefill();
  record.test = {.generated = 64, .depth = 100, .sequences = 8};
  record.samples = {{2'000'000, 516, 70, 1000}};  // a few tokens more than asked for
  record.rates = {{30, 0.9, 100, 0.1}};
  return record;
}

// The whole result of both.
std::string Print(BenchFormat format) {
  BenchWriter writer(format);
  std::string text = writer.Row(Prefill());
  text += writer.Row(Decode());
  return text + writer.End();
}

TEST(Summarize, GivesTheMeanAndTheDeviationOfASample) {
  const MeanAndDeviation four = Summarize({2, 4, 4, 6});
  EXPECT_DOUBLE_EQ(four.mean, 4);
  EXPECT_DOUBLE_EQ(four.deviation, std::sqrt(8.0 / 3));
  EXPECT_DOUBLE_EQ(Summarize({7}).mean, 7);
  EXPECT_DOUBLE_EQ(Summarize({7}).deviation, 0);
  EXPECT_DOUBLE_EQ(Summarize({}).mean, 0);
}

TEST(SamplingText, NamesWhatDiffersFromGreedy) {
  EXPECT_EQ(SamplingText({}), "greedy");
  EXPECT_EQ(SamplingText({.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 3}),
            "temp 0.7, top-k 40, top-p 0.95, min-p 0.05, seed 3");
  EXPECT_EQ(
      SamplingText({.repeat_penalty = 1.1f, .presence_penalty = 0.5f, .frequency_penalty = -1, .repeat_last_n = -1}),
      "repeat-penalty 1.1, repeat-last-n -1, presence-penalty 0.5, frequency-penalty -1");
}

TEST(BenchTable, HasAHeadingOnceAndARowForEachTest) {
  const std::string text = Print(BenchFormat::kMarkdown);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], StartsWith("| model "));
  EXPECT_THAT(lines[1], HasSubstr("-: |"));
  EXPECT_THAT(lines[2], HasSubstr("| qwen3 0.6B Q8_0 "));
  EXPECT_THAT(lines[2], HasSubstr("604.00 MiB |"));
  EXPECT_THAT(lines[2], HasSubstr("596.05 M |"));
  EXPECT_THAT(lines[2], HasSubstr(" pp512 |"));
  EXPECT_THAT(lines[2], HasSubstr("384.00 ± 181.02 |"));
  EXPECT_THAT(lines[2], HasSubstr(" 337.5 |    38 |"));
  EXPECT_THAT(lines[3], HasSubstr(" tg64 @ d100 x8 |"));
  EXPECT_THAT(lines[3], HasSubstr("258.00 ± 0.00 |"));
  EXPECT_THAT(lines[3], HasSubstr(" 30.0 |   90 |"));
}

TEST(BenchTable, ShowsNoSharesOfAHostThatDidNotRunIt) {
  BenchRecord record = Decode();
  record.checked = false;
  EXPECT_THAT(BenchWriter(BenchFormat::kMarkdown).Row(record), HasSubstr(" 30.0 |    - |   100.0 |     - |"));
  EXPECT_TRUE(BenchRecordJson(record, true)["read_share"].is_null());
}

TEST(BenchJson, IsAnArrayOfRecordsWithTheKnownNames) {
  const Json all = Json::parse(Print(BenchFormat::kJson));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["n_prompt"], 512);
  EXPECT_EQ(all[0]["n_gen"], 0);
  EXPECT_EQ(all[0]["avg_ts"], 384.0);
  EXPECT_EQ(all[0]["avg_ns"], 1'500'000'000);
  EXPECT_THAT(all[0]["samples_ns"], ElementsAre(1'000'000'000, 2'000'000'000));
  EXPECT_THAT(all[0]["samples_ts"], ElementsAre(512.0, 256.0));
  EXPECT_TRUE(all[0]["read_gbps"].is_null());
  EXPECT_EQ(all[0]["peak_share"], 0.375);
  EXPECT_EQ(all[1]["n_gen"], 64);
  EXPECT_EQ(all[1]["n_depth"], 100);
  EXPECT_EQ(all[1]["n_parallel"], 8);
  EXPECT_EQ(all[1]["read_share"], 0.9);
  EXPECT_EQ(all[1]["avg_ts"], 258.0);
  EXPECT_EQ(all[1]["avg_ns"], 1984496124);  // of 512 tokens at that rate
}

TEST(BenchJson, OfNoTestIsAnEmptyArray) { EXPECT_TRUE(Json::parse(BenchWriter(BenchFormat::kJson).End()).empty()); }

TEST(BenchJsonLines, HasOneRecordALine) {
  const std::string text = Print(BenchFormat::kJsonLines);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Json::parse(lines[1])["model_type"], "qwen3 0.6B Q8_0");
}

TEST(BenchCsv, HasTheNamesOnceAndQuotesEveryValue) {
  const std::string text = Print(BenchFormat::kCsv);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("build,cpu_info,isa,valid,model_filename,model_type,model_size,model_n_params"));
  EXPECT_THAT(
      lines[0],
      HasSubstr(",n_prompt,n_gen,n_depth,n_parallel,equal_sequences,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,"));
  EXPECT_THAT(lines[1], StartsWith("\"1.2.3\",\"A \"\"fast\"\" CPU\",\"avx2\",\"true\",\"m.gguf\""));
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(lines[2], "\",\"")).size(),
            std::vector<std::string>(absl::StrSplit(lines[0], ',')).size());
}

}  // namespace
}  // namespace stagecoach
