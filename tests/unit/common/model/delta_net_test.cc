// Models whose layers keep a recurrent state: what is read of their files, in every form, and what their parts cost.

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/gguf/dummy_model.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyArchitecture;
using ::stagecoach::testing::TinyArchitectureModel;
using ::stagecoach::testing::TinyArchitectureOptions;

absl::StatusOr<std::shared_ptr<const ModelDescription>> Open(const GgufWriter& writer) {
  const TempDir dir;
  return OpenModel(testing::WriteModel(dir.File("m.gguf"), writer));
}
std::shared_ptr<const ModelDescription> OpenOrDie(const GgufWriter& writer) { return Open(writer).value(); }
std::shared_ptr<const ModelDescription> OpenOrDie(const TinyArchitectureOptions& options) {
  return OpenOrDie(TinyArchitectureModel(options));
}
std::shared_ptr<const ModelDescription> Dummy(const std::string& name) { return OpenModel("dummy://" + name).value(); }

// "rrar": of each layer whether it has a state or attention.
std::string KindsOf(const HyperParameters& hyper) {
  std::string kinds;
  for (const LayerSpec& layer : hyper.layers) {
    kinds += layer.recurrent() ? 'r' : 'a';
    EXPECT_EQ(layer.block_group, layer.recurrent() ? kNoBlockGroup : 0);
    EXPECT_EQ(layer.state_floats() > 0, layer.recurrent());
    EXPECT_EQ(layer.attention.heads > 0, !layer.recurrent());
  }
  return kinds;
}

TEST(DeltaNets, OfPublishedModelsHaveTheStatesThatAreKnownOfThem) {
  const struct {
    const char* shape;
    int64_t layers, key_heads, value_heads;
    double state_mib;
    int64_t kv_kib;  // of a token in 16 bits
  } cases[] = {{"qwen3.5-0.8b", 18, 16, 16, 19.3, 12},      {"qwen3.5-2b", 18, 16, 16, 19.3, 12},
               {"qwen3.5-4b", 24, 16, 32, 50.3, 32},        {"qwen3.5-9b", 24, 16, 32, 50.3, 32},
               {"qwen3.5-27b", 48, 16, 48, 149.6, 64},      {"qwen3-next-80b-a3b", 36, 16, 32, 75.4, 24},
               {"qwen3.5-35b-a3b", 30, 16, 32, 62.8, 20},   {"qwen3.5-122b-a10b", 36, 16, 64, 149.1, 24},
               {"qwen3.5-397b-a17b", 45, 16, 64, 186.3, 30}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.shape);
    const HyperParameters hyper = Dummy(std::string(c.shape) + "/q8_0")->hyper;
    EXPECT_TRUE(hyper.recurrent());
    const std::string kinds = KindsOf(hyper);
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 'r'), c.layers);
    EXPECT_THAT(kinds, ::testing::StartsWith("rrrarrra"));
    const DeltaNetSpec& spec = hyper.layers[0].delta_net;
    EXPECT_EQ(spec.key_heads, c.key_heads);
    EXPECT_EQ(spec.value_heads, c.value_heads);
    EXPECT_NEAR(static_cast<double>(StateBytes(hyper, 0, hyper.layer_count())) / 1048576, c.state_mib, 0.05);
    int64_t kv_bytes = 0;
    for (const LayerSpec& layer : hyper.layers) kv_bytes += KvBytesPerTokenLayer(layer.attention, KvType::kF16).value();
    EXPECT_EQ(kv_bytes, c.kv_kib * 1024);
    EXPECT_EQ(hyper.block_groups(), 1);
    EXPECT_EQ(hyper.group_windows(), std::vector<int64_t>{0});
    EXPECT_EQ(hyper.first_attention().rope.dims, 64);
    EXPECT_TRUE(hyper.first_attention().gated);
  }
}

TEST(DeltaNets, OfTheReferenceFilesAreRead) {
  for (const std::string name : {"qwen35", "qwen35moe", "qwen3next"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("models/recurrent/", name, "-f32.gguf"));
    SCOPED_TRACE(name);
    const auto model = OpenModel(path).value();
    EXPECT_EQ(KindsOf(model->hyper), "rrrarrra");
    const DeltaNetSpec expected = {
        .conv_kernel = 4, .key_heads = 2, .value_heads = 4, .head_dim = 64, .grouped = name == "qwen3next"};
    EXPECT_EQ(model->hyper.layers[0].delta_net, expected);
    EXPECT_EQ(model->hyper.first_attention().rope.dims, 16);
    EXPECT_EQ(model->hyper.first_attention().rope.pairs, RopePairs::kHalves);
    EXPECT_EQ(model->hyper.layers[0].ffn.shared_gated, name != "qwen35");
    EXPECT_EQ(model->tied(), name != "qwen35");
    EXPECT_EQ(model->StageTensors(0, 8, true, true).size(), model->file->tensors().size());
  }
}

TEST(DeltaNets, ValueHeadsAreDealtOutToKeyHeadsOrGrouped) {
  const auto key_heads = [](const DeltaNetSpec& spec) {
    std::vector<int64_t> heads;
    for (int64_t h = 0; h < spec.value_heads; ++h) heads.push_back(spec.key_head_of(h));
    return heads;
  };
  const auto spec_of = [](const GgufWriter& writer) { return OpenOrDie(writer)->hyper.layers[0].delta_net; };
  const std::vector<int64_t> dealt = {0, 1, 0, 1, 0, 1}, grouped = {0, 0, 0, 1, 1, 1};
  GgufWriter qwen35 = TinyArchitectureModel(TinyArchitecture("qwen35"));
  EXPECT_EQ(key_heads(spec_of(qwen35)), dealt);
  qwen35.Set("qwen35.ssm.v_head_reordered", true);
  EXPECT_EQ(key_heads(spec_of(qwen35)), dealt);
  TinyArchitectureOptions options = TinyArchitecture("qwen3next");
  GgufWriter next = TinyArchitectureModel(options);
  EXPECT_EQ(key_heads(spec_of(next)), grouped);
  next.Set("qwen3next.ssm.v_head_reordered", false);
  EXPECT_EQ(key_heads(spec_of(next)), grouped);
  // Fused rows go by key head, which heads that are dealt out do not.
  next.Set("qwen3next.ssm.v_head_reordered", true);
  EXPECT_THAT(Open(next).status().message(), HasSubstr("tensor 'blk.0.ssm_beta.weight' is missing"));
  options.fused_beta_alpha = false;
  GgufWriter apart = TinyArchitectureModel(options);
  // Nothing says how heads are arranged: one program goes by the architecture, another by what is fused.
  EXPECT_THAT(Open(apart).status().message(), HasSubstr("tensor 'blk.0.ssm_ba.weight' is missing"));
  apart.Set("qwen3next.ssm.v_head_reordered", true);
  EXPECT_EQ(key_heads(spec_of(apart)), dealt);
}

TEST(DeltaNets, TheFileSaysWhichLayersAreRecurrent) {
  TinyArchitectureOptions options = TinyArchitecture("qwen35");  // with a block that only drafts
  EXPECT_EQ(KindsOf(OpenOrDie(options)->hyper), "rrar");
  options.recurrent = {false, true, true, false};
  const GgufWriter by_layer = TinyArchitectureModel(options);
  EXPECT_EQ(KindsOf(OpenOrDie(by_layer)->hyper), "arra");
  for (const bool with_draft : {false, true}) {
    GgufWriter writer = by_layer;
    std::vector<uint32_t> flags = {0, 1, 1, 0};
    if (with_draft) flags.push_back(0);
    writer.Set("qwen35.attention.recurrent_layers", flags);
    EXPECT_EQ(KindsOf(OpenOrDie(writer)->hyper), "arra");
    // The list goes before the interval.
    writer.Set("qwen35.full_attention_interval", uint32_t{2});
    EXPECT_EQ(KindsOf(OpenOrDie(writer)->hyper), "arra");
  }
  GgufWriter whole = by_layer;
  whole.Set("qwen35.attention.recurrent_layers", std::vector<bool>{false, true, true, false, false});
  EXPECT_EQ(KindsOf(OpenOrDie(whole)->hyper), "arra");
  TinyArchitectureOptions usual = TinyArchitecture("qwen35moe");
  usual.interval = 4;
  GgufWriter without = TinyArchitectureModel(usual);
  without.Remove("qwen35moe.full_attention_interval");
  EXPECT_EQ(KindsOf(OpenOrDie(without)->hyper), "rrra");
}

TEST(DeltaNets, AModelWithoutThemIsReadAsWell) {
  TinyArchitectureOptions options = TinyArchitecture("qwen35");
  options.interval = 1;
  const auto model = OpenOrDie(options);
  EXPECT_EQ(KindsOf(model->hyper), "aaaa");
  EXPECT_FALSE(model->hyper.recurrent());
  EXPECT_EQ(StateBytes(model->hyper, 0, 4), 0);
}

// Of layers 0 .. 3, "rrar".
TEST(DeltaNets, TensorsAreFoundInEveryForm) {
  struct Form {
    TinyArchitectureOptions options;
    size_t recurrent, attention;  // tensors of such layers
  };
  std::vector<Form> forms;
  // 2 norms and 3 of the FFN, or 2 norms and 8 of experts; of a delta net 9, or 8 or 7 with fused ones.
  forms.push_back({TinyArchitecture("qwen35"), 14, 11});
  forms.push_back({TinyArchitecture("qwen35moe"), 19, 16});
  forms.push_back({TinyArchitecture("qwen3next"), 18, 16});
  forms.push_back(forms.back());
  forms.back().options.fused_in = true;
  forms.back().recurrent = 17;
  forms.push_back(forms[1]);
  forms.back().options.fused_qkv = true;
  forms.back().attention = 14;
  forms.push_back(forms[1]);
  forms.back().options.fused_gate_up = true;
  forms.back().recurrent = 18;
  forms.back().attention = 15;
  forms.push_back({TinyArchitecture("qwen35", TensorType::kQ8_0), 14, 11});
  forms.back().options.delta_type = TensorType::kQ8_0;
  forms.back().options.vector_type = TensorType::kBF16;
  forms.push_back({TinyArchitecture("qwen3next", TensorType::kQ4_0), 18, 16});
  forms.back().options.delta_type = TensorType::kQ4_0;
  for (size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(i);
    forms[i].options.nextn = false;
    const auto model = OpenOrDie(forms[i].options);
    for (size_t layer = 0; layer < 4; ++layer) {
      const bool recurrent = model->hyper.layers[layer].recurrent();
      const LayerTensors& tensors = model->layers[layer];
      EXPECT_EQ(tensors.All().size(), recurrent ? forms[i].recurrent : forms[i].attention);
      EXPECT_EQ(tensors.mix_out != nullptr, recurrent);
      EXPECT_EQ(tensors.ffn_norm->name, absl::StrCat("blk.", layer, ".post_attention_norm.weight"));
    }
    EXPECT_EQ(model->StageTensors(0, 4, true, true).size(), model->file->tensors().size());
    EXPECT_EQ(StageWeightBytes(*model, 0, 4, true, true), StageWeightBytes(*model, 0, 2, true, false) +
                                                              StageWeightBytes(*model, 2, 4, false, true) -
                                                              (model->tied() ? model->token_embd->bytes : 0));
  }
}

TEST(DeltaNets, FusedRowsAreThoseOfTheirPartsByKeyHead) {
  TinyArchitectureOptions options = TinyArchitecture("qwen3next");
  options.nextn = false;
  const auto rows_of = [](const ModelDescription& model, const GgufTensor* tensor) {
    const size_t row_bytes = tensor->bytes / static_cast<uint64_t>(tensor->rows());
    std::vector<std::string> rows;
    for (int64_t r = 0; r < tensor->rows(); ++r) {
      std::string row(row_bytes, '\0');
      const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(row.data()), row.size());
      EXPECT_TRUE(model.file->Read(*tensor, static_cast<uint64_t>(r) * row_bytes, bytes).ok());
      rows.push_back(row);
    }
    return rows;
  };
  const TempDir dir;
  const auto apart = OpenModel(testing::WriteTinyArchitecture(dir.File("a.gguf"), options)).value();
  options.fused_in = true;
  const auto fused = OpenModel(testing::WriteTinyArchitecture(dir.File("f.gguf"), options)).value();
  const DeltaNetSpec& spec = apart->hyper.layers[1].delta_net;
  const std::vector<std::string> qkv = rows_of(*apart, apart->layers[1].mix_qkv);
  const std::vector<std::string> z = rows_of(*apart, apart->layers[1].mix_z);
  const std::vector<std::string> all = rows_of(*fused, fused->layers[1].mix_qkvz);
  const auto d = static_cast<size_t>(spec.head_dim), keys = static_cast<size_t>(spec.key_heads);
  const size_t group = static_cast<size_t>(spec.value_heads) / keys * d;
  ASSERT_EQ(all.size(), keys * (2 * d + 2 * group));
  for (size_t j = 0; j < keys; ++j) {
    const size_t at = j * (2 * d + 2 * group);
    EXPECT_EQ(all[at], qkv[j * d]);                                                   // q
    EXPECT_EQ(all[at + d], qkv[(keys + j) * d]);                                      // k
    EXPECT_EQ(all[at + 2 * d + group - 1], qkv[2 * keys * d + (j + 1) * group - 1]);  // v
    EXPECT_EQ(all[at + 2 * d + group], z[j * group]);
  }
}

TEST(DeltaNets, BlocksThatDraftAreLeftOutWithOrWithoutTheirJoiningMatrix) {
  GgufWriter writer = TinyArchitectureModel(TinyArchitecture("qwen35"));
  writer.SetTensor("output_extra.weight", {54, 301}, TensorType::kF32, std::vector<float>(54 * 301, 1.0f));
  EXPECT_EQ(OpenOrDie(writer)->hyper.skipped_layers, 1);
  writer.RemoveTensor("blk.4.nextn.eh_proj.weight");
  writer.RemoveTensor("blk.4.attn_q.weight");
  const auto model = OpenOrDie(writer);
  EXPECT_EQ(model->hyper.layer_count(), 4);
  for (const GgufTensor* tensor : model->StageTensors(0, 4, true, true)) {
    EXPECT_FALSE(absl::StrContains(tensor->name, "blk.4.") || tensor->name == "output_extra.weight") << tensor->name;
  }
  writer.RemoveTensor("blk.4.nextn.hnorm.weight");
  EXPECT_THAT(Open(writer).status().message(), HasSubstr("block 4 would draft only, but it has"));
}

TEST(DeltaNets, ASharedExpertIsAsWideAsTheFileOrItsTensorsSay) {
  for (const std::string name : {"qwen35moe", "qwen3next"}) {
    GgufWriter writer = TinyArchitectureModel(TinyArchitecture(name));
    const FfnSpec said = OpenOrDie(writer)->hyper.layers[0].ffn;
    EXPECT_EQ(said.shared_width, 38);
    EXPECT_TRUE(said.shared_gated);
    EXPECT_EQ(said.router.gating, Gating::kSoftmax);
    EXPECT_TRUE(said.router.normalized);
    EXPECT_EQ(said.router.scale, 1);
    writer.Remove(name + ".expert_shared_feed_forward_length");
    writer.Set(name + ".expert_weights_scale", 2.5f);
    FfnSpec scaled = said;
    scaled.router.scale = 2.5;
    const auto model = OpenOrDie(writer);
    EXPECT_EQ(model->hyper.layers[0].ffn, scaled);
    ASSERT_NE(model->layers[0].shared_gate, nullptr);
  }
}

TEST(DeltaNets, AWindowThatHidesNothingLeavesTheRotationAsItIs) {
  GgufWriter writer = TinyArchitectureModel(TinyArchitecture("qwen35"));
  const HyperParameters without = OpenOrDie(writer)->hyper;
  writer.Set("qwen35.attention.sliding_window", uint32_t{512});
  EXPECT_EQ(OpenOrDie(writer)->hyper.layers, without.layers);
}

TEST(DeltaNets, AStagesStateIsThatOfItsOwnLayers) {
  const HyperParameters hyper = OpenOrDie(TinyArchitecture("qwen35"))->hyper;  // rrar
  const int64_t layer = (3 * (2 * 20 + 60) + 6 * 10 * 10) * 4;
  EXPECT_EQ(hyper.layers[0].delta_net.conv_floats(), 3 * (2 * 20 + 60));
  EXPECT_EQ(StateBytes(hyper, 0, 1), layer);
  EXPECT_EQ(StateBytes(hyper, 1, 3), layer);
  EXPECT_EQ(StateBytes(hyper, 2, 3), 0);
  EXPECT_EQ(StateBytes(hyper, 0, 4), 3 * layer);
  EXPECT_EQ(StateBytes(hyper, 1, 1), 0);
}

TEST(DeltaNets, PartsCountTheirStatesInPlaceOfKeysAndValues) {
  const auto model = Dummy("qwen3.5-4b:layers=4/q8_0");
  const ModelParts parts = PartsOf(*model, KvType::kF16, /*bf16_dot=*/false).value();
  const PartWork &net = parts.layers[2], &attention = parts.layers[3];
  EXPECT_DOUBLE_EQ(net.state_bytes, 4.0 * (3 * 8192 + 32 * 128 * 128));
  EXPECT_DOUBLE_EQ(net.state_ops, 7.0 * 32 * 128 * 128);
  EXPECT_DOUBLE_EQ(net.kv_token_bytes, 0);
  EXPECT_DOUBLE_EQ(net.attention_ops, 0);
  // Wqkv, Wz, Wout and the FFN; Wb, Wa and the taps of the convolution are floats.
  EXPECT_DOUBLE_EQ(net.int8_ops, 2 * 2560.0 * (8192 + 4096 + 4096 + 3 * 9216));
  EXPECT_DOUBLE_EQ(net.f32_ops, 2 * (2560.0 * 64 + 4 * 8192));
  EXPECT_DOUBLE_EQ(attention.state_bytes, 0);
  EXPECT_DOUBLE_EQ(attention.state_ops, 0);
  EXPECT_DOUBLE_EQ(attention.kv_token_bytes, 2 * 4 * 256 * 2);
  EXPECT_DOUBLE_EQ(attention.int8_ops, 2 * 2560.0 * (2 * 4096 + 2 * 1024 + 4096 + 3 * 9216));
}

TEST(DeltaNets, InputsHaveTheFormsThatTheirReadersWant) {
  TinyArchitectureOptions options = TinyArchitecture("qwen35moe", TensorType::kQ8_0, TensorType::kQ4_0);
  const auto floats_only = InputForms{.floats = true}, int8_only = InputForms{.int8 = true};
  const auto model = OpenOrDie(options);
  const LayerInputForms net = InputFormsOf(model->layers[0], /*bf16_dot=*/false);
  EXPECT_EQ(net.qkv, (InputForms{.floats = true, .int8 = true}));  // beta and alpha are floats
  EXPECT_EQ(net.output, int8_only);
  EXPECT_EQ(net.ffn, (InputForms{.floats = true, .int8 = true}));  // the router and the shared expert's gate
  EXPECT_EQ(InputFormsOf(model->layers[2], false).qkv, int8_only);
  options.delta_type = TensorType::kQ8_0;
  EXPECT_EQ(InputFormsOf(OpenOrDie(options)->layers[0], false).qkv, int8_only);
  EXPECT_EQ(InputFormsOf(OpenOrDie(TinyArchitecture("qwen3next"))->layers[0], false).output, floats_only);
}

TEST(DeltaNets, StagesOfEitherKindOfLayerHaveScratchSizes) {
  const auto model = OpenOrDie(TinyArchitecture("qwen35"));
  const StepLimits limits = {.max_rows = 64, .max_slices = 4, .context = 512, .threads = 2};
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 2}, {2, 3}, {0, 4}}) {
    const StageScratchSizes sizes = ScratchSizesOf(*model, first, last, /*owns_head=*/last == 4, limits);
    EXPECT_GT(sizes.bytes(), 0u);
    EXPECT_EQ(sizes.layers.walks.size(), first == 0 && last == 2 ? 0u : 1u);
    EXPECT_GE(sizes.layers.input_width, 60);  // what the delta net's output matrix reads
  }
}

TEST(DeltaNets, TheLayerToTimeIsOneOfAttention) {
  EXPECT_EQ(LayerToTime(Dummy("qwen3.5-4b/q8_0")->hyper), 3);
  EXPECT_EQ(LayerToTime(Dummy("qwen3.5-35b-a3b/q8_0")->hyper), 3);
}

}  // namespace
}  // namespace stagecoach
