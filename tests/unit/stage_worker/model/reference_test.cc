// The stages against the reference, which reads the file itself: an error in how the product reads a file, in what it
// makes of an architecture or in how it computes shows here.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/naive_forward.h"
#include "tests/testing/reference/agreement.h"
#include "tests/testing/reference/reference_model.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/tiny_architectures.h"
#include "tests/testing/tiny_model.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

// Parts of the spread of the logits.
constexpr double kFloatBound = 1e-5;
constexpr double kInt8Bound = 0.06;  // activations are rounded to eight bits
// A choice between experts that is closer than this may fall otherwise in float, and then everything differs.
constexpr double kLeastChoiceMargin = 2e-5;

// Logits after every one of the tokens, over some stages, in chunks that cut windows and granules anywhere.
std::vector<std::vector<float>> LogitsBehindStages(const std::string& path, const std::vector<TokenId>& tokens,
                                                   int stages) {
  auto model = OpenModel(path);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  PipelineRig rig(std::move(model).value(), {.stages = stages, .kv_type = KvType::kF32, .isa = TwinIsa()});
  const SequenceId sequence = rig.Open(tokens);
  std::vector<std::vector<float>> logits;
  for (size_t at = 0; at < tokens.size(); at += 23) {
    const size_t end = std::min(tokens.size(), at + 23);
    rig.Feed(sequence, {tokens.begin() + static_cast<int64_t>(at), tokens.begin() + static_cast<int64_t>(end)}, false);
    rig.Step();
    for (size_t row = 0; row < end - at; ++row) logits.push_back(rig.Logits(static_cast<int64_t>(row)));
  }
  return logits;
}

// That the product's logits of a file are the reference's, but for `bound` of their spread.
void ExpectAgrees(const std::string& path, const std::vector<TokenId>& tokens, double bound, int stages = 2) {
  const auto reference = ReferenceModel::Open(path);
  const auto expected = reference->Logits(tokens);
  const LogitDifference difference = Compare(expected, LogitsBehindStages(path, tokens, stages));
  EXPECT_LE(difference.worst / LogitSpread(expected), bound)
      << "at position " << difference.position << ", token " << difference.token;
  if (bound < kInt8Bound) {
    EXPECT_GT(reference->ChoiceMargin(), kLeastChoiceMargin) << "another seed, please";
  }
}

void ExpectAgrees(const TinyArchitectureOptions& options, double bound = kFloatBound, int stages = 2) {
  SCOPED_TRACE(options.architecture);
  const TempDir dir;
  ExpectAgrees(WriteTinyArchitecture(dir.File("m.gguf"), options), SampleTokens(70, options.vocab), bound, stages);
}

TEST(AgainstReference, PlainLayersAreThoseOfTheOtherOracleToo) {
  for (const char* name : {"qwen3", "qwen2", "llama"}) {
    const TempDir dir;
    const std::string path =
        WriteTinyModel(dir.File("m.gguf"),
                       {.architecture = name, .rope_scaling = "yarn", .rope_factor = 4, .rope_original_context = 128});
    const std::vector<TokenId> tokens = SampleTokens(40, 320);
    const auto model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto expected = ReferenceModel::Open(path)->Logits(tokens);
    EXPECT_LT(Compare(expected, NaiveLogits(**model, tokens)).worst, 1e-9) << name;
    ExpectAgrees(path, tokens, kFloatBound);
  }
}

TEST(AgainstReference, LlamaWithEverythingThatItMayHave) {
  TinyArchitectureOptions options = TinyArchitecture("llama");
  ExpectAgrees(options);
  options.qkv_biases = options.output_bias = options.ffn_biases = options.rope_factors = options.fused_qkv = true;
  ExpectAgrees(options);
  options.tied = true;
  ExpectAgrees(options, kFloatBound, 3);
}

TEST(AgainstReference, MatricesOfAnyType) {
  ExpectAgrees(TinyArchitecture("llama", TensorType::kBF16));
  ExpectAgrees(TinyArchitecture("llama", TensorType::kF16));
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_K}) {
    ExpectAgrees(TinyArchitecture("llama", type), kInt8Bound);
  }
}

}  // namespace
}  // namespace stagecoach::testing
