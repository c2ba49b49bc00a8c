// Every architecture as real processes: wherever its layers are cut, with KV blocks to spare or hardly enough, and when
// a stage is killed, the answers are the same to the last bit.

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/tiny_architectures.h"

namespace stagecoach::testing {
namespace {

constexpr int64_t kLayers = 6;

std::string WriteSixLayers(const std::string& path, TinyArchitectureOptions options) {
  options.layers = kLayers;
  return WriteTinyArchitecture(path, options);
}

Json Asked(const std::string& prompt, int tokens, int seed) {
  Json body = {{"prompt", prompt}, {"max_tokens", tokens}, {"ignore_eos", true}, {"logprobs", 3}};
  body["temperature"] = seed > 0 ? 0.9 : 0;
  if (seed > 0) body["seed"] = seed;
  return body;
}

// Greedy and sampled, within a window and beyond it; the first one is answered long before the others.
std::string FewLines() {
  return BatchInputLine("brief", Asked("And", 2, 0)) +
         BatchInputLine("greedy", Asked("In the beginning was a word, and it was read to the end.", 14, 0)) +
         BatchInputLine("sampled", Asked("The quick brown fox jumps over the lazy dog", 14, 7)) +
         BatchInputLine("short", Asked("A house divided", 12, 5));
}

// One job after the other that answers the same lines.
class Jobs {
 public:
  Jobs(std::string model, const std::string& lines) : model_(std::move(model)), in_(directory_.File("in.jsonl")) {
    WriteFileOrDie(in_, lines);
  }

  // The command, with a new file for what it answers.
  Words Command(const Words& more) {
    out_ = directory_.File(absl::StrCat("out", ++runs_, ".jsonl"));
    return Joined({"batch", "-m", model_, "-i", in_, "-o", out_, "-t", "1", "--progress", "never"}, more);
  }

  // Tokens, bytes and log-probabilities of every line, as they are written.
  std::map<std::string, std::string> Answers() const {
    std::map<std::string, std::string> answers;
    for (const auto& [id, line] : ReadBatchOutput(out_)) {
      EXPECT_TRUE(line["error"].is_null()) << line;
      if (line["error"].is_null()) answers[id] = line["response"]["body"]["choices"].dump();
    }
    return answers;
  }
  std::map<std::string, std::string> Run(const Words& more) {
    const ProgramResult result = Coordinator(Command(more));
    EXPECT_EQ(result.exit_code, 0) << result;
    return result.exit_code == 0 ? Answers() : std::map<std::string, std::string>();
  }
  int64_t Answered() const { return LinesIn(out_); }
  // Tokens of prompts that came from the prefix cache in the latest run.
  int64_t Cached() const {
    int64_t cached = 0;
    for (const auto& [id, line] : ReadBatchOutput(out_)) {
      cached += line["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    }
    return cached;
  }

 private:
  const TempDir directory_;
  const std::string model_, in_;
  std::string out_;
  int runs_ = 0;
};

class EveryArchitecture : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryArchitecture, GivesTheSameAnswersWhereverItIsCutAndWhenAStageIsKilled) {
  const TempDir directory;
  Jobs jobs(WriteSixLayers(directory.File("tiny.gguf"), TinyArchitecture(GetParam())), FewLines());
  const std::map<std::string, std::string> whole = jobs.Run({"--layer-split", "6"});
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_EQ(jobs.Run({"--layer-split", "1,2,3", "--prefill-chunk", "16"}), whole);

  Subprocess front(CoordinatorProgram(), jobs.Command({"--layer-split", "2,4", "--stage-delay-us", "15000"}));
  // In the midst of the others' answers.
  ASSERT_TRUE(front.WaitUntil([&] { return jobs.Answered() > 0; }, 60)) << front.err();
  const std::vector<pid_t> stages = StagesOf(front.pid());
  ASSERT_EQ(stages.size(), 2u);
  ASSERT_EQ(jobs.Answered(), 1);
  kill(stages.back(), SIGKILL);
  ASSERT_THAT(front.Wait(90), EndsWithCode(0, HasSubstr("signal 9")));
  EXPECT_EQ(jobs.Answers(), whole);
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryArchitecture, ::testing::ValuesIn(TinyArchitectureNames()), ArchitectureTestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, EveryArchitecture, ::testing::ValuesIn(TinyRecurrentArchitectureNames()),
                         ArchitectureTestName);

// ---- KV blocks ----

// Heads of whole blocks of Q8_0, so that keys and values can have every type.
std::string WriteRoundHeads(const std::string& path, const std::string& architecture) {
  TinyArchitectureOptions options = TinyArchitecture(architecture, TensorType::kQ8_0);
  if (options.kv_rank > 0) options.rotated = 32;  // 64 + 32 values of a latent row
  return WriteSixLayers(path, options);
}

// Prompts of fourteen windows that begin alike, and one that does not.
std::string LongLines() {
  const std::string begin = Repeated("In the beginning was a word, and it was read to the end of the day.", 3);
  std::string lines;
  for (int i = 0; i < 6; ++i) {
    const std::string own = absl::StrCat(i, " is the number of this one.");
    const std::string prompt = i == 2 ? absl::StrCat(own, begin) : absl::StrCat(begin, own);
    lines += BatchInputLine(absl::StrCat("long ", i), Asked(prompt, 20, i));
  }
  return lines;
}

// --kv-cache-memory for twenty blocks of 16 tokens of three layers, where one of LongLines() alone needs fourteen.
std::string TwentyBlocks(const std::string& architecture, const std::string& kv_type) {
  const int values = architecture == "deepseek2" ? 96 : 2 * 2 * 32;  // of a token in a layer
  const int bytes = kv_type == "q8_0" ? values / 32 * 34 : values * (kv_type == "f32" ? 4 : 2);
  return absl::StrCat(20 * 16 * 3 * bytes);
}

class KvBlocks : public ::testing::TestWithParam<std::string> {};

// The six requests fill more than twice as many blocks as there are, of layers with a window too: what ended, and what
// has left its window, makes room for the others.
TEST_P(KvBlocks, HardlyEnoughOfThemAreReusedWithTheSameAnswers) {
  const TempDir directory;
  Jobs jobs(WriteRoundHeads(directory.File("tiny.gguf"), GetParam()), LongLines());
  // Which type it is does not meet which layers there are.
  const Words types = GetParam() == "gpt-oss" ? Words{"f16", "bf16", "f32", "q8_0"} : Words{"f16", "q8_0"};
  for (const std::string& type : types) {
    const std::map<std::string, std::string> expected =
        jobs.Run({"--layer-split", "6", "--no-enable-prefix-caching", "--kv-cache-memory", "16M", "--kv-type", type});
    ASSERT_EQ(expected.size(), 6u);
    EXPECT_EQ(jobs.Cached(), 0);
    EXPECT_EQ(jobs.Run({"--layer-split", "3,3", "--block-size", "16", "--prefill-chunk", "48", "--max-num-seqs", "4",
                        "--kv-cache-memory", TwentyBlocks(GetParam(), type), "--kv-type", type}),
              expected)
        << type;
    EXPECT_GT(jobs.Cached(), 0) << type;
  }
}

TEST_P(KvBlocks, VerifyFindsNoDifference) {
  const TempDir directory;
  const Words words = WordsOf("verify --layer-split 3,3 -n 6 -t 1 --chunks 7 --splits 1 --checksums -m");
  const ProgramResult result = Coordinator(Joined(words, {WriteRoundHeads(directory.File("tiny.gguf"), GetParam())}),
                                           /*input=*/"", /*timeout_s=*/300);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, HasSubstr("identical: ")) << result;
}

INSTANTIATE_TEST_SUITE_P(Tiny, KvBlocks, ::testing::Values("gpt-oss", "gemma3", "deepseek2"), ArchitectureTestName);

}  // namespace
}  // namespace stagecoach::testing
