// The stages against the reference, which reads the file itself: an error in how the product reads a file, in what it
// makes of an architecture or in how it computes shows here.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/naive_forward.h"
#include "tests/testing/reference/agreement.h"
#include "tests/testing/reference/reference_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/tiny_architectures.h"
#include "tests/testing/tiny_model.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

// Parts of the spread of the logits.
constexpr double kFloatBound = 1e-5;
constexpr double kInt8Bound = 0.08;        // activations are rounded to eight bits
constexpr double kLatentInt8Bound = 0.09;  // so are those of Wq_b, Wk_b and Wv_b, one behind the other
// A choice between experts that is closer than this may fall otherwise in float, and then everything differs.
constexpr double kLeastChoiceMargin = 2e-5;
// One that is clearer than this is the same with rounded activations.
constexpr double kClearChoiceMargin = 0.04;
constexpr int64_t kSampleTokens = kSanitized ? 24 : 70;  // more than windows hold

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
  ExpectAgrees(WriteTinyArchitecture(dir.File("m.gguf"), options), SampleTokens(kSampleTokens, options.vocab), bound,
               stages);
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

// What an architecture is compared with: itself, and itself with something there, absent or otherwise.
struct Variant {
  const char* what;
  std::function<void(TinyArchitectureOptions*)> change;
};

// Of what every architecture may have.
std::vector<Variant> CommonVariants() {
  return {{"as it is", [](auto*) {}},
          {"six layers", [](auto* o) { o->layers = 6; }},
          {"no matrices fused", [](auto* o) { o->fused_qkv = o->fused_ffn = false; }},
          {"one head of keys", [](auto* o) { o->kv_heads = o->kv_rank > 0 ? o->kv_heads : 1; }},
          {"shards", [](auto* o) { o->shards = 3; }}};
}

std::vector<Variant> ExpertVariants() {
  return {{"one of four", [](auto* o) { o->experts = 4, o->experts_used = 1, o->groups = o->groups_used = 0; }},
          {"three of sixteen", [](auto* o) { o->experts = 16, o->experts_used = 3; }},
          {"all", [](auto* o) { o->experts_used = o->experts, o->groups = o->groups_used = 0; }},
          {"narrow", [](auto* o) { o->expert_ffn = 22; }}};
}

// Of architectures whose router has a bias for the choice.
std::vector<Variant> BiasedChoiceVariants() {
  return {{"softmax", [](auto* o) { o->gating = 1; }},
          {"groups", [](auto* o) { o->groups = 2, o->groups_used = 1; }},
          {"top-1 in groups", [](auto* o) { o->groups = 4, o->groups_used = 2, o->experts_used = 1; }}};
}

std::vector<Variant> SharedExpertVariants() {
  return {{"no shared expert", [](auto* o) { o->shared_experts = 0; }},
          {"three shared experts", [](auto* o) { o->shared_experts = 3; }},
          {"no dense lead", [](auto* o) { o->dense_lead = 0; }},
          {"dense lead of two", [](auto* o) { o->dense_lead = 2; }},
          {"weights as they are", [](auto* o) { o->weights_norm = false, o->weights_scale = 0; }},
          {"a block for the token after the next, or none", [](auto* o) { o->nextn = !o->nextn; }}};
}

std::vector<Variant> WindowVariants() {
  return {{"window of 7", [](auto* o) { o->window = 7; }},
          {"window of 33", [](auto* o) { o->window = 33; }},
          {"window of all", [](auto* o) { o->window = o->context; }}};
}

// Of architectures whose keys may say how far a window of which layers reaches.
std::vector<Variant> PatternVariants() {
  return {{"a window of every third layer but one", [](auto* o) { o->window_period = 3; }},
          {"a window where an array says so", [](auto* o) {
             o->layers = 4;
             o->windowed = {false, true, true, false};
           }}};
}

std::vector<Variant> LatentVariants() {
  return {{"no rank of q", [](auto* o) { o->q_rank = 0; }},
          {"no selection bias", [](auto* o) { o->selection_bias = false; }},
          {"no YaRN", [](auto* o) { o->rope_scaling = "none", o->yarn_log_multiplier = 0; }},
          {"one head", [](auto* o) { o->heads = 1; }},
          {"no groups", [](auto* o) { o->groups = o->groups_used = 0; }}};
}

std::vector<Variant> GraniteVariants() {
  return {{"no rotation", [](auto* o) { o->rotates = false; }},
          {"other scales", [](auto* o) { o->embedding_scale = 12, o->residual_scale = 0.22, o->logit_scale = 0.5; }},
          {"its own head", [](auto* o) { o->tied = false; }},
          {"biases", [](auto* o) { o->qkv_biases = o->output_bias = o->ffn_biases = true; }}};
}

std::vector<Variant> LlamaVariants() {
  return {{"biases", [](auto* o) { o->qkv_biases = o->output_bias = o->ffn_biases = true; }},
          {"fused, tied, with factors", [](auto* o) { o->fused_qkv = o->tied = o->rope_factors = true; }},
          {"a window in every layer", [](auto* o) { o->window = 16; }}};
}

std::vector<Variant> PhiVariants() {
  return {{"a part rotated", [](auto* o) { o->rotated = o->head_dim - 2; }},
          {"no magnitude", [](auto* o) { o->rope_attention_factor = 0; }},
          {"a window in every layer", [](auto* o) { o->window = 16; }}};
}

std::vector<Variant> YarnVariants() {
  return {{"no YaRN", [](auto* o) { o->rope_scaling = "none"; }},
          {"YaRN's other factors", [](auto* o) { o->rope_factor = 32, o->original_context = 40; }}};
}

std::vector<Variant> GemmaVariants() {
  std::vector<Variant> variants = {{"another cap of the logits", [](auto* o) { o->logit_cap = 9; }}};
  if (!kSanitized) {  // the plain build compares them
    variants.push_back(
        {"the layers of the largest", [](auto* o) { o->layers = o->architecture == "gemma2" ? 46 : 62; }});
  }
  return variants;
}

// Of what one architecture alone has; the stretched full layers beside unstretched windows are OLMo 3's.
std::vector<Variant> OwnVariants(const std::string& name) {
  if (name == "granite") return GraniteVariants();
  if (name == "llama") return LlamaVariants();
  if (name == "phi3") return PhiVariants();
  if (name == "deepseek2") return LatentVariants();
  if (name == "glm4moe") {
    return {{"no norms of q and k", [](auto* o) { o->qk_norms = false; }},
            {"no biases of q, k and v", [](auto* o) { o->qkv_biases = false; }}};
  }
  if (name == "gemma2") return {{"caps that no key names", [](auto* o) { o->attention_cap = o->logit_cap = 0; }}};
  if (name == "gemma3") return {{"its own base in windows", [](auto* o) { o->freq_base_windowed = 3e4; }}};
  if (name == "olmo2") {
    return {{"windows", [](auto* o) { o->window = 16, o->layers = 5; }},
            {"windows and YaRN", [](auto* o) {
               o->window = 16, o->layers = 5, o->rope_scaling = "yarn", o->rope_factor = 8, o->original_context = 40;
             }}};
  }
  return {};
}

std::vector<Variant> VariantsOf(const std::string& name) {
  std::vector<Variant> variants = CommonVariants();
  const auto add = [&](const std::vector<Variant>& more) { variants.insert(variants.end(), more.begin(), more.end()); };
  if (TinyArchitecture(name).experts > 0) add(ExpertVariants());
  if (TinyArchitecture(name).experts > 0 && !TinyArchitecture(name).expert_biases) {
    add({{"gate and up fused", [](auto* o) { o->fused_gate_up = true; }}});
  }
  if (name == "glm4moe" || name == "deepseek2" || name == "minimax-m2") add(BiasedChoiceVariants());
  if (name == "glm4moe" || name == "deepseek2") add(SharedExpertVariants());
  if (name == "gpt-oss" || name == "gemma2" || name == "gemma3") add(WindowVariants());
  if (name == "gpt-oss" || name == "gemma3") add(PatternVariants());
  if (name == "gpt-oss") add(YarnVariants());
  if (name == "gemma2" || name == "gemma3") add(GemmaVariants());
  if (name == "qwen3moe" || name == "gemma3" || name == "smollm3") {
    add({{"its own head", [](auto* o) { o->tied = false; }}});
  }
  add(OwnVariants(name));
  return variants;
}

class ArchitectureAgainstReference : public ::testing::TestWithParam<std::string> {};

TEST_P(ArchitectureAgainstReference, EveryFeatureAgrees) {
  int stages = 0;
  for (const Variant& variant : VariantsOf(GetParam())) {
    SCOPED_TRACE(variant.what);
    TinyArchitectureOptions options = TinyArchitecture(GetParam());
    variant.change(&options);
    ExpectAgrees(options, kFloatBound, 1 + stages++ % 3);
  }
}

TEST_P(ArchitectureAgainstReference, StoredTypesAreDecodedBeforeTheProducts) {
  for (const TensorType type : {TensorType::kBF16, TensorType::kF16}) ExpectAgrees(TinyArchitecture(GetParam(), type));
}

// All experts of few: what is rounded would else choose otherwise sometimes, and then nothing is close.
TEST_P(ArchitectureAgainstReference, BlocksOfIntegersAreClose) {
  std::vector<std::pair<TensorType, TensorType>> types = {{TensorType::kQ8_0, TensorType::kQ8_0},
                                                          {TensorType::kQ4_K, TensorType::kQ4_K}};
  if (kSanitized) types.pop_back();
  if (TinyArchitecture(GetParam()).experts > 0) types.emplace_back(TensorType::kQ8_0, TensorType::kMXFP4);
  for (const auto& [type, expert_type] : types) {
    TinyArchitectureOptions options = TinyArchitecture(GetParam(), type, expert_type);
    if (options.experts > 0) options.experts = options.experts_used = 4, options.groups = options.groups_used = 0;
    ExpectAgrees(options, options.kv_rank > 0 ? kLatentInt8Bound : kInt8Bound);
  }
}

// Few rows of a model whose choices are all clear, so that what is rounded chooses the same experts.
TEST_P(ArchitectureAgainstReference, ChosenExpertsOfBlocksOfIntegersAreClose) {
  if (TinyArchitecture(GetParam()).experts == 0) return;
  const TempDir dir;
  const std::string path = dir.File("m.gguf");
  for (const TensorType expert_type : {TensorType::kMXFP4, TensorType::kQ8_0}) {
    if (kSanitized && expert_type == TensorType::kQ8_0) continue;
    TinyArchitectureOptions options = TinyArchitecture(GetParam(), TensorType::kQ8_0, expert_type);
    options.layers = options.dense_lead + 2;
    const std::vector<TokenId> tokens = SampleTokens(4, options.vocab);
    const auto is_clear = [&](uint64_t seed) {
      options.seed = seed;
      WriteTinyArchitecture(path, options);
      const auto reference = ReferenceModel::Open(path);
      reference->Logits(tokens);
      return reference->ChoiceMargin() > kClearChoiceMargin;
    };
    uint64_t seed = 1;
    while (seed < 1000 && !is_clear(seed)) ++seed;
    ASSERT_LT(seed, 1000u);
    ExpectAgrees(path, tokens, options.kv_rank > 0 ? kLatentInt8Bound : kInt8Bound);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ArchitectureAgainstReference, ::testing::ValuesIn(TinyArchitectureNames()),
                         [](const auto& architecture) {
                           std::string name = architecture.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace stagecoach::testing
