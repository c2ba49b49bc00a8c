// What a running job costs: memory of a stage, its CPUs, how often an idle rank wakes up.

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "common/host/host_info.h"
#include "common/transport/wait_ladder.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_model.h"

namespace stagecoach::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
std::string BatchLine(int id, int max_tokens) {
  return BatchInputLine(std::to_string(id),
                        {{"prompt", "The king of Assyria"}, {"max_tokens", max_tokens}, {"temperature", 0}});
}

TEST(Resources, AStageStaysWithinItsWeightsItsPoolAndWhatItAnnounced) {
  // A model large enough that a second copy of its weights would break the bound: 170 MB of float weights over two
  // stages.
  const TempDir dir;
  const std::string model = WriteTinyModel(dir.File("large.gguf"), {.layers = 8,
                                                                    .hidden = 1024,
                                                                    .heads = 8,
                                                                    .kv_heads = 4,
                                                                    .head_dim = 128,
                                                                    .ffn = 2048,
                                                                    .vocab = 4096,
                                                                    .context = 512,
                                                                    .type = TensorType::kF16});
  const Words words = WordsOf("generate --pp 2 -p abcdef -n 400 --output json --ignore-eos --kv-cache-memory 64M -t 2");
  Subprocess front(CoordinatorProgram(), Joined(words, {"-m", model}));
  std::vector<uint64_t> peak(2, 0);
  const std::vector<ProcessInfo> stages = AwaitDescendants(front.pid(), "stage_worker", 2, 30);
  ASSERT_EQ(stages.size(), 2u);
  const auto ended = [&] {
    for (size_t i = 0; i < stages.size(); ++i) peak[i] = std::max(peak[i], PeakResidentBytesOf(stages[i].pid));
    return !IsAlive(front.pid());
  };
  EXPECT_TRUE(front.WaitUntil(ended, 600));
  const ProgramResult result = front.Wait();
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json answer = Json::parse(result.out);
  ASSERT_EQ(answer["stages"].size(), 2u);
  for (const Json& stage : answer["stages"]) {
    const size_t index = stages[0].pid == stage["pid"].get<pid_t>() ? 0 : 1;
    const uint64_t owned = stage["weight_bytes"].get<uint64_t>() * 11 / 10 + stage["kv_bytes"].get<uint64_t>();
    EXPECT_GT(stage["weight_bytes"].get<uint64_t>(), 20 * kMiB);
    EXPECT_GT(peak[index], stage["weight_bytes"].get<uint64_t>());
    EXPECT_LE(peak[index], owned + stage["scratch_bytes"].get<uint64_t>() + 64 * kMiB) << stage.dump();
    EXPECT_LE(stage["scratch_bytes"].get<uint64_t>(), 256 * kMiB);
    EXPECT_LT(stage["tensor_bytes_read"].get<uint64_t>(), 120 * kMiB) << "no stage reads another's layers";
  }
}

// The CPUs of each stage of a short job.
std::vector<std::vector<int>> CpusOfStages(const Words& options) {
  std::vector<std::vector<int>> cpus;
  const Json answer = CoordinatorJson(Joined(WordsOf("generate -m MODEL -p x -n 2 --output json"), options));
  for (const Json& stage : answer["stages"]) cpus.push_back(stage["cpus"].get<std::vector<int>>());
  return cpus;
}

TEST(CpuSets, AreDisjointWhereThereAreEnoughCpusAndEmptyOtherwise) {
  std::set<int> cores;
  for (const CpuPlace& place : AllowedCpuPlaces()) cores.insert(place.core);
  const size_t cpus = AllowedCpus().size();
  const bool ours = static_cast<size_t>(AllowedCores()) == cpus;  // no quota
  const std::vector<std::vector<int>> none(2);

  std::vector<std::vector<int>> stages = CpusOfStages({"--pp", "2", "-t", "1"});
  if (ours && cores.size() >= 2 && cpus >= 4) {
    ASSERT_EQ(stages.size(), 2u);
    std::vector<int> both;
    std::set_intersection(stages[0].begin(), stages[0].end(), stages[1].begin(), stages[1].end(),
                          std::back_inserter(both));
    EXPECT_GE(stages[0].size(), 2u);
    EXPECT_GE(stages[1].size(), 2u);
    EXPECT_TRUE(both.empty()) << "CPU " << both[0] << " is in both sets";
  } else {
    EXPECT_EQ(stages, none);
  }
  EXPECT_EQ(CpusOfStages({"--pp", "2", "-t", std::to_string(cpus)}), none) << "twice as many threads as CPUs";
  EXPECT_EQ(CpusOfStages({"--pp", "2", "--cpu-bind", "none"}), none);
  if (!ours || cores.size() < 2) GTEST_SKIP() << "binding needs two cores without a quota";
  stages = CpusOfStages({"--pp", "1", "-t", std::to_string(cores.size())});
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(std::set<int>(stages[0].begin(), stages[0].end()).size(), cores.size()) << "a CPU for each thread";
}

TEST(Resources, AShortageOfMemoryOrThreadsIsOneFinalErrorThatSaysWhatToLower) {
  struct Case {
    const char* limit_kib;
    const char* words;
    const char* text;
  };
  for (const Case& c : {Case{"2500000", "--max-num-batched-tokens 65536", "lower --max-num-batched-tokens"},
                        Case{"4000000", "--threads 1000", "lower --threads"}}) {
    const Words generate = Joined(WordsOf("generate -m MODEL -p x -n 4 --micro-batches 64"), WordsOf(c.words));
    EXPECT_THAT(
        RunProgram("sh", Joined({"-c", "ulimit -v $0; exec \"$@\"", c.limit_kib, CoordinatorProgram()}, generate)),
        EndsWithCode(2, AllOf(HasSubstr(c.text), Not(HasSubstr("launching it again")))));
  }
}

class IdleJob : public ::testing::Test {
 protected:
  // A batch whose input pipe pauses: the job is up and has nothing to do.
  IdleJob() : front_(CoordinatorProgram(), Batch("-", dir_.File("out.jsonl"), {"--pp", "3"})) {}

  void AwaitAnswers(int64_t count) {
    EXPECT_TRUE(ComesTrue([&] { return LinesIn(dir_.File("out.jsonl")) == count; }, absl::Seconds(60))) << front_.err();
  }

  TempDir dir_;
  Subprocess front_;
};

// What an idle rank costs is how often it wakes up; what a wake-up does is asserted by the tests of WaitPolicy, of the
// MPI endpoint and of the stage's loop. The price in processor time is measured by tests/bench/idle_bench.
TEST_F(IdleJob, WakesUpAsRarelyAsTheWaitPolicySaysAndAnswersStill) {
  front_.Write(BatchLine(0, 4));
  AwaitAnswers(1);
  const double idle_since = Now();  // or a little before
  SleepFor(2);
  std::vector<ProcessInfo> stages = DescendantsNamed(front_.pid(), "stage_worker");
  ASSERT_EQ(stages.size(), 3u);
  const std::vector<ProcessInfo> engines = DescendantsNamed(front_.pid(), "coordinator engine");
  ASSERT_EQ(engines.size(), 1u);
  const auto sleeps = [&](const std::vector<ProcessInfo>& processes) {
    std::vector<uint64_t> counts;
    for (const ProcessInfo& process : processes) counts.push_back(SchedulingCountsOf(process.pid).sleeps);
    return counts;
  };
  const double begin = Now();
  const std::vector<uint64_t> stages_before = sleeps(stages), engine_before = sleeps(engines);
  SleepFor(3);
  const std::vector<uint64_t> stages_after = sleeps(stages), engine_after = sleeps(engines);
  const double seconds = Now() - begin;

  const double shortest_sleep_s = (begin - idle_since) / WaitPolicy::kIdleShare;
  for (size_t i = 0; i < stages.size(); ++i) {
    const uint64_t count = stages_after[i] - stages_before[i];
    EXPECT_GT(count, 0u) << "stage " << i << " sends no heartbeats";
    // A fourth more for threads of the MPI library, and for signals.
    EXPECT_LT(static_cast<double>(count), 20 + 1.25 * seconds / shortest_sleep_s)
        << "stage " << i << " in " << seconds << " s, with sleeps of " << shortest_sleep_s << " s and longer";
  }
  // It sleeps on the front's socket, and looks for heartbeats four times a second.
  EXPECT_LT(static_cast<double>(engine_after[0] - engine_before[0]), 10 + 1.25 * 4 * seconds);

  front_.Write(BatchLine(1, 1));
  AwaitAnswers(2);
  EXPECT_EQ(front_.Wait(30).exit_code, 0) << front_.err();
}

}  // namespace
}  // namespace stagecoach::testing
