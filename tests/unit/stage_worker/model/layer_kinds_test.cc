// Layers that differ from the plain ones, and from each other: the whole model against an independent forward pass in
// double, and to the bit over threads, chunks and stages. Models are plain ones whose specs are changed after they were
// opened, with tensors that no architecture of theirs has.

#include <functional>
#include <string>
#include <vector>

#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "tests/testing/models/naive_forward.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/reference/agreement.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

struct LayerKinds {
  std::string name;
  std::function<void(HyperParameters*)> change;
};

std::vector<float> SmallNumbers(uint64_t stream, int64_t count, double from, double to) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<float>(from + (to - from) * UniformAt(stream, static_cast<uint64_t>(i))));
  }
  return numbers;
}

// The same tensors, and those that the changed specs ask for.
std::shared_ptr<const ModelDescription> ModelOfKinds(const TempDir& dir, const LayerKinds& kinds) {
  TinyModelOptions options;
  GgufWriter writer = TinyModel(options);
  const auto plain = OpenModel(WriteTinyModel(dir.File("plain.gguf"), options)).value();
  auto model = std::make_shared<ModelDescription>(*plain);
  kinds.change(&model->hyper);
  const auto prefix = [](size_t layer) { return "blk." + std::to_string(layer) + "."; };
  const auto add = [&](const std::string& name, int64_t size, double from, double to) {
    writer.SetTensor(name, {size}, TensorType::kF32, SmallNumbers(std::hash<std::string>()(name), size, from, to));
  };
  for (size_t i = 0; i < model->layers.size(); ++i) {
    add(prefix(i) + "sinks", options.heads, -1, 3);
    add(prefix(i) + "attn_post", options.hidden, 0.5, 1);
    add(prefix(i) + "ffn_post", options.hidden, 0.5, 1);
    if (model->hyper.layers[i].attention.qk_norm != QkNorm::kWhole) continue;
    add(prefix(i) + "attn_q_norm.weight", options.heads * options.head_dim, 0.5, 2);
    add(prefix(i) + "attn_k_norm.weight", options.kv_heads * options.head_dim, 0.5, 2);
  }
  EXPECT_TRUE(writer.Write(dir.File("more.gguf")).ok());
  model->file = GgufFile::Open(dir.File("more.gguf")).value();
  const auto find = [&](const std::string& name) -> const GgufTensor* {
    for (const GgufTensor& tensor : model->file->tensors()) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  };
  model->token_embd = model->output = find("token_embd.weight");
  model->output_norm = find("output_norm.weight");
  for (size_t i = 0; i < model->layers.size(); ++i) {
    LayerTensors& tensors = model->layers[i];
    const LayerSpec& spec = model->hyper.layers[i];
    for (const GgufTensor* LayerTensors::*tensor :
         {&LayerTensors::attn_norm, &LayerTensors::attn_q, &LayerTensors::attn_k, &LayerTensors::attn_v,
          &LayerTensors::attn_q_norm, &LayerTensors::attn_k_norm, &LayerTensors::attn_output, &LayerTensors::ffn_norm,
          &LayerTensors::ffn_gate, &LayerTensors::ffn_up, &LayerTensors::ffn_down}) {
      tensors.*tensor = find((tensors.*tensor)->name);
    }
    if (spec.attention.sinks) tensors.attn_sinks = find(prefix(i) + "sinks");
    if (spec.attention.qk_norm == QkNorm::kNone) tensors.attn_q_norm = tensors.attn_k_norm = nullptr;
    if (!spec.pre_norms) tensors.attn_norm = tensors.ffn_norm = nullptr;
    if (!spec.post_norms) continue;
    tensors.attn_post_norm = find(prefix(i) + "attn_post");
    tensors.ffn_post_norm = find(prefix(i) + "ffn_post");
  }
  return model;
}

template <typename Change>
std::function<void(HyperParameters*)> OfEach(const Change& change) {
  return [change](HyperParameters* hyper) {
    for (size_t i = 0; i < hyper->layers.size(); ++i) change(i, hyper->layers[i]);
  };
}

void Window(LayerSpec& layer, int64_t window) {
  layer.attention.kind = AttentionKind::kWindowed;
  layer.attention.window = window;
}

std::vector<LayerKinds> AllKinds() {
  return {
      {"WindowsOnEverySecondLayerInAGroupOfTheirOwn", OfEach([](size_t i, LayerSpec& layer) {
         if (i % 2 == 0) Window(layer, 24);
         layer.block_group = i % 2 == 0 ? 1 : 0;
       })},
      {"WindowsOfTwoSizesAndSinks", OfEach([](size_t i, LayerSpec& layer) {
         if (i > 0) Window(layer, i == 1 ? 5 : 33);
         layer.attention.sinks = i != 2;
       })},
      {"PartialRotaryOfTwoWidthsAndNone", OfEach([](size_t i, LayerSpec& layer) {
         layer.attention.rope.dims = i == 0 ? 16 : i == 1 ? 0 : 6;
         if (i == 3) layer.attention.rope.freq_base = 1e6;
         if (i == 2) layer.attention.rope.pairs = RopePairs::kAdjacent;
       })},
      {"YarnWithoutItsMagnitude", OfEach([](size_t, LayerSpec& layer) {
         layer.attention.rope.scaling = RopeScaling::kYarn;
         layer.attention.rope.factor = 8;
         layer.attention.rope.original_context = 64;
         layer.attention.rope.log_magnitude = false;
         layer.attention.score_scale *= 1.37;
       })},
      {"NormsOfWholeRowsOfQAndK", OfEach([](size_t i, LayerSpec& layer) {
         layer.attention.qk_norm = i == 3 ? QkNorm::kHeads : i == 2 ? QkNorm::kNone : QkNorm::kWhole;
         layer.attention.rope.dims = 16;
       })},
      {"NormsOfOutputsOnly", OfEach([](size_t, LayerSpec& layer) {
         layer.pre_norms = false;
         layer.post_norms = true;
       })},
      {"NormsOnBothSidesCapsAndAScaledEmbedding",
       [](HyperParameters* hyper) {
         for (LayerSpec& layer : hyper->layers) {
           layer.post_norms = true;
           layer.attention.score_cap = 1.5;
         }
         hyper->embedding_scale = 8;
         hyper->logit_cap = 6;
       }},
      {"ScaledResidualsAndLogits",
       [](HyperParameters* hyper) {
         for (size_t i = 0; i < hyper->layers.size(); ++i) hyper->layers[i].residual_scale = i == 1 ? 1.0f : 0.22f;
         hyper->layers[2].post_norms = true;
         hyper->embedding_scale = 12;
         hyper->logit_scale = 0.4f;
       }},
  };
}

class ModelOfKind : public ::testing::TestWithParam<LayerKinds> {
 protected:
  ModelOfKind() : model_(ModelOfKinds(dir_, GetParam())) {
    for (int i = 0; i < 70; ++i) tokens_.push_back((i * i * 7 + i * 31 + 5) % 320);
  }

  // Logits after every one of the tokens.
  std::vector<std::vector<float>> Logits(const RigOptions& options, size_t chunk) const {
    return PipelineRig(model_, options).LogitsOf(tokens_, chunk);
  }

  const TempDir dir_;
  const std::shared_ptr<const ModelDescription> model_;
  std::vector<TokenId> tokens_;
};

TEST_P(ModelOfKind, IsWhatTheFormulasSay) {
  const auto ours = Logits({.stages = 2, .kv_type = KvType::kF32, .isa = TwinIsa()}, 32);
  const auto naive = NaiveLogits(*model_, tokens_);
  EXPECT_GT(LogitSpread(naive), 1);
  EXPECT_LE(Compare(naive, ours).worst / LogitSpread(naive), 1e-5);
}

TEST_P(ModelOfKind, IsNotThePlainModel) {
  const TempDir dir;
  const auto plain = ModelOfKinds(dir, {"plain", [](HyperParameters*) {}});
  EXPECT_NE(NaiveLogits(*plain, {tokens_.begin(), tokens_.begin() + 40}).back(),
            NaiveLogits(*model_, {tokens_.begin(), tokens_.begin() + 40}).back());
}

TEST_P(ModelOfKind, HasTheSameBitsWhateverThreadsChunksAndStages) {
  const auto expected = Logits({}, 64);
  struct {
    int threads, stages;
    size_t chunk;
  } const plays[] = {{1, 1, 1}, {2, 3, 7}, {3, 1, 64}, {2, 1, 23}};
  for (const auto& play : plays) {
    EXPECT_EQ(Logits({.stages = play.stages, .threads = play.threads, .block_tokens = 16}, play.chunk), expected)
        << play.threads << " threads, chunks of " << play.chunk << ", " << play.stages << " stages";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelOfKind, ::testing::ValuesIn(AllKinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stagecoach::testing
