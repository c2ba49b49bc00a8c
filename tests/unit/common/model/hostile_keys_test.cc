// Keys of experts, windows, latent attention, delta nets and scales that no model can have.

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/model/model_description.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;

constexpr uint32_t kTwoTo31 = uint32_t{1} << 31;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

using Spoil = std::function<void(GgufWriter&, const std::string& key)>;

struct HostileKey {
  std::string key;
  Spoil spoil;
  std::string said;   // behind the key's name
  std::string named;  // another key, or a tensor, that the sentence names instead
};

template <typename T>
Spoil To(const T& value) {
  return [value](GgufWriter& writer, const std::string& key) { writer.Set(key, value); };
}
Spoil Gone() {
  return [](GgufWriter& writer, const std::string& key) { writer.Remove(key); };
}

void ExpectRefused(const std::string& architecture, const std::vector<HostileKey>& cases) {
  const TempDir dir;
  const std::string path = dir.File("m.gguf");
  const GgufWriter good = testing::TinyArchitectureModel(testing::TinyArchitecture(architecture));
  const auto opened = OpenModel(testing::WriteModel(path, good));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::string prefix = architecture + ".";
  for (const HostileKey& hostile : cases) {
    GgufWriter writer = good;
    hostile.spoil(writer, prefix + hostile.key);
    const auto model = OpenModel(testing::WriteModel(path, writer));
    ASSERT_FALSE(model.ok()) << hostile.key << ", expected: " << hostile.said;
    const std::string message(model.status().message());
    EXPECT_THAT(message, HasSubstr("m.gguf'"));
    const std::string named = hostile.named.empty() ? "key '" + prefix + hostile.key + "' " : hostile.named;
    EXPECT_THAT(message, HasSubstr(named + hostile.said));
  }
}

TEST(HostileKeys, OfRoutedExperts) {
  ExpectRefused(
      "qwen3moe",
      {{"expert_count", Gone(), "is missing, expected an integer from 1 to 4096"},
       {"expert_count", To(uint32_t{0}), "is 0, expected 1 to 4096"},
       {"expert_count", To(uint32_t{1}), "is 2, expected 1 to 1", "key 'qwen3moe.expert_used_count' "},
       {"expert_count", To(uint32_t{9}), "has shape [54, 8], expected [54, 9]", "tensor 'blk.0.ffn_gate_inp.weight' "},
       {"expert_count", To(kTwoTo31), "is 2147483648, expected 1 to 4096"},
       {"expert_count", To(int32_t{-1}), "is -1, expected 1 to 4096"},
       {"expert_count", To(kMost), "is 9223372036854775807, expected 1 to 4096"},
       {"expert_count", To(std::string("8")), "has type string"},
       {"expert_count", To(8.0f), "has type float"},
       {"expert_used_count", Gone(), "is missing, expected an integer from 1 to 8"},
       {"expert_used_count", To(uint32_t{0}), "is 0, expected 1 to 8"},
       {"expert_used_count", To(uint32_t{9}), "is 9, expected 1 to 8"},
       {"expert_used_count", To(kTwoTo31), "is 2147483648, expected 1 to 8"},
       {"expert_used_count", To(int32_t{-1}), "is -1, expected 1 to 8"},
       {"expert_feed_forward_length", To(uint32_t{0}), "is 0, expected 1 to 16777216"},
       {"expert_feed_forward_length", To(kTwoTo31), "is 2147483648, expected 1 to 16777216"},
       {"expert_feed_forward_length", To(uint32_t{39}), "has shape [54, 38, 8], expected [54, 39, 8]",
        "tensor 'blk.0.ffn_gate_exps.weight' "},
       {"expert_feed_forward_length", To(std::vector<uint32_t>{38, 38, 40}),
        "is 38 in layer 0 and 40 in layer 2; only models that have the same in every layer are supported"},
       {"expert_gating_func", To(uint32_t{2}), "is 2, and architecture qwen3moe has its own alone"},
       {"expert_gating_func", To(uint32_t{99}), "is 99, and architecture qwen3moe has its own alone"},
       {"expert_weights_scale", To(2.0f), "is 2, expected 0 or 1 of architecture qwen3moe"},
       {"expert_shared_count", To(uint32_t{1}), "is 1, expected 0: architecture qwen3moe has no shared experts"},
       {"expert_group_count", To(uint32_t{3}), "is 3, expected a divisor of expert_count 8"},
       {"leading_dense_block_count", To(uint32_t{4}), "is 4, expected 0 to 3"},
       {"nextn_predict_layers", To(uint32_t{3}), "is 3, expected 0 to 2"},
       {"attention.head_count",
        [](GgufWriter& writer, const std::string& key) {
          writer.Set(key, uint32_t{65536});
          writer.Set("qwen3moe.attention.key_length", uint32_t{1024});
          writer.Set("qwen3moe.attention.value_length", uint32_t{1024});
        },
        "is 65536, whose heads are 67108864 wide together, expected at most 16777216"}});
}

TEST(HostileKeys, OfSharedExpertsAndBlocksThatDraft) {
  ExpectRefused("glm4moe",
                {{"expert_gating_func", To(uint32_t{4}), "is 4, and architecture glm4moe has 1 (softmax), 2 (sigmoid)"},
                 {"expert_gating_func", To(uint32_t{99}), "is 99, and architecture glm4moe has 1 (softmax)"},
                 {"expert_gating_func", To(int32_t{-1}), "is -1, expected 0 to"},
                 {"expert_weights_scale", To(kNotANumber), "holds nan, expected a finite number"},
                 {"expert_weights_scale", To(kInfinite), "holds inf, expected a finite number"},
                 {"expert_weights_scale", To(-1.0f), "is -1, expected a finite number of at least 0"},
                 {"expert_weights_scale", To(1e200), "is 1e+200, expected a number from 1e-30 to 1e30"},
                 {"expert_weights_norm", To(uint32_t{1}), "has type unsigned integer"},
                 {"expert_shared_count", To(kTwoTo31), "is 2147483648, expected 0 to 4096"},
                 {"expert_shared_count", To(uint32_t{2}), "has shape [54, 38], expected [54, 76]",
                  "tensor 'blk.1.ffn_gate_shexp.weight' "},
                 {"expert_shared_count", To(uint32_t{0}), "is not part of a supported glm4moe model",
                  "tensor 'blk.1.ffn_gate_shexp.weight' "},
                 {"expert_shared_feed_forward_length", To(uint32_t{39}), "is 39, expected 38"},
                 {"leading_dense_block_count", To(uint32_t{5}), "is 5, expected 0 to 4"},
                 {"leading_dense_block_count", To(kTwoTo31), "is 2147483648, expected 0 to 4"},
                 {"leading_dense_block_count", To(int32_t{-1}), "is -1, expected 0 to 4"},
                 {"nextn_predict_layers", To(uint32_t{4}), "is 4, expected 0 to 3"},
                 {"nextn_predict_layers", To(kTwoTo31), "is 2147483648, expected 0 to 3"},
                 {"nextn_predict_layers", To(uint32_t{0}), "is not part of a supported glm4moe model of 4 layers",
                  "tensor 'blk.3.nextn.eh_proj.weight' "},
                 {"rope.dimension_count", To(uint32_t{0}), "is 0, expected 2 to 20"},
                 {"rope.dimension_count", To(uint32_t{9}), "is 9, expected an even number"},
                 {"rope.dimension_count", To(uint32_t{22}), "is 22, expected 2 to 20"},
                 {"rope.dimension_count", To(kTwoTo31), "is 2147483648, expected 2 to 20"}});
}

TEST(HostileKeys, OfGroupsOfExperts) {
  ExpectRefused("deepseek2",
                {{"expert_group_count", To(uint32_t{3}), "is 3, expected a divisor of expert_count 8"},
                 {"expert_group_count", To(uint32_t{8}), "is 8, expected a divisor of expert_count 8 that leaves two"},
                 {"expert_group_count", To(kTwoTo31), "is 2147483648, expected 0 to 4096"},
                 {"expert_group_count", To(int32_t{-4}), "is -4, expected 0 to 4096"},
                 {"expert_group_used_count", Gone(), "is missing, expected an integer from 1 to 4"},
                 {"expert_group_used_count", To(uint32_t{0}), "is 0, expected 1 to 4"},
                 {"expert_group_used_count", To(uint32_t{5}), "is 5, expected 1 to 4"},
                 {"expert_group_used_count",
                  [](GgufWriter& writer, const std::string& key) {
                    writer.Set(key, uint32_t{1});
                    writer.Set("deepseek2.expert_used_count", uint32_t{3});
                  },
                  "is 1, whose groups have 2 experts, fewer than expert_used_count 3"}});
  ExpectRefused("gpt-oss", {{"expert_group_count", To(uint32_t{4}), "is 4, expected 0 or 1 with a softmax of the"}});
}

TEST(HostileKeys, OfLatentAttention) {
  ExpectRefused(
      "deepseek2",
      {{"attention.kv_lora_rank", Gone(), "is missing, expected an integer from 2 to 1024"},
       {"attention.kv_lora_rank", To(uint32_t{0}), "is 0, expected 2 to 1024"},
       {"attention.kv_lora_rank", To(kTwoTo31), "is 2147483648, expected 2 to 1024"},
       {"attention.kv_lora_rank", To(uint32_t{1024}), "is 1024, with rope.dimension_count 10 expected an even sum"},
       {"attention.kv_lora_rank", To(uint32_t{35}), "is 35, with rope.dimension_count 10 expected an even sum"},
       {"attention.q_lora_rank", To(kTwoTo31), "is 2147483648, expected 0 to 16777216"},
       {"attention.q_lora_rank", To(int32_t{-1}), "is -1, expected 0 to 16777216"},
       {"attention.q_lora_rank", To(uint32_t{0}), "is missing", "tensor 'blk.0.attn_q.weight' "},
       {"attention.key_length_mla", Gone(), "is missing: the file is of the older form"},
       {"attention.key_length_mla", To(uint32_t{0}), "is 0, expected 4 to 1024"},
       {"attention.key_length_mla", To(uint32_t{25}), "is 25"},
       {"attention.key_length_mla", To(kTwoTo31), "is 2147483648, expected 4 to 1024"},
       {"attention.value_length_mla", Gone(), "is missing, expected an integer from 2 to 1024"},
       {"attention.value_length_mla", To(uint32_t{19}), "is 19, expected an even number"},
       {"attention.value_length_mla", To(kTwoTo31), "is 2147483648, expected 2 to 1024"},
       {"attention.key_length", To(uint32_t{45}), "is 45, expected 44"},
       {"attention.value_length", To(uint32_t{35}), "is 35, expected 34"},
       {"attention.head_count_kv", To(uint32_t{5}), "is 5, expected 1 with latent attention"},
       {"attention.head_count", To(kTwoTo31), "is 2147483648, expected 1 to 65536"},
       {"rope.dimension_count", Gone(), "is missing"},
       {"rope.dimension_count", To(uint32_t{0}), "is 0, expected 2 to 22"},
       {"rope.dimension_count", To(uint32_t{7}), "is 7, expected an even number"},
       {"rope.dimension_count", To(uint32_t{24}), "is 24, expected 2 to 22"},
       {"rope.scaling.yarn_log_multiplier", To(kNotANumber), "holds nan, expected a finite number"},
       {"rope.scaling.yarn_log_multiplier", To(1e9), "is 1e+09, expected at most 1000"},
       {"rope.scaling.yarn_ext_factor", To(1e9), "is 1e+09, expected 0 to 1000"}});
}

TEST(HostileKeys, OfDeltaNets) {
  constexpr char kRecurrent[] = "attention.recurrent_layers", kSections[] = "rope.dimension_sections";
  const auto all_recurrent = To(std::vector<bool>(4, true));
  // 4 layers, 2 key heads, 6 value heads of 10, kernels of 4, 5 rotated pairs; the width of what is made of a row is
  // 2 * 2 * 10 + 2 * 6 * 10.
  ExpectRefused(
      "qwen35moe",
      {{"ssm.state_size", Gone(), "is missing, expected an integer from 2 to 1024"},
       {"ssm.state_size", To(uint32_t{0}), "is 0, expected 2 to 1024"},
       {"ssm.state_size", To(kTwoTo31), "is 2147483648, expected 2 to 1024"},
       {"ssm.state_size", To(int32_t{-1}), "is -1, expected 2 to 1024"},
       {"ssm.state_size", To(uint32_t{11}), "is 11, expected an even number"},
       {"ssm.state_size", To(uint32_t{12}), "is 60, expected 72, ssm.time_step_rank * ssm.state_size",
        "key 'qwen35moe.ssm.inner_size' "},
       {"ssm.conv_kernel", Gone(), "is missing, expected an integer from 2 to 8"},
       {"ssm.conv_kernel", To(uint32_t{0}), "is 0, expected 2 to 8"},
       {"ssm.conv_kernel", To(uint32_t{1}), "is 1, expected 2 to 8"},
       {"ssm.conv_kernel", To(uint32_t{9}), "is 9, expected 2 to 8"},
       {"ssm.conv_kernel", To(kTwoTo31), "is 2147483648, expected 2 to 8"},
       {"ssm.conv_kernel", To(uint32_t{5}), "has shape [4, 100], expected [5, 100]",
        "tensor 'blk.0.ssm_conv1d.weight' "},
       {"ssm.group_count", Gone(), "is missing, expected an integer from 1 to 65536"},
       {"ssm.group_count", To(uint32_t{0}), "is 0, expected 1 to 65536"},
       {"ssm.group_count", To(uint32_t{4}), "is 6, expected a multiple of ssm.group_count 4",
        "key 'qwen35moe.ssm.time_step_rank' "},
       {"ssm.group_count", To(uint32_t{3}), "has shape [54, 100], expected [54, 120]",
        "tensor 'blk.0.attn_qkv.weight' "},
       {"ssm.time_step_rank", To(uint32_t{0}), "is 0, expected 1 to 65536"},
       {"ssm.time_step_rank", To(uint32_t{1}), "is 1, expected a multiple of ssm.group_count 2"},
       {"ssm.time_step_rank", To(kTwoTo31), "is 2147483648, expected 1 to 65536"},
       {"ssm.time_step_rank",
        [](GgufWriter& writer, const std::string& key) {
          writer.Set(key, uint32_t{65536});
          writer.Set("qwen35moe.ssm.state_size", uint32_t{1024});
        },
        "is 65536, whose heads are 134221824 wide together with keys and gates, expected at most 16777216"},
       {"ssm.inner_size", To(uint32_t{61}), "is 61, expected 60"},
       {"ssm.v_head_reordered", To(uint32_t{1}), "has type unsigned integer"},
       {"full_attention_interval", To(uint32_t{0}), "is 0, expected 1 to 1024"},
       {"full_attention_interval", To(kTwoTo31), "is 2147483648, expected 1 to 1024"},
       {"full_attention_interval", To(uint32_t{5}),
        "leaves no attention in 4 layers, expected at most 4, or more layers"},
       {kRecurrent, all_recurrent, "leaves no attention in 4 layers, expected one at least"},
       {kRecurrent, To(std::vector<bool>(3)), "is an array of 3 values, expected 4, one a layer"},
       {kRecurrent, To(std::vector<uint32_t>{1, 1, 0, 1, 0}), "is an array of 5 values, expected 4, one a layer"},
       {kRecurrent, To(std::vector<int32_t>{1, 2, 0, 1}), "is 2 in layer 1, expected 0 or 1"},
       {kRecurrent, To(std::vector<int32_t>{1, -1, 0, 1}), "is -1 in layer 1, expected 0 or 1"},
       {kRecurrent, To(std::vector<std::string>(4, "yes")), "has type array of string"},
       {kRecurrent, To(uint32_t{1}), "is no array, expected one value a layer"},
       {kSections, To(std::vector<int32_t>{1, 2, 2, 0}),
        "is [1, 2, 2, 0], expected sections of time, height and width"},
       {kSections, To(std::vector<int32_t>{2, 2, 0, 1}),
        "is [2, 2, 0, 1], expected sections of time, height and width"},
       {kSections, To(std::vector<int32_t>(1000000, 3)), "is an array of 1000000 values, expected 3 or 4"},
       {kSections, To(uint32_t{3}), "has type unsigned integer"},
       {"rope.dimension_count", To(uint32_t{12}), "is [2, 2, 1, 0], expected sections of time, height and width that",
        "key 'qwen35moe.rope.dimension_sections' "},
       {"expert_shared_feed_forward_length", To(kTwoTo31), "is 2147483648, expected 0 to 16777216"},
       {"expert_shared_feed_forward_length", To(uint32_t{39}), "has shape [54, 38], expected [54, 39]",
        "tensor 'blk.0.ffn_gate_shexp.weight' "},
       {"expert_shared_feed_forward_length", To(uint32_t{0}), "is not part of a supported qwen35moe model",
        "tensor 'blk.0.ffn_gate_shexp.weight' "},
       {"attention.sliding_window", To(uint32_t{100}), "is 100, expected 0 or at least the context of 512"},
       {"nextn_predict_layers", To(uint32_t{4}), "is 4, expected 0 to 3"}});
}

TEST(HostileKeys, OfWindows) {
  constexpr char kSliding[] = "attention.sliding_window";
  constexpr char kWindowed[] = "attention.sliding_window_pattern";
  ExpectRefused("gpt-oss", {{kSliding, Gone(), "is missing, expected an integer from 1 to"},
                            {kSliding, To(uint32_t{0}), "is 0, expected 1 to"},
                            {kSliding, To(int32_t{-128}), "is -128, expected 1 to"},
                            {kSliding, To(std::string("128")), "has type string"},
                            {kWindowed, To(std::vector<uint32_t>{1, 0}), "is an array of 2 values, expected 3, one a"},
                            {kWindowed, To(std::vector<bool>{true, false, true, true}), "is an array of 4 values"},
                            {kWindowed, To(std::vector<uint32_t>{1, 2, 0}), "is 2 in layer 1, expected 0 to 1"},
                            {kWindowed, To(kTwoTo31), "is 2147483648, expected 0 to 1024"},
                            {kWindowed, To(int32_t{-1}), "is -1, expected 0 to 1024"},
                            {kWindowed, To(std::string("yes")), "has type string"}});
  ExpectRefused("gemma2", {{kSliding, To(uint32_t{0}), "is 0, expected 1 to"}});
  ExpectRefused("gemma3", {{kSliding, To(uint32_t{0}), "is 0, expected 1 to"},
                           {"rope.freq_base_swa", To(kNotANumber), "holds nan, expected a finite number"},
                           {"rope.freq_base_swa", To(0.0f), "is 0, expected a finite number above 1"}});
}

TEST(HostileKeys, ThatAreNamesAreShownWithoutWhatATerminalObeys) {
  const TempDir dir;
  const std::string path = dir.File("m.gguf");
  const auto refusal = [&path](const std::string& key, const std::string& name) {
    GgufWriter writer = testing::TinyArchitectureModel(testing::TinyArchitecture("llama"));
    writer.Set(key, name);
    return std::string(OpenModel(testing::WriteModel(path, writer)).status().message());
  };
  for (const std::string key : {"general.architecture", "llama.rope.scaling.type"}) {
    EXPECT_THAT(refusal(key, "a\x1b[2J\nruns here: yes"),
                HasSubstr("key '" + key + "' is 'a\\x1b[2J\\nruns here: yes'; supported "));
    EXPECT_LT(refusal(key, std::string(100000, 'x')).size(), 500u);
  }
}

template <typename Number>
std::shared_ptr<const ModelDescription> WithWindow(const std::string& architecture, Number window) {
  const TempDir dir;
  GgufWriter writer = testing::TinyArchitectureModel(testing::TinyArchitecture(architecture));
  writer.Set(architecture + ".attention.sliding_window", window);
  return OpenModel(testing::WriteModel(dir.File("m.gguf"), writer)).value();
}

TEST(HostileKeys, AWindowOfAnySizeThatHidesNothingIsTaken) {
  for (const char* architecture : {"gpt-oss", "gemma3", "qwen3moe", "gemma2"}) {
    EXPECT_EQ(WithWindow(architecture, kMost)->hyper.group_windows(), std::vector<int64_t>{0});
  }
}

// What converters write where a model has none.
TEST(HostileKeys, AWindowOfZeroIsNoneWhereLayersNeedNone) {
  for (const char* architecture : {"llama", "phi3", "olmo2", "qwen3moe", "glm4moe"}) {
    const auto model = WithWindow(architecture, uint32_t{0});
    for (const LayerSpec& layer : model->hyper.layers) {
      EXPECT_NE(layer.attention.kind, AttentionKind::kWindowed) << architecture;
    }
  }
}

TEST(HostileKeys, OfScalesAndCaps) {
  for (const std::string key : {"logit_scale", "embedding_scale", "residual_scale"}) {
    ExpectRefused("granite", {{key, Gone(), "is missing, expected a finite number above 0"},
                              {key, To(0.0f), "is 0, expected a finite number above 0"},
                              {key, To(kNotANumber), "holds nan, expected a finite number"},
                              {key, To(kInfinite), "holds inf, expected a finite number"},
                              {key, To(1e31f), "is 1e+31, expected a number from 1e-30 to 1e30"},
                              {key, To(std::string("1")), "has type string"}});
  }
  ExpectRefused("granite", {{"attention.scale", To(-1.0f), "is -1, expected a finite number of at least 0"},
                            {"attention.scale", To(kNotANumber), "holds nan, expected a finite number"},
                            {"attention.scale", To(1e300), "is 1e+300, expected a number from 1e-30 to 1e30"}});
  for (const std::string key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    ExpectRefused("gemma2", {{key, To(kNotANumber), "holds nan, expected a finite number"},
                             {key, To(kInfinite), "holds inf, expected a finite number"},
                             {key, To(-1.0f), "is -1, expected a finite number of at least 0"},
                             {key, To(1e-60), "is 1e-60, expected a number from 1e-30 to 1e30"}});
  }
}

struct BadKey {
  std::string key;
  Spoil spoil;
  std::string said;  // behind the key's name
  std::string also;  // somewhere in the message
};

void ExpectBad(absl::StatusCode code, const std::vector<BadKey>& cases) {
  const TempDir dir;
  for (const BadKey& bad : cases) {
    GgufWriter writer = testing::TinyModel({});
    bad.spoil(writer, bad.key);
    const absl::Status status = OpenModel(testing::WriteModel(dir.File("m.gguf"), writer)).status();
    EXPECT_EQ(status.code(), code) << bad.key << ": " << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(absl::StrCat("'", dir.File("m.gguf"), "'")),
                                        HasSubstr(absl::StrCat("'", bad.key, "' ", bad.said)), HasSubstr(bad.also)));
  }
}

TEST(BadHyperParameters, OutOfTheirRangesAreRefusedWithFileKeyAndValues) {
  const std::string heads = "qwen3.attention.head_count", key_length = "qwen3.attention.key_length";
  const std::string epsilon = "qwen3.attention.layer_norm_rms_epsilon", factor = "qwen3.rope.scaling.factor";
  ExpectBad(absl::StatusCode::kInvalidArgument,
            {{"general.architecture", Gone(), "is missing", "llama, minimax-m2"},
             {"qwen3.block_count", Gone(), "is missing", "1 to 1024"},
             {"qwen3.block_count", To(uint32_t{0}), "is 0", "1 to 1024"},
             {"qwen3.block_count", To(uint32_t{1025}), "is 1025", "1 to 1024"},
             {"qwen3.block_count", To(int32_t{-1}), "is -1", ""},
             {"qwen3.block_count", To(std::string("4")), "has type string", "an integer"},
             {"qwen3.context_length", To(uint32_t{0}), "is 0", ""},
             {"qwen3.embedding_length", To(uint32_t{0}), "is 0", ""},
             {"qwen3.feed_forward_length", To(uint32_t{0}), "is 0", ""},
             {"qwen3.feed_forward_length", To(std::vector<uint32_t>{96, 0, 96, 96}), "is 0 in layer 1", "1 to"},
             {heads, To(uint32_t{0}), "is 0", ""},
             {heads, To(std::vector<uint32_t>(3, 4)), "is an array of 3", "expected 4"},
             {heads, To(std::vector<uint32_t>(4, 0)), "is 0", "1 to"},
             {heads, To(std::vector<std::string>(4, "4")), "", "array of string, expected array of an integer"},
             {heads + "_kv", To(uint32_t{0}), "is 0", ""},
             {heads + "_kv", To(uint32_t{3}), "is 3", "divisor"},
             {key_length, To(uint32_t{33}), "is 33", "even number from 2 to 1024"},
             {key_length, To(uint32_t{2048}), "is 2048", "1024"},
             {epsilon, Gone(), "is missing", ""},
             {epsilon, To(0.0f), "is 0", "above 0"},
             {epsilon, To(kNotANumber), "holds nan", "finite"},
             {epsilon, To(1e-60), "is 1e-60", "1e-30 to 1"},
             {"qwen3.rope.freq_base", To(1.0f), "is 1", "above 1"},
             {"qwen3.rope.freq_base", To(kInfinite), "holds inf", "finite"},
             {factor, To(0.5f), "is 0.5", "at least 1"},
             {factor, To(-2.0f), "is -2", ""},
             {"qwen3.vocab_size", To(uint32_t{99}), "is 99", "320 rows"}});
}

TEST(BadHyperParameters, OfWhatIsNotComputedAreRefused) {
  const std::string architecture = "general.architecture", attention = "qwen3.attention.";
  ExpectBad(absl::StatusCode::kUnimplemented,
            {{architecture, To(std::string("gpt2")), "is 'gpt2'", "llama, minimax-m2"},
             {architecture, To(std::string("mamba2")), "is 'mamba2'", "llama, minimax-m2"},
             {"qwen3.expert_count", To(uint32_t{128}), "is 128", "architecture qwen3 has no experts"},
             {attention + "causal", To(false), "is false", "expected true"},
             {attention + "sliding_window", To(uint32_t{256}), "is 256", "architecture qwen3 has no windows"},
             {attention + "sliding_window", To(uint32_t{256}), "is 256", "512"},
             {attention + "scale", To(0.25f), "is 0.25", "expected 0"},
             {attention + "temperature_scale", To(0.1f), "is 0.1", "queries grow with their position"},
             {"qwen3.rope.global.freq_base", To(1e6f), "is 1e+06", "another name than rope.freq_base"},
             {"prism.hadamard.block", To(uint32_t{128}), "", "Hadamard"},
             {"qwen3.rope.scaling.type", To(std::string("longrope")), "is 'longrope'", "none, linear, yarn"},
             {attention + "value_length", To(uint32_t{16}), "is 16", "expected 32"},
             {attention + "head_count_kv", To(std::vector<uint32_t>{2, 2, 1, 2}), "is 2 in layer 0 and 1 in layer 2",
              "the same in every layer"}});
}

}  // namespace
}  // namespace stagecoach
