// What a running job costs: memory of a stage, processor time while idle, the way back to work.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/cpu_topology.h"
#include "common/base/host_info.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::ProgramResult;
using testing::Subprocess;

constexpr uint64_t kMiB = 1 << 20;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string BatchLine(int id, int max_tokens) {
  const json line = {{"custom_id", std::to_string(id)},
                     {"method", "POST"},
                     {"url", "/v1/completions"},
                     {"body", {{"prompt", "The king of Assyria"}, {"max_tokens", max_tokens}, {"temperature", 0}}}};
  return line.dump().append("\n");
}

TEST(Resources, AStageStaysWithinItsWeightsItsPoolAndWhatItAnnounced) {
  // A model large enough that a second copy of its weights would break the bound: 170 MB of float weights over two
  // stages.
  const testing::TempDir dir;
  const std::string model = testing::WriteTinyModel(dir.File("large.gguf"), {.layers = 8,
                                                                             .hidden = 1024,
                                                                             .heads = 8,
                                                                             .kv_heads = 4,
                                                                             .head_dim = 128,
                                                                             .ffn = 2048,
                                                                             .vocab = 4096,
                                                                             .context = 512,
                                                                             .type = TensorType::kF16});
  Subprocess front(STAGECOACH_COORDINATOR, {"generate", "-m", model, "--pp", "2", "-p", "abcdef", "-n", "400",
                                            "--output", "json", "--ignore-eos", "--kv-cache-memory", "64M", "-t", "2"});
  std::vector<uint64_t> peak(2, 0);
  const std::vector<testing::ProcessInfo> stages = testing::AwaitDescendants(front.pid(), "stage_worker", 2, 30);
  ASSERT_EQ(stages.size(), 2u);
  while (testing::IsAlive(front.pid())) {
    for (size_t i = 0; i < stages.size(); ++i) peak[i] = std::max(peak[i], testing::PeakResidentBytesOf(stages[i].pid));
    front.WaitForOutput("\x01", 0.01);
  }
  const ProgramResult result = front.Wait();
  ASSERT_EQ(result.exit_code, 0) << result;
  const json answer = json::parse(result.out);
  ASSERT_EQ(answer["stages"].size(), 2u);
  for (const json& stage : answer["stages"]) {
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
std::vector<std::vector<int>> CpusOfStages(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"generate", "-m",  testing::DemoModelPath(), "-p", "x", "-n", "2",
                                        "--output", "json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const ProgramResult result = testing::RunProgram(STAGECOACH_COORDINATOR, arguments);
  EXPECT_EQ(result.exit_code, 0) << result;
  std::vector<std::vector<int>> cpus;
  if (result.exit_code != 0) return cpus;
  const json answer = json::parse(result.out);
  for (const json& stage : answer["stages"]) cpus.push_back(stage["cpus"].get<std::vector<int>>());
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
    const char* option;
    const char* value;
    const char* text;
  };
  for (const Case& c : {Case{"2500000", "--max-num-batched-tokens", "65536", "lower --max-num-batched-tokens"},
                        Case{"4000000", "--threads", "1000", "lower --threads"}}) {
    const ProgramResult result = testing::RunProgram(
        "sh", {"-c", "ulimit -v $0; exec \"$@\"", c.limit_kib, STAGECOACH_COORDINATOR, "generate", "-m",
               testing::DemoModelPath(), "-p", "x", "-n", "4", "--micro-batches", "64", c.option, c.value});
    EXPECT_EQ(result.exit_code, 2) << result;
    EXPECT_NE(result.err.find(c.text), std::string::npos) << result;
    EXPECT_EQ(result.err.find("launching it again"), std::string::npos) << result;
  }
}

class IdleJob : public ::testing::Test {
 protected:
  // A batch whose input pipe pauses: the job is up and has nothing to do.
  IdleJob()
      : front_(STAGECOACH_COORDINATOR, {"batch", "-m", testing::DemoModelPath(), "--pp", "3", "-t", "1", "-i", "-",
                                        "-o", dir_.File("out.jsonl"), "-q"}) {}

  size_t Answers() const {
    const std::string path = dir_.File("out.jsonl");
    if (!std::filesystem::exists(path)) return 0;
    const std::string text = testing::ReadFileOrDie(path);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void AwaitAnswers(size_t count) {
    const double deadline = Now() + 30;
    while (Answers() < count && Now() < deadline) SleepFor(0.0005);
    ASSERT_EQ(Answers(), count) << front_.err();
  }

  testing::TempDir dir_;
  Subprocess front_;
};

TEST_F(IdleJob, CostsUnderThreePercentOfOneCoreAndStillAnswersAtOnce) {
  front_.Write(BatchLine(0, 4));
  AwaitAnswers(1);
  SleepFor(2);  // beyond the second after which everybody sleeps
  const auto cpu = [this] {
    double sum = 0;
    for (const testing::ProcessInfo& process : testing::Descendants(front_.pid())) {
      if (process.command.find("mpirun") == std::string::npos) sum += process.cpu_s;
    }
    return sum;
  };
  ASSERT_EQ(testing::DescendantsNamed(front_.pid(), "stage_worker").size(), 3u);
  const double cpu_before = cpu(), begin = Now();
  SleepFor(10);
  const double share = (cpu() - cpu_before) / (Now() - begin);
  EXPECT_LT(share, 0.03) << "processor time of the engine and three stages, of one core";

  front_.Write(BatchLine(1, 1));
  AwaitAnswers(2);
  EXPECT_EQ(front_.Wait(30).exit_code, 0) << front_.err();
}

}  // namespace
}  // namespace stagecoach
