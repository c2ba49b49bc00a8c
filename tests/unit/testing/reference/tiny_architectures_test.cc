// What the writer of random models writes, seen by the reference: that every feature of an architecture is there and
// matters, so that a product that agrees with the reference on these files has all of them.

#include "tests/testing/models/tiny_architectures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "tests/testing/reference/agreement.h"
#include "tests/testing/reference/reference_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

// Beyond the windows; and beyond the original context, but for the sanitizers, to which that is the same.
constexpr int64_t kTokens = kSanitized ? 20 : 70;

std::vector<std::vector<double>> LogitsOf(const TinyArchitectureOptions& options, int64_t context = 0,
                                          int64_t tokens = kTokens) {
  const TempDir dir;
  const std::string path = WriteTinyArchitecture(dir.File("m.gguf"), options);
  return ReferenceModel::Open(path, context)->Logits(SampleTokens(tokens, options.vocab));
}

double RelativeDifference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  return Compare(a, b).worst / LogitSpread(a);
}

using Change = std::function<void(TinyArchitectureOptions*)>;

// That the options with a change give other logits, by far more than any arithmetic could.
void ExpectMatters(const std::string& architecture, const std::string& what, const Change& change) {
  TinyArchitectureOptions options = TinyArchitecture(architecture);
  const auto before = LogitsOf(options);
  change(&options);
  EXPECT_GT(RelativeDifference(before, LogitsOf(options)), 0.01) << architecture << ", " << what;
}

void ExpectSame(const std::string& architecture, const std::string& what, const Change& change) {
  TinyArchitectureOptions options = TinyArchitecture(architecture);
  const auto before = LogitsOf(options);
  change(&options);
  EXPECT_LT(RelativeDifference(before, LogitsOf(options)), 1e-12) << architecture << ", " << what;
}

// That the files open, and that the logits are finite, spread, and others at every position.
void ExpectLively(const TinyArchitectureOptions& options, int64_t tokens = kTokens) {
  const auto logits = LogitsOf(options, 0, tokens);
  double least_change = 1e300;
  for (size_t t = 0; t < logits.size(); ++t) {
    for (const double logit : logits[t]) ASSERT_TRUE(std::isfinite(logit)) << options.architecture;
    if (t > 0) least_change = std::min(least_change, Compare({logits[t - 1]}, {logits[t]}).worst);
  }
  EXPECT_GT(LogitSpread(logits), 2) << options.architecture;
  EXPECT_GT(least_change, 0.2) << options.architecture;
}

TEST(TinyArchitectures, EveryOneGivesLivelyLogits) {
  for (const std::string& name : TinyArchitectureNames()) {
    TinyArchitectureOptions options = TinyArchitecture(name);
    ExpectLively(options);
    options.layers = 6;
    options.seed = 2;
    ExpectLively(options);
  }
}

// Few experts and layers: whole blocks make wide rows.
void ExpectLivelyWith(const std::string& name, TensorType type, TensorType expert_type) {
  TinyArchitectureOptions options = TinyArchitecture(name, type, expert_type);
  options.layers = 2;
  if (options.experts > 0) options.experts = 4;
  if (options.groups > 0) options.groups = 2, options.groups_used = 1;
  ExpectLively(options, 6);
}

TEST(TinyArchitectures, MatricesMayHaveAnyType) {
  for (const std::string& name : TinyArchitectureNames()) {
    for (const TensorType type : {TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_K}) {
      ExpectLivelyWith(name, type, type);
    }
  }
  for (const std::string& name : TinyExpertArchitectureNames()) {
    ExpectLivelyWith(name, TensorType::kQ8_0, TensorType::kMXFP4);
    ExpectLivelyWith(name, TensorType::kQ5_K, TensorType::kIQ4_XS);
  }
}

TEST(TinyArchitectures, OneExpertOfFourOrThreeOfSixteenMayBeUsed) {
  for (const std::string& name : TinyExpertArchitectureNames()) {
    for (const auto& [experts, used] : {std::pair(4, 1), std::pair(16, 3)}) {
      TinyArchitectureOptions options = TinyArchitecture(name);
      options.experts = experts;
      options.experts_used = used;
      if (options.groups > 0) options.groups = 2, options.groups_used = 1;
      ExpectLively(options);
    }
  }
}

TEST(TinyArchitectures, WhatMayBeWrittenInTwoFormsIsTheSameModel) {
  for (const char* name : {"qwen3moe", "gpt-oss", "glm4moe", "llama", "granite"}) {
    ExpectSame(name, "fused qkv", [](auto* o) { o->fused_qkv = true; });
  }
  ExpectSame("phi3", "qkv apart", [](auto* o) { o->fused_qkv = false; });
  ExpectSame("phi3", "gate and up apart", [](auto* o) { o->fused_ffn = false; });
  for (const char* name : {"qwen3moe", "glm4moe", "deepseek2", "minimax-m2"}) {
    ExpectSame(name, "fused gate and up", [](auto* o) { o->fused_gate_up = true; });
    ExpectSame(name, "shards", [](auto* o) { o->shards = 3; });
  }
  ExpectSame("deepseek2", "kv_b in one", [](auto* o) { o->split_kv_b = false; });
  ExpectSame("gpt-oss", "pattern as a number", [](auto* o) { o->window_period = 2; });
  ExpectSame("gpt-oss", "pattern as an array", [](auto* o) { o->windowed = {true, false, true}; });
}

TEST(TinyArchitectures, TheBlockThatPredictsTheTokenAfterTheNextIsNoPartOfTheForwardPass) {
  ExpectSame("glm4moe", "without", [](auto* o) { o->nextn = false; });
  ExpectSame("deepseek2", "with", [](auto* o) { o->nextn = true; });
}

TEST(TinyArchitectures, TheFeaturesOfAttentionMatter) {
  for (const char* name : {"gpt-oss", "glm4moe"}) {
    ExpectMatters(name, "q, k, v biases", [](auto* o) { o->qkv_biases = false; });
  }
  for (const char* name : {"llama", "granite", "qwen3moe"}) {
    ExpectMatters(name, "q, k, v biases", [](auto* o) { o->qkv_biases = true; });
  }
  for (const char* name : {"qwen3moe", "glm4moe", "minimax-m2", "gemma3"}) {
    ExpectMatters(name, "norms of q and k", [](auto* o) { o->qk_norms = false; });
  }
  ExpectMatters("minimax-m2", "norms over the whole vectors", [](auto* o) { o->whole_norms = false; });
  ExpectMatters("gpt-oss", "output bias", [](auto* o) { o->output_bias = false; });
  ExpectMatters("llama", "output bias", [](auto* o) { o->output_bias = true; });
  ExpectMatters("gpt-oss", "sinks", [](auto* o) { o->sinks = false; });
  for (const char* name : {"gpt-oss", "gemma2", "gemma3"}) {
    ExpectMatters(name, "one position more in the window", [](auto* o) { ++o->window; });
    ExpectMatters(name, "window", [](auto* o) { o->window = 4000; });
    ExpectMatters(name, "which layers are windowed", [](auto* o) { o->window_period = 3; });
  }
  ExpectMatters("olmo2", "window", [](auto* o) { o->window = 16; });
  ExpectMatters("gemma2", "cap of the scores", [](auto* o) { o->attention_cap = 0; });
  ExpectMatters("granite", "scale of the scores", [](auto* o) { o->attention_scale = 0.3; });
  ExpectMatters("deepseek2", "rank of q", [](auto* o) { o->q_rank = 0; });
}

TEST(TinyArchitectures, TheFeaturesOfRotationMatter) {
  for (const char* name : {"gpt-oss", "deepseek2"}) {
    ExpectMatters(name, "YaRN", [](auto* o) { o->rope_scaling = "none"; });
    ExpectMatters(name, "factor", [](auto* o) { o->rope_factor = 4; });
    ExpectMatters(name, "original context", [](auto* o) { o->original_context = 400; });
  }
  ExpectMatters("deepseek2", "log multiplier", [](auto* o) { o->yarn_log_multiplier = 0.05; });
  for (const char* name : {"glm4moe", "minimax-m2"}) {
    ExpectMatters(name, "rotated part", [](auto* o) { o->rotated = o->head_dim; });
  }
  ExpectMatters("phi3", "rotated part", [](auto* o) { o->rotated = o->head_dim - 2; });
  ExpectMatters("phi3", "factors", [](auto* o) { o->long_rope_factors = true; });
  ExpectMatters("phi3", "magnitude", [](auto* o) { o->rope_attention_factor = 0; });
  ExpectMatters("gemma3", "base of windowed layers", [](auto* o) { o->freq_base_windowed = 1e6; });
  ExpectMatters("gemma3", "factor of the other layers", [](auto* o) { o->rope_factor = 0; });
  ExpectMatters("llama", "factors", [](auto* o) { o->rope_factors = true; });
  ExpectMatters("granite", "rotation", [](auto* o) { o->rotates = false; });
  ExpectMatters("smollm3", "the layer without rotation", [](auto* o) { o->architecture = "llama"; });
}

TEST(TinyArchitectures, TheFeaturesOfExpertsMatter) {
  for (const std::string& name : TinyExpertArchitectureNames()) {
    ExpectMatters(name, "experts used", [](auto* o) { o->experts_used = 1; });
    ExpectMatters(name, "all experts", [](auto* o) { o->experts_used = 8, o->groups = 0, o->groups_used = 0; });
  }
  for (const char* name : {"glm4moe", "deepseek2", "minimax-m2"}) {
    ExpectMatters(name, "selection bias", [](auto* o) { o->selection_bias = false; });
    ExpectMatters(name, "gating function", [](auto* o) { o->gating = 1; });
    ExpectMatters(name, "groups", [](auto* o) { o->groups = 2, o->groups_used = 1; });
  }
  for (const char* name : {"glm4moe", "deepseek2"}) {
    ExpectMatters(name, "sum of the weights", [](auto* o) { o->weights_norm = false; });
    ExpectMatters(name, "scale of the weights", [](auto* o) { o->weights_scale = 0; });
    ExpectMatters(name, "shared expert", [](auto* o) { o->shared_experts = 0; });
    ExpectMatters(name, "dense lead", [](auto* o) { o->dense_lead = 2; });
  }
  ExpectMatters("deepseek2", "no groups", [](auto* o) { o->groups = 0; });
  ExpectMatters("gpt-oss", "router bias", [](auto* o) { o->router_bias = false; });
  ExpectMatters("gpt-oss", "biases of experts", [](auto* o) { o->expert_biases = false; });
}

TEST(TinyArchitectures, WhatRecurrentLayersMayBeWrittenAsIsTheSameModel) {
  ExpectSame("qwen3next", "q, k, v and z in one", [](auto* o) { o->fused_in = true; });
  for (const std::string& name : TinyRecurrentArchitectureNames()) {
    ExpectLively(TinyArchitecture(name));
    ExpectSame(name, "fused qkv of attention", [](auto* o) { o->fused_qkv = true; });
    ExpectSame(name, "layers as an array", [](auto* o) { o->recurrent = {true, true, false, true}; });
  }
  ExpectSame("qwen35", "without a block for the token after the next", [](auto* o) { o->nextn = false; });
}

TEST(TinyArchitectures, TheFeaturesOfRecurrentLayersMatter) {
  for (const std::string& name : TinyRecurrentArchitectureNames()) {
    ExpectMatters(name, "which layers are recurrent", [](auto* o) { o->recurrent = {true, false, true, true}; });
    ExpectMatters(name, "rotated part of attention", [](auto* o) { o->rotated = o->head_dim, o->sections = {}; });
    ExpectMatters(name, "norms of q and k", [](auto* o) { o->qk_norms = false; });
  }
  for (const char* name : {"qwen35moe", "qwen3next"}) {
    ExpectMatters(name, "shared expert", [](auto* o) { o->shared_experts = 0; });
  }
}

TEST(TinyArchitectures, TheFeaturesAroundTheLayersMatter) {
  for (const std::string& name : TinyArchitectureNames()) {
    if (name == "gemma2" || name == "deepseek2") continue;  // a head of its own is no option, or is required
    ExpectMatters(name, "head", [](auto* o) { o->tied = !o->tied; });
  }
  ExpectMatters("gemma2", "cap of the logits", [](auto* o) { o->logit_cap = 0; });
  ExpectMatters("gemma3", "cap of the logits", [](auto* o) { o->logit_cap = 4; });
  ExpectMatters("granite", "scale of the embedding", [](auto* o) { o->embedding_scale = 3; });
  ExpectMatters("granite", "scale of what is added", [](auto* o) { o->residual_scale = 1; });
  ExpectMatters("granite", "scale of the logits", [](auto* o) { o->logit_scale = 1; });
  ExpectMatters("llama", "biases of the FFN", [](auto* o) { o->ffn_biases = true; });
}

TEST(TinyArchitectures, AContextBeyondTheOriginalOneTakesTheLongFactors) {
  TinyArchitectureOptions phi = TinyArchitecture("phi3");
  phi.long_rope_factors = true;
  const auto served = LogitsOf(phi);
  EXPECT_GT(RelativeDifference(LogitsOf(phi, phi.original_context), served), 0.01);
  EXPECT_LT(RelativeDifference(LogitsOf(phi, phi.original_context + 1), served), 1e-12);
}

}  // namespace
}  // namespace stagecoach::testing
