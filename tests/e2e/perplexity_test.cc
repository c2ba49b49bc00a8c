#include <cmath>

#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

Json Perplexity(const std::string& model, const std::string& text, const Words& more) {
  return CoordinatorJson(Joined({"perplexity", "-m", model, "-f", text, "--pp", "2", "-q", "--output", "json"}, more));
}

// Recorded with llama.cpp and with a float64 forward pass: 31.8840 for f32; the bounds are the project's own.
TEST(Perplexity, IsThatOfTheReference) {
  SHARED_FILE_OR_SKIP(text, "models/heldout.txt");
  SHARED_FILE_OR_SKIP(f32, "models/demo-f32.gguf");
  SHARED_FILE_OR_SKIP(bf16, "models/demo-bf16.gguf");
  const Json exact = Perplexity(f32, text, {"--kv-type", "f32"});
  EXPECT_NEAR(exact["perplexity"].get<double>(), 31.8840, 0.0005);
  EXPECT_EQ(exact["tokens"], 9690);
  EXPECT_EQ(exact["windows"], 38);
  EXPECT_GT(exact["error"].get<double>(), 0.5);
  EXPECT_LT(exact["error"].get<double>(), 1.5);
  EXPECT_GT(exact["tokens_per_second"].get<double>(), 0);
  // Hardly changed by keys and values in eight bits, but changed.
  const double eight_bits = Perplexity(f32, text, {"--kv-type", "q8_0"})["perplexity"].get<double>();
  EXPECT_NEAR(eight_bits, 31.8840, 31.8840 * 0.001);
  EXPECT_NE(eight_bits, exact["perplexity"].get<double>());
  EXPECT_NEAR(Perplexity(bf16, text, {})["perplexity"].get<double>(), 31.8832, 31.8832 * 0.001);
  EXPECT_NEAR(Perplexity(DemoModelPath(), text, {})["perplexity"].get<double>(), 31.8883, 31.8883 * 0.005);
}

// Files as people download them, written by llama.cpp, with the perplexities it computes from them. The bounds allow
// for the rounding of activations, which differs between engines.
struct RecordedFile {
  const char* name;
  double perplexity;
  double bound;  // relative
};

class QuantizedFile : public ::testing::TestWithParam<RecordedFile> {};

TEST_P(QuantizedFile, HasThePerplexityThatAnotherEngineRecorded) {
  SHARED_FILE_OR_SKIP(text, "models/heldout.txt");
  SHARED_FILE_OR_SKIP(model, std::string("models/quantized/demo-") + GetParam().name + ".gguf");
  EXPECT_NEAR(Perplexity(model, text, {"--kv-type", "f32"})["perplexity"].get<double>(), GetParam().perplexity,
              GetParam().perplexity * GetParam().bound);
}

INSTANTIATE_TEST_SUITE_P(Perplexity, QuantizedFile,
                         ::testing::Values(RecordedFile{"q4_0", 32.108, 0.005}, RecordedFile{"q5_0", 31.990, 0.005},
                                           RecordedFile{"q4_k_m", 31.985, 0.005}, RecordedFile{"q6_k", 31.941, 0.005},
                                           RecordedFile{"q1_0", 98.90, 0.01}, RecordedFile{"q2_0", 90.19, 0.01},
                                           RecordedFile{"tq2_0", 269.2, 0.01}),
                         [](const auto& info) { return std::string(info.param.name); });

// Recorded with a float64 forward pass: the second half of the first window, over states that two stages carry on.
struct RecurrentFile {
  const char* name;
  double nats;  // of the 255 tokens that are scored
};

class RecurrentFiles : public ::testing::TestWithParam<RecurrentFile> {};

TEST_P(RecurrentFiles, HaveThePerplexityOfTheReference) {
  SHARED_FILE_OR_SKIP(text, "models/heldout.txt");
  SHARED_FILE_OR_SKIP(model, std::string("models/recurrent/") + GetParam().name + "-f32.gguf");
  constexpr size_t kBytesOfAWindow = 1520;
  const TempDir directory;
  WriteFileOrDie(directory.File("t.txt"), ReadFileOrDie(text).substr(0, kBytesOfAWindow));
  const Json result = Perplexity(model, directory.File("t.txt"), {"--kv-type", "f32", "--prefill-chunk", "100"});
  EXPECT_EQ(result["tokens"], 255);
  EXPECT_NEAR(255 * std::log(result["perplexity"].get<double>()), GetParam().nats, 0.002);
}

INSTANTIATE_TEST_SUITE_P(Perplexity, RecurrentFiles,
                         ::testing::Values(RecurrentFile{"qwen35", 2927.9587}, RecurrentFile{"qwen35moe", 2593.2102},
                                           RecurrentFile{"qwen3next", 2547.7895}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Perplexity, DoesNotDependOnHowTheWorkIsCut) {
  SHARED_FILE_OR_SKIP(text, "models/heldout.txt");
  const TempDir directory;
  WriteFileOrDie(directory.File("t.txt"), ReadFileOrDie(text).substr(0, 6000));
  const Json one = Perplexity(DemoModelPath(), directory.File("t.txt"), {"-c", "128"});
  const Json other = Perplexity(DemoModelPath(), directory.File("t.txt"),
                                {"-c", "128", "--layer-split", "2,6", "--prefill-chunk", "17", "--max-num-seqs", "3",
                                 "--micro-batches", "3", "--block-size", "16"});
  EXPECT_GT(one["windows"].get<int>(), 5);
  EXPECT_EQ(one["perplexity"], other["perplexity"]);
  EXPECT_EQ(one["error"], other["error"]);
}

TEST(Perplexity, PrintsItsEstimateAsText) {
  const TempDir directory;
  WriteFileOrDie(directory.File("t.txt"), Repeated("And it came to pass in those days,", 40));
  const ProgramResult result = Coordinator(
      {"perplexity", "-m", DemoModelPath(), "-f", directory.File("t.txt"), "-c", "64", "--progress", "always"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out, ContainsRegex("perplexity +[0-9.]+ \\+/- [0-9.]+"));
  EXPECT_THAT(result.out, HasSubstr("windows of 64"));
  EXPECT_THAT(result.err, HasSubstr("stage  host"));
}

}  // namespace
}  // namespace stagecoach::testing
