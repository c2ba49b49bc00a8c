// Ways of splitting the work under MPI: corners of the equality matrix with the real programs, other numbers of stages,
// chunks, threads, blocks and micro-batches, and pools so small that sequences are preempted. Tokens and
// log-probabilities are compared by their exact digits.

#include <sstream>
#include <string>
#include <vector>

#include "common/json/json_value.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::ProgramResult;

std::vector<std::string> Prompts() {
  std::vector<std::string> prompts;
  const std::vector<std::string> starts = {"In the beginning", "And Jesus said unto them", "The king of Assyria",
                                           "LIBERTY, n.",      "Now the LORD had said",    "Blessed are the",
                                           "Hear, O Israel:",  "It came to pass"};
  for (size_t i = 0; i < starts.size(); ++i) {
    std::string prompt;
    for (size_t repeat = 0; repeat <= 3 * i; ++repeat) prompt += starts[(i + repeat) % starts.size()] + " ";
    prompts.push_back(prompt + starts[i]);
  }
  return prompts;
}

// The results without what may differ: times, stages.
json Answers(const std::vector<std::string>& options, size_t sequences, int* preemptions) {
  std::vector<std::string> arguments = {"generate",
                                        "-m",
                                        testing::DemoModelPath(),
                                        "--raw",
                                        "-n",
                                        "80",
                                        "--temp",
                                        "0.9",
                                        "--top-k",
                                        "50",
                                        "--seed",
                                        "5",
                                        "--repeat-penalty",
                                        "1.1",
                                        "--ignore-eos",
                                        "--logprobs",
                                        "3",
                                        "--output",
                                        "json",
                                        "-q"};
  const std::vector<std::string> prompts = Prompts();
  for (size_t i = prompts.size() - sequences; i < prompts.size(); ++i)
    arguments.insert(arguments.end(), {"-p", prompts[i]});
  arguments.insert(arguments.end(), options.begin(), options.end());
  const ProgramResult result = testing::RunProgram(testing::CoordinatorProgram(), arguments, "", 120);
  EXPECT_EQ(result.exit_code, 0) << result;
  const json parsed = json::parse(result.out, nullptr, false);
  if (parsed.is_discarded()) return json();
  json answers = json::array();
  for (const json& answer : sequences == 1 ? json::array({parsed}) : parsed["results"]) {
    answers.push_back({{"tokens", answer["tokens"]}, {"text", answer["text"]}, {"logprobs", answer["logprobs"]}});
  }
  const json& timings = parsed.contains("timings") ? parsed["timings"] : parsed["results"][0]["timings"];
  *preemptions = timings.value("preemptions", 0);
  return answers;
}

TEST(EqualityUnderMpi, ADozenCornersGiveTheSameBitsAsOneStage) {
  int preemptions = 0;
  const json eight = Answers({"--pp", "1", "-t", "1"}, 8, &preemptions);
  ASSERT_EQ(eight.size(), 8u);
  ASSERT_EQ(eight[7]["tokens"].size(), 80u);
  struct Corner {
    size_t sequences;
    bool preempted;
    std::vector<std::string> options;
  };
  const std::vector<Corner> corners = {
      {1, false, {"--pp", "1", "-t", "2", "--prefill-chunk", "1"}},
      {8, false, {"--pp", "1", "-t", "2", "--micro-batches", "4", "--block-size", "16"}},
      {1, false, {"--pp", "2", "-t", "1", "--prefill-chunk", "7"}},
      {8, false, {"--pp", "2", "-t", "2", "--policy", "interleaved", "--prefill-chunk", "64", "--micro-batches", "4"}},
      {8, false, {"--pp", "2", "-t", "1", "--policy", "prefill-first", "--block-size", "64"}},
      {8, true, {"--pp", "2", "-t", "1", "--prefill-chunk", "7", "-c", "256", "--kv-cache-memory", "1M"}},
      {1, false, {"--pp", "3", "-t", "1", "--prefill-chunk", "64", "--layer-split", "1,6,1"}},
      {8, false, {"--pp", "3", "-t", "1", "--policy", "phases", "--prefill-chunk", "7", "--micro-batches", "1"}},
      {8, true, {"--pp", "3", "-t", "2", "-c", "256", "--kv-cache-memory", "600K", "--block-size", "16"}},
      {8, false, {"--pp", "3", "-t", "1", "--slo-itl", "1ms", "--chunking", "equal-time"}},
      {1, false, {"--pp", "4", "-t", "1", "--prefill-chunk", "7", "--micro-batches", "4"}},
      {8, false, {"--pp", "4", "-t", "1", "--policy", "decode-priority", "--micro-batches", "4"}},
      {8, true, {"--pp", "4", "-t", "1", "--prefill-chunk", "1", "-c", "256", "--kv-cache-memory", "512K"}},
  };
  for (const Corner& corner : corners) {
    std::string name;
    for (const std::string& option : corner.options) name += option + " ";
    const json answers = Answers(corner.options, corner.sequences, &preemptions);
    ASSERT_EQ(answers.size(), corner.sequences) << name;
    for (size_t i = 0; i < corner.sequences; ++i) {
      EXPECT_EQ(answers[i].dump(), eight[8 - corner.sequences + i].dump()) << name << "sequence " << i;
    }
    EXPECT_EQ(preemptions > 0, corner.preempted) << name;
  }
}

TEST(Overlap, ALongPromptHasTwoOfItsChunksInFlightAtOnceOverTwoStages) {
  const testing::TempDir dir;
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += "the ";
  testing::WriteFileOrDie(dir.File("prompt.txt"), prompt);
  const ProgramResult result = testing::RunProgram(
      testing::CoordinatorProgram(),
      {"generate", "-m", testing::DemoModelPath(), "--raw", "-f", dir.File("prompt.txt"), "-n", "2", "--pp", "2", "-t",
       "1", "--prefill-chunk", "128", "--step-log", dir.File("steps.jsonl"), "-q"});
  ASSERT_EQ(result.exit_code, 0) << result;
  std::vector<json> chunks;
  std::istringstream lines(testing::ReadFileOrDie(dir.File("steps.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const json step = json::parse(line);
    if (step["slices"].size() == 1 && step["slices"][0]["count"] > 1) chunks.push_back(step);
  }
  ASSERT_GE(chunks.size(), 5u);  // at least 600 tokens in chunks of 128
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i]["slices"][0]["start"], 128 * i);
    EXPECT_LT(chunks[i + 1]["submit_us"], chunks[i]["confirm_us"])
        << "chunk " << i + 1 << " waited for the one before it";
    ASSERT_EQ(chunks[i]["stages"].size(), 2u);
  }
}

}  // namespace
}  // namespace stagecoach
