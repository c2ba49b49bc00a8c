// The stages against the reference, which reads the file itself: an error in how the product reads a file, in what it
// makes of an architecture or in how it computes shows here.

#include <functional>
#include <set>
#include <utility>

#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/reference/agreement.h"
#include "tests/testing/reference/reference_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

// Parts of the spread of the logits.
constexpr double kFloatBound = 1e-5;
constexpr double kInt8Bound = 0.08;        // activations are rounded to eight bits
constexpr double kLatentInt8Bound = 0.09;  // so are those of Wq_b, Wk_b and Wv_b, one behind the other
// States of delta nets carry roundings from row to row.
constexpr double kRecurrentFloatBound = 2e-5;
constexpr double kRecurrentInt8Bound = 0.14;
// A choice between experts that is closer than this may fall otherwise in float, and then everything differs.
constexpr double kLeastChoiceMargin = 2e-5;
// One that is clearer than this is the same with rounded activations.
constexpr double kClearChoiceMargin = 0.04;
constexpr int64_t kSampleTokens = kSanitized ? 24 : 70;  // more than windows hold

// Logits after every one of the tokens, over some stages, in chunks that cut windows and granules anywhere.
std::vector<std::vector<float>> LogitsBehindStages(const std::string& path, const std::vector<TokenId>& tokens,
                                                   int stages) {
  PipelineRig rig(OpenModel(path).value(), {.stages = stages, .kv_type = KvType::kF32, .isa = TwinIsa()});
  return rig.LogitsOf(tokens, 23);
}

// That the product's logits of a file are the reference's, but for `bound` of their spread.
void ExpectAgrees(const std::string& path, const std::vector<TokenId>& tokens, double bound, int stages = 2) {
  const auto reference = ReferenceModel::Open(path);
  const auto expected = reference->Logits(tokens);
  const LogitDifference difference = Compare(expected, LogitsBehindStages(path, tokens, stages));
  EXPECT_GT(LogitSpread(expected), 1);  // else the comparison says little
  EXPECT_LE(difference.worst / LogitSpread(expected), bound)
      << "at position " << difference.position << ", token " << difference.token;
  if (bound < kInt8Bound) {
    EXPECT_GT(reference->ChoiceMargin(), kLeastChoiceMargin) << "another seed, please";
  }
}

double FloatBound(const TinyArchitectureOptions& options) {
  return options.delta_value_heads > 0 ? kRecurrentFloatBound : kFloatBound;
}

double Int8Bound(const TinyArchitectureOptions& options) {
  if (options.delta_value_heads > 0) return kRecurrentInt8Bound;
  return options.kv_rank > 0 ? kLatentInt8Bound : kInt8Bound;
}

void ExpectAgrees(const TinyArchitectureOptions& options, double bound, int stages = 2) {
  SCOPED_TRACE(options.architecture);
  const TempDir dir;
  ExpectAgrees(WriteTinyArchitecture(dir.File("m.gguf"), options), SampleTokens(kSampleTokens, options.vocab), bound,
               stages);
}

TEST(AgainstReference, PlainModelsOfEveryWidthTypeAndRotationAgree) {
  const TinyModelOptions odd_widths = {
      .hidden = 58, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 74, .vocab = 323};
  TinyModelOptions fused = odd_widths;
  fused.type = TensorType::kBF16;
  fused.fused_qkv = true;
  const TinyModelOptions cases[] = {
      {},
      {.architecture = "qwen2", .tied = false},
      {.architecture = "llama", .tied = false},
      {.ffn_of_layers = {96, 32, 160, 64}},
      {.architecture = "llama", .layers = 2, .ffn_of_layers = {32, 224}, .biases = true},
      {.architecture = "llama", .vector_type = TensorType::kF16, .biases = true},
      {.heads = 6, .kv_heads = 1},
      {.heads = 3, .kv_heads = 3},
      odd_widths,
      fused,
      {.type = TensorType::kF16},
      {.type = TensorType::kBF16, .vector_type = TensorType::kBF16},
      {.type = TensorType::kQ8_0},
      {.architecture = "llama", .rope_scaling = "linear", .rope_factor = 4},
      {.freq_base = 1e6, .rope_scaling = "yarn", .rope_factor = 4, .original_context = 128},
      {.architecture = "qwen2", .rope_scaling = "yarn", .rope_factor = 8, .original_context = 4096},
      {.architecture = "llama", .rope_scaling = "yarn", .rope_factor = 4, .original_context = 128},
      {.architecture = "llama", .freq_base = 5e5, .rope_factors = true},
  };
  const TempDir dir;
  for (const TinyModelOptions& options : cases) {
    SCOPED_TRACE(&options - cases);
    const std::string path = WriteTinyModel(dir.File("m.gguf"), options);
    ExpectAgrees(path, SampleTokens(70, options.vocab), options.type == TensorType::kQ8_0 ? 0.04 : kFloatBound);
  }
}

TEST(AgainstReference, AFusedQkvMatrixGivesTheBitsOfThree) {
  const TempDir dir;
  const std::vector<TokenId> tokens = SampleTokens(40, 320);
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0}) {
    TinyModelOptions options{.architecture = "qwen2", .type = type};
    const auto separate = LogitsBehindStages(WriteTinyModel(dir.File("m.gguf"), options), tokens, 2);
    options.fused_qkv = true;
    EXPECT_EQ(LogitsBehindStages(WriteTinyModel(dir.File("m.gguf"), options), tokens, 2), separate);
  }
}

// What an architecture is compared with: itself, and itself with something there, absent or otherwise.
struct Variant {
  const char* what;
  std::function<void(TinyArchitectureOptions*)> change;
};

struct VariantGroup {
  std::function<bool(const TinyArchitectureOptions&)> applies;
  std::vector<Variant> variants;
};

std::function<bool(const TinyArchitectureOptions&)> Of(const std::set<std::string>& names) {
  return [names](const TinyArchitectureOptions& o) { return names.contains(o.architecture); };
}

bool Any(const TinyArchitectureOptions&) { return true; }
bool HasExperts(const TinyArchitectureOptions& o) { return o.experts > 0; }
bool HasExpertsWithoutBiases(const TinyArchitectureOptions& o) { return o.experts > 0 && !o.expert_biases; }
bool IsGemmaInThePlainBuild(const TinyArchitectureOptions& o) {
  return !kSanitized && (o.architecture == "gemma2" || o.architecture == "gemma3");
}

std::vector<VariantGroup> VariantGroups() {
  return {
      {Any,
       {{"as it is", [](auto*) {}},
        {"six layers", [](auto* o) { o->layers = 6; }},
        {"no matrices fused", [](auto* o) { o->fused_qkv = o->fused_ffn = false; }},
        {"one head of keys", [](auto* o) { o->kv_heads = o->kv_rank > 0 ? o->kv_heads : 1; }},
        {"shards", [](auto* o) { o->shards = 3; }}}},
      {HasExperts,
       {{"one of four", [](auto* o) { o->experts = 4, o->experts_used = 1, o->groups = o->groups_used = 0; }},
        {"three of sixteen", [](auto* o) { o->experts = 16, o->experts_used = 3; }},
        {"all", [](auto* o) { o->experts_used = o->experts, o->groups = o->groups_used = 0; }},
        {"narrow", [](auto* o) { o->expert_ffn = 22; }}}},
      {HasExpertsWithoutBiases, {{"gate and up fused", [](auto* o) { o->fused_gate_up = true; }}}},
      // Their routers have a bias for the choice.
      {Of({"glm4moe", "deepseek2", "minimax-m2"}),
       {{"softmax", [](auto* o) { o->gating = 1; }},
        {"groups", [](auto* o) { o->groups = 2, o->groups_used = 1; }},
        {"top-1 in groups", [](auto* o) { o->groups = 4, o->groups_used = 2, o->experts_used = 1; }}}},
      {Of({"glm4moe", "deepseek2"}),
       {{"no shared expert", [](auto* o) { o->shared_experts = 0; }},
        {"three shared experts", [](auto* o) { o->shared_experts = 3; }},
        {"no dense lead", [](auto* o) { o->dense_lead = 0; }},
        {"dense lead of two", [](auto* o) { o->dense_lead = 2; }},
        {"weights as they are", [](auto* o) { o->weights_norm = false, o->weights_scale = 0; }},
        {"a block for the token after the next, or none", [](auto* o) { o->nextn = !o->nextn; }}}},
      {Of({"gpt-oss", "gemma2", "gemma3"}),
       {{"window of 7", [](auto* o) { o->window = 7; }},
        {"window of 33", [](auto* o) { o->window = 33; }},
        {"window of all", [](auto* o) { o->window = o->context; }}}},
      // Their keys may say how far a window of which layers reaches.
      {Of({"gpt-oss", "gemma3"}),
       {{"a window of every third layer but one", [](auto* o) { o->window_period = 3; }},
        {"a window where an array says so",
         [](auto* o) {
           o->layers = 4, o->windowed = {false, true, true, false};
         }}}},
      {Of({"gpt-oss"}),
       {{"no YaRN", [](auto* o) { o->rope_scaling = "none"; }},
        {"YaRN's other factors", [](auto* o) { o->rope_factor = 32, o->original_context = 40; }}}},
      {Of({"gemma2", "gemma3"}), {{"another cap of the logits", [](auto* o) { o->logit_cap = 9; }}}},
      {IsGemmaInThePlainBuild,
       {{"the layers of the largest", [](auto* o) { o->layers = o->architecture == "gemma2" ? 46 : 62; }}}},
      {Of({"qwen3moe", "gemma3", "smollm3", "granite"}), {{"its own head", [](auto* o) { o->tied = false; }}}},
      {Of({"granite"}),
       {{"no rotation", [](auto* o) { o->rotates = false; }},
        {"other scales", [](auto* o) { o->embedding_scale = 12, o->residual_scale = 0.22, o->logit_scale = 0.5; }}}},
      {Of({"granite", "llama"}), {{"biases", [](auto* o) { o->qkv_biases = o->output_bias = o->ffn_biases = true; }}}},
      {Of({"llama"}),
       {{"fused, tied, with factors", [](auto* o) { o->fused_qkv = o->tied = o->rope_factors = true; }}}},
      {Of({"phi3"}),
       {{"a part rotated", [](auto* o) { o->rotated = o->head_dim - 2; }},
        {"no magnitude", [](auto* o) { o->rope_attention_factor = 0; }}}},
      {Of({"llama", "granite", "smollm3"}), {{"a part rotated", [](auto* o) { o->rotated = o->head_dim / 2; }}}},
      {Of({"llama", "phi3"}), {{"a window in every layer", [](auto* o) { o->window = 16; }}}},
      {Of({"deepseek2"}),
       {{"no rank of q", [](auto* o) { o->q_rank = 0; }},
        {"no selection bias", [](auto* o) { o->selection_bias = false; }},
        {"no YaRN", [](auto* o) { o->rope_scaling = "none", o->yarn_log_multiplier = 0; }},
        {"one head", [](auto* o) { o->heads = 1; }},
        {"no groups", [](auto* o) { o->groups = o->groups_used = 0; }}}},
      {Of({"glm4moe"}),
       {{"no norms of q and k", [](auto* o) { o->qk_norms = false; }},
        {"no biases of q, k and v", [](auto* o) { o->qkv_biases = false; }}}},
      {Of({"gemma2"}), {{"caps that no key names", [](auto* o) { o->attention_cap = o->logit_cap = 0; }}}},
      {Of({"gemma3"}), {{"its own base in windows", [](auto* o) { o->freq_base_windowed = 3e4; }}}},
      // The numbers of heads stay such that which key head a value head goes with shows.
      {Of({"qwen35", "qwen35moe", "qwen3next"}),
       {{"attention first",
         [](auto* o) {
           o->recurrent = {false, true, true, false};
         }},
        {"a delta net in every second layer", [](auto* o) { o->interval = 2, o->seed = 8; }},
        {"three key heads", [](auto* o) { o->delta_key_heads = 3; }},
        {"as many key heads as value heads", [](auto* o) { o->delta_key_heads = o->delta_value_heads; }},
        {"heads of 16", [](auto* o) { o->delta_head_dim = 16; }},
        {"heads of 64", [](auto* o) { o->delta_head_dim = 64, o->delta_key_heads = 2, o->delta_value_heads = 4; }},
        {"heads of 50", [](auto* o) { o->delta_head_dim = 50; }},
        {"two taps", [](auto* o) { o->conv_kernel = 2, o->seed = 8; }},
        {"eight taps", [](auto* o) { o->conv_kernel = 8; }},
        {"beta and alpha in F16", [](auto* o) { o->delta_type = TensorType::kF16; }},
        {"q, k and v of attention fused", [](auto* o) { o->fused_qkv = true; }}}},
      {Of({"qwen3next"}),
       {{"q, k, v and z fused", [](auto* o) { o->fused_in = true; }},
        {"q, k, v and z of three key heads fused", [](auto* o) { o->fused_in = true, o->delta_key_heads = 3; }}}},
      {Of({"qwen35moe", "qwen3next"}), {{"no shared expert", [](auto* o) { o->shared_experts = 0; }}}},
      // The stretched full layers beside unstretched windows are OLMo 3's.
      {Of({"olmo2"}),
       {{"windows", [](auto* o) { o->window = 16, o->layers = 5; }},
        {"windows and YaRN",
         [](auto* o) {
           o->window = 16, o->layers = 5, o->rope_scaling = "yarn", o->rope_factor = 8, o->original_context = 40;
         }}}},
  };
}

class ArchitectureAgainstReference : public ::testing::TestWithParam<std::string> {};

TEST_P(ArchitectureAgainstReference, EveryFeatureAgrees) {
  int stages = 0;
  for (const VariantGroup& group : VariantGroups()) {
    if (!group.applies(TinyArchitecture(GetParam()))) continue;
    for (const Variant& variant : group.variants) {
      SCOPED_TRACE(variant.what);
      TinyArchitectureOptions options = TinyArchitecture(GetParam());
      variant.change(&options);
      ExpectAgrees(options, FloatBound(options), 1 + stages++ % 3);
    }
  }
}

TEST_P(ArchitectureAgainstReference, StoredTypesAreDecodedBeforeTheProducts) {
  for (const TensorType type : {TensorType::kBF16, TensorType::kF16}) {
    const TinyArchitectureOptions options = TinyArchitecture(GetParam(), type);
    ExpectAgrees(options, FloatBound(options));
  }
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
    ExpectAgrees(options, Int8Bound(options));
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
    options.interval = 2;  // one layer of attention, of models with recurrent ones
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
    ExpectAgrees(path, tokens, Int8Bound(options));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ArchitectureAgainstReference, ::testing::ValuesIn(TinyArchitectureNames()),
                         ArchitectureTestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, ArchitectureAgainstReference, ::testing::ValuesIn(TinyRecurrentArchitectureNames()),
                         ArchitectureTestName);

}  // namespace
}  // namespace stagecoach::testing
