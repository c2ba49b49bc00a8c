// A model whose keys do not fit an F16 cache: its logits are no numbers.

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string WithLargeKeys(const TempDir& directory) {
  GgufWriter writer = TinyModel({.architecture = "qwen2"});
  writer.SetTensor("blk.1.attn_k.bias", {64}, TensorType::kF32, std::vector<float>(64, 1e5f));
  const std::string path = directory.File("large-keys.gguf");
  EXPECT_TRUE(writer.Write(path).ok());
  return path;
}

TEST(InvalidLogits, EndAnAnswerWithWhatHelps) {
  const TempDir directory;
  const std::string model = WithLargeKeys(directory);
  const Words generate = {"generate", "-m", model, "--pp", "2", "-p", "some text", "-n", "4"};
  const ProgramResult failed = Coordinator(generate);
  EXPECT_EQ(failed.exit_code, 5) << failed;
  EXPECT_THAT(failed.err, AllOf(HasSubstr("prompt 1 of 1 failed: the logits for position"), HasSubstr("are not finite"),
                                HasSubstr("run with --kv-type bf16"), HasSubstr("failed       1\n")));
  EXPECT_THAT(failed.out, IsEmpty());
  Words wider = generate;
  wider.insert(wider.end(), {"--kv-type", "bf16"});
  const ProgramResult result = Coordinator(wider);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, Not(HasSubstr("failed")));
}

TEST(InvalidLogits, EndABatchInWhichNoLineHasAnAnswer) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl");
  WriteFileOrDie(in, BatchInputLine("a", {{"prompt", "some text"}, {"max_tokens", 4}}));
  const ProgramResult failed = Coordinator({"batch", "-m", WithLargeKeys(directory), "-i", in, "-o", out});
  EXPECT_EQ(failed.exit_code, 5) << failed;
}

TEST(InvalidLogits, GiveNoPerplexity) {
  const TempDir directory;
  const std::string text = directory.File("text.txt");
  for (std::ofstream file(text); file.tellp() < 400;) file << "some text. ";
  const ProgramResult failed =
      Coordinator({"perplexity", "-m", WithLargeKeys(directory), "-f", text, "-c", "64", "--pp", "2"});
  EXPECT_EQ(failed.exit_code, 5) << failed;
  EXPECT_THAT(failed.err, AllOf(HasSubstr("are not finite"), HasSubstr("run with --kv-type bf16")));
  EXPECT_THAT(failed.out, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace stagecoach::testing
