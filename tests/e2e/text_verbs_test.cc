// The verbs that need neither MPI nor a launcher.

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Help, IsOnStandardOutputAndEndsWell) {
  for (const Words& arguments : {Words{"help"}, Words{"--help"}, Words{"help", "batch"}, Words{"batch", "--help"}}) {
    const ProgramResult result = Coordinator(arguments);
    EXPECT_EQ(result.exit_code, 0) << result;
    EXPECT_THAT(result.out, HasSubstr("Usage:"));
    EXPECT_THAT(result.err, IsEmpty());
  }
  EXPECT_THAT(Coordinator({"--version"}).out, HasSubstr("stagecoach 0."));
}

TEST(Inspect, DescribesTheDemoModel) {
  const ProgramResult result = Coordinator({"inspect", "-m", DemoModelPath()});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("architecture     qwen3"), HasSubstr("6821120 in 90 tensors"), HasSubstr("layers           8"),
            HasSubstr("context          1024"), HasSubstr("vocabulary       4096"), HasSubstr("Q8_0"),
            HasSubstr("8.50 bits per weight"), HasSubstr("chat template    yes"), HasSubstr("runs here        yes")));
}

TEST(Inspect, GivesTheSameAsJsonWithEveryTensor) {
  const ProgramResult result = Coordinator({"inspect", "-m", DemoModelPath(), "--json", "--tensors"});
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["architecture"], "qwen3");
  EXPECT_EQ(json["parameters"], 6821120);
  EXPECT_EQ(json["layers"], 8);
  EXPECT_EQ(json["shards"], 1);
  EXPECT_EQ(json["supported"], true);
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  EXPECT_EQ(json["tokenizer"]["end_of_generation"], (std::vector<int>{4093, 4095}));
  ASSERT_EQ(json["tensor_list"].size(), 90u);
  uint64_t bytes = 0;
  for (const Json& tensor : json["tensor_list"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(json["tensor_bytes"], bytes);
}

TEST(Inspect, DescribesAModelWithoutWeights) {
  const ProgramResult result = Coordinator({"inspect", "-m", "dummy://qwen3-8b/q4_k_m"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, AllOf(HasSubstr("file             dummy://qwen3-8b/q4_k_m"), HasSubstr("layers           36"),
                                HasSubstr("Q4_K"), HasSubstr("Q6_K"), HasSubstr("has no tokenizer in it"),
                                HasSubstr("runs here        yes")));
}

TEST(Inspect, DescribesWhatItCannotRun) {
  const TempDir directory;
  GgufWriter writer;
  writer.Set("general.architecture", "mamba");
  writer.Set("mamba.block_count", uint32_t{3});
  writer.Set("tokenizer.chat_template", "{{ messages }}");
  writer.Set("tokenizer.chat_template.tool_use", "{% if tools %}");
  writer.SetTensor("token_embd.weight", {32, 2}, TensorType::kF32, std::vector<float>(64, 1.0f));
  ASSERT_TRUE(writer.Write(directory.File("m.gguf")).ok());
  const ProgramResult result = Coordinator({"inspect", "-m", directory.File("m.gguf"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["supported"], false);
  EXPECT_THAT(json["unsupported_because"].get<std::string>(), HasSubstr("mamba"));
  EXPECT_EQ(json["tokenizer"]["supported"], false);
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);
  EXPECT_THAT(json["tokenizer"]["chat_template_unusable_because"].get<std::string>(),
              StartsWith("for tools: line 1: "));
}

TEST(Inspect, ShowsAFilesTextsOnLinesOfTheirOwnAndNoOrdersToTerminals) {
  const TempDir directory;
  GgufWriter writer;
  writer.Set("general.architecture", "mamba\n\x1b[2J");
  writer.Set("general.name", "M\nruns here        yes\x1b]0;owned\x07");
  writer.Set("tokenizer.chat_template", "{{ messages }}\n{{ messages | frob }}");
  writer.SetTensor("token_embd.weight", {32, 2}, TensorType::kF32, std::vector<float>(64, 1.0f));
  ASSERT_TRUE(writer.Write(directory.File("m.gguf")).ok());
  const ProgramResult result = Coordinator({"inspect", "-m", directory.File("m.gguf")});
  ASSERT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(
      result.out,
      AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")), Not(HasSubstr("\nruns here        yes")),
            HasSubstr("chat template    yes, but it cannot be used: line 2: unknown filter 'frob'; there are abs, "),
            HasSubstr("name             M␊runs here        yes␛]0;owned␇\n"), HasSubstr("\nruns here        no: ")));
}

TEST(Tokenize, GivesTheIdsOfTheReference) {
  const ProgramResult result = Coordinator({"tokenize", "-m", DemoModelPath(), "-p", "In the beginning God created"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_EQ(result.out, "3784 258 2149 390 2841\n");
}

TEST(Tokenize, ReadsControlTokensUnlessToldNotTo) {
  EXPECT_EQ(Coordinator({"tokenize", "-m", DemoModelPath(), "-p", "<|im_end|>"}).out, "4095\n");
  EXPECT_NE(Coordinator({"tokenize", "-m", DemoModelPath(), "-p", "<|im_end|>", "--no-special"}).out, "4095\n");
}

TEST(Tokenize, GivesPiecesAsJsonWithInvalidUtf8Replaced) {
  const ProgramResult result = Coordinator({"tokenize", "-m", DemoModelPath(), "--output", "json"}, "the\xff");
  ASSERT_EQ(result.exit_code, 0) << result;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["pieces"].back(), "\xEF\xBF\xBD");
  EXPECT_EQ(json["tokens"].size(), json["pieces"].size());
}

TEST(Detokenize, GivesBackEveryByteThatWasTokenized) {
  std::string text = "In the beginning\n  God\tcreated\r\n\n\"h\xC3\xA9\" \xE2\x82\xAC \xF0\x9F\x98\x80 <|im_end|> ";
  for (int byte = 1; byte < 256; ++byte) text += static_cast<char>(byte);
  const ProgramResult tokens = Coordinator({"tokenize", "-m", DemoModelPath()}, text);
  ASSERT_EQ(tokens.exit_code, 0) << tokens;
  const ProgramResult from_input = Coordinator({"detokenize", "-m", DemoModelPath()}, tokens.out);
  EXPECT_EQ(from_input.exit_code, 0);
  EXPECT_EQ(from_input.out, text);
  Words arguments = {"detokenize", "-m", DemoModelPath()};
  for (absl::string_view id : absl::StrSplit(tokens.out, absl::ByAnyChar(" \n"), absl::SkipEmpty()))
    arguments.emplace_back(id);
  EXPECT_EQ(Coordinator(arguments).out, text);
}

TEST(Detokenize, ShowsControlTokensUnlessToldNotTo) {
  EXPECT_EQ(Coordinator({"detokenize", "-m", DemoModelPath(), "258", "4095"}).out, " the<|im_end|>");
  EXPECT_EQ(Coordinator({"detokenize", "-m", DemoModelPath(), "--no-special", "258,4095"}).out, " the");
}

TEST(TextVerbs, NeedNoLauncher) {
  // Nothing that could start a job is to be found.
  const std::vector<std::pair<std::string, std::string>> bare = {{"PATH", "/nowhere"}};
  for (const Words& arguments :
       {Words{"inspect", "-m", DemoModelPath()}, Words{"tokenize", "-m", DemoModelPath(), "-p", "x"},
        Words{"detokenize", "-m", DemoModelPath(), "5"}}) {
    EXPECT_EQ(RunProgram(CoordinatorProgram(), arguments, "", 60, bare).exit_code, 0);
  }
  const ProgramResult generate = RunProgram(CoordinatorProgram(), Generate({"-p", "x"}), "", 60, bare);
  EXPECT_EQ(generate.exit_code, 4) << generate;
  EXPECT_THAT(generate.err, HasSubstr("mpirun"));
}

TEST(DryRun, PrintsTheLaunchLineAndStartsNothing) {
  const ProgramResult result = Coordinator(Generate({"--dry-run", "--pp", "2", "--mpirun-args", "--mca foo 'a b'"}));
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, AllOf(HasSubstr("mpirun "), HasSubstr(CoordinatorProgram()), HasSubstr(StageWorkerProgram()),
                                HasSubstr("--mca foo 'a b'"), HasSubstr("-n 2 ")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

}  // namespace
}  // namespace stagecoach::testing
