// Layers of experts from a file to panels: the file is a small dense model with the tensors of experts added, described
// by hand.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/gguf/gguf_writer.h"
#include "common/model/footprint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/weights/panel_shares.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// Sizes that do not fill panels.
constexpr int64_t kExperts = 5, kExpertWidth = 20, kSharedWidth = 24, kModelWidth = 72;

struct ExpertModel {
  std::shared_ptr<const ModelDescription> model;
  std::map<std::string, std::vector<float>> values;  // of what was added

  // Row `row` of all rows of a tensor.
  std::vector<float> Row(const std::string& name, int64_t row, int64_t cols) const {
    const std::vector<float>& all = values.at(name);
    return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
  }
};

struct ExpertModelOptions {
  bool fused = false, biases = false, shared = false;
};

ExpertModel WriteExpertModel(const testing::TempDir& dir, const ExpertModelOptions& options) {
  ExpertModel made;
  const testing::TinyModelOptions tiny{.layers = 2, .hidden = kModelWidth, .ffn = kSharedWidth, .tied = false};
  const auto dense = OpenModel(testing::WriteTinyModel(dir.File("dense.gguf"), tiny)).value();
  GgufWriter writer = testing::TinyModel(tiny);
  const auto add = [&](const std::string& name, const std::vector<int64_t>& dims) {
    int64_t elements = 1;
    for (const int64_t dim : dims) elements *= dim;
    std::vector<float>& values = made.values[name];
    for (int64_t i = 0; i < elements; ++i) {
      values.push_back(static_cast<float>(UniformAt(made.values.size(), static_cast<uint64_t>(i))));
    }
    writer.SetTensor(name, dims, TensorType::kF32, values);
  };
  add("router", {kModelWidth, kExperts});
  if (options.fused) {
    add("gate_up", {kModelWidth, 2 * kExpertWidth, kExperts});
  } else {
    add("gate", {kModelWidth, kExpertWidth, kExperts});
    add("up", {kModelWidth, kExpertWidth, kExperts});
  }
  add("down", {kExpertWidth, kModelWidth, kExperts});
  if (options.shared && options.fused) add("shared_gate_up", {kModelWidth, 2 * kSharedWidth});
  if (options.biases) {
    add("router_bias", {kExperts});
    add("selection_bias", {kExperts});
    add("gate_bias", {kExpertWidth, kExperts});
    add("up_bias", {kExpertWidth, kExperts});
    add("down_bias", {kModelWidth, kExperts});
  }
  const absl::Status written = writer.Write(dir.File("experts.gguf"));
  EXPECT_TRUE(written.ok()) << written;
  auto model = std::make_shared<ModelDescription>(*dense);
  model->file = GgufFile::Open(dir.File("experts.gguf")).value();
  const auto find = [&](const GgufTensor*& tensor) {
    if (tensor != nullptr) tensor = model->file->FindTensor(tensor->name);
  };
  for (const GgufTensor** tensor : {&model->token_embd, &model->output_norm, &model->output}) find(*tensor);
  for (size_t i = 0; i < model->layers.size(); ++i) {
    LayerTensors& layer = model->layers[i];
    for (const GgufTensor** tensor :
         {&layer.attn_norm, &layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output, &layer.attn_q_norm,
          &layer.attn_k_norm, &layer.ffn_norm, &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
      find(*tensor);
    }
  }
  // The first layer stays dense.
  LayerTensors& layer = model->layers[1];
  FfnSpec& ffn = model->hyper.layers[1].ffn;
  ffn = {.kind = FfnKind::kExperts,
         .width = kExpertWidth,
         .experts = kExperts,
         .experts_used = 2,
         .shared_width = options.shared ? kSharedWidth : 0};
  if (!options.shared) layer.ffn_gate = layer.ffn_up = layer.ffn_down = nullptr;
  layer.ffn_gate_up = model->file->FindTensor("shared_gate_up");
  if (layer.ffn_gate_up != nullptr) layer.ffn_gate = layer.ffn_up = nullptr;
  const auto added = [&](const char* name) { return model->file->FindTensor(name); };
  layer.router = added("router");
  layer.router_bias = added("router_bias");
  layer.selection_bias = added("selection_bias");
  layer.gate_exps = added("gate");
  layer.up_exps = added("up");
  layer.gate_up_exps = added("gate_up");
  layer.down_exps = added("down");
  layer.gate_exps_bias = added("gate_bias");
  layer.up_exps_bias = added("up_bias");
  layer.down_exps_bias = added("down_bias");
  made.model = std::move(model);
  return made;
}

StageWeights LoadAll(const ModelDescription& model, Gang* gang) {
  const StageWeightsRequest request = {.first_layer = 0,
                                       .last_layer = model.hyper.layer_count(),
                                       .owns_embedding = true,
                                       .owns_head = true,
                                       .gang = gang};
  std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
  const uint64_t before = model.file->bytes_read();
  auto weights = LoadStageWeights(model, request, *SelectKernels("auto").value(), &to_load, &touched, &loaded);
  EXPECT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(loaded.load(), to_load.load());
  EXPECT_EQ(touched.load() > 0, gang->threads() > 1);
  EXPECT_EQ(model.file->bytes_read() - before, to_load.load()) << "every byte is read once";
  return std::move(weights).value();
}

// `matrix` is rows [first, first + matrix.rows) of the tensor.
void ExpectRows(const PackedMatrix& matrix, const ExpertModel& made, const std::string& name, int64_t first,
                int64_t rows, int64_t cols) {
  ASSERT_EQ(matrix.rows, rows);
  ASSERT_EQ(matrix.cols, cols);
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t i = 0; i < rows; ++i) {
    matrix.UnpackRow(i, row.data());
    ASSERT_EQ(row, made.Row(name, first + i, cols)) << name << ", row " << first + i;
  }
}

TEST(ExpertWeights, AreEachExpertsRowsOfTheFile) {
  const testing::TempDir dir;
  for (const bool fused : {false, true}) {
    const ExpertModel made = WriteExpertModel(dir, {.fused = fused});
    Gang gang(2, {});
    const StageWeights weights = LoadAll(*made.model, &gang);
    const ExpertWeights& experts = weights.layers[1].experts;
    ExpectRows(experts.router, made, "router", 0, kExperts, kModelWidth);
    ASSERT_EQ(experts.gate.size(), static_cast<size_t>(kExperts));
    ASSERT_EQ(experts.up.size(), static_cast<size_t>(kExperts));
    ASSERT_EQ(experts.down.size(), static_cast<size_t>(kExperts));
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto i = static_cast<size_t>(e);
      const int64_t first = fused ? 2 * e * kExpertWidth : e * kExpertWidth;
      ExpectRows(experts.gate[i], made, fused ? "gate_up" : "gate", first, kExpertWidth, kModelWidth);
      ExpectRows(experts.up[i], made, fused ? "gate_up" : "up", fused ? first + kExpertWidth : first, kExpertWidth,
                 kModelWidth);
      ExpectRows(experts.down[i], made, "down", e * kModelWidth, kModelWidth, kExpertWidth);
    }
    EXPECT_EQ(weights.layers[1].gate.data, nullptr) << "there is no shared unit";
    EXPECT_TRUE(experts.router_bias.empty() && experts.selection_bias.empty() && experts.gate_bias.empty());
    EXPECT_TRUE(weights.layers[0].experts.gate.empty()) << "the first layer is dense";
  }
}

TEST(ExpertWeights, HaveTheirBiases) {
  const testing::TempDir dir;
  const ExpertModel made = WriteExpertModel(dir, {.biases = true});
  Gang gang(1, {});
  const StageWeights weights = LoadAll(*made.model, &gang);
  const ExpertWeights& experts = weights.layers[1].experts;
  EXPECT_EQ(experts.router_bias, made.values.at("router_bias"));
  EXPECT_EQ(experts.selection_bias, made.values.at("selection_bias"));
  EXPECT_EQ(experts.gate_bias, made.values.at("gate_bias"));
  EXPECT_EQ(experts.up_bias, made.values.at("up_bias"));
  EXPECT_EQ(experts.down_bias, made.values.at("down_bias"));
}

TEST(ExpertWeights, HaveTheSharedUnitBesideThem) {
  const testing::TempDir dir;
  for (const bool fused : {false, true}) {
    const ExpertModel made = WriteExpertModel(dir, {.fused = fused, .shared = true});
    Gang gang(1, {});
    const StageWeights weights = LoadAll(*made.model, &gang);
    const LayerWeights& layer = weights.layers[1];
    EXPECT_EQ(layer.gate.rows, kSharedWidth);
    EXPECT_EQ(layer.up.rows, kSharedWidth);
    EXPECT_EQ(layer.down.rows, kModelWidth);
    if (!fused) continue;
    ExpectRows(layer.gate, made, "shared_gate_up", 0, kSharedWidth, kModelWidth);
    ExpectRows(layer.up, made, "shared_gate_up", kSharedWidth, kSharedWidth, kModelWidth);
  }
}

TEST(ExpertWeights, TakeTheMemoryThatIsCounted) {
  const testing::TempDir dir;
  for (const bool fused : {false, true}) {
    const ExpertModel made = WriteExpertModel(dir, {.fused = fused, .biases = true, .shared = true});
    Gang gang(1, {});
    const StageWeights weights = LoadAll(*made.model, &gang);
    const uint64_t counted = StageWeightMemory(*made.model, 0, 2, true, true);
    EXPECT_LE(counted, weights.bytes());
    // The last panels of what are no experts: up to 15 rows of each matrix of 72 columns or fewer.
    EXPECT_LE(weights.bytes() - counted, 2u * 8 * 15 * kModelWidth * sizeof(float));
    // Without the experts' padding it would be much less: 12 rows of 32 of every gate and up, 8 of 80 of every down.
    const uint64_t padding = kExperts * (2 * 12 * kModelWidth + 8 * kExpertWidth) * sizeof(float);
    EXPECT_GE(counted, StageWeightBytes(*made.model, 0, 2, true, true) + padding);
  }
}

TEST(SharesOfWeights, AreEveryByteOfExpertsOnce) {
  const testing::TempDir dir;
  const ExpertModel made = WriteExpertModel(dir, {.shared = true});
  Gang gang(1, {});
  const StageWeights weights = LoadAll(*made.model, &gang);
  std::map<const uint8_t*, size_t> matrices;
  for (const LayerWeights& layer : weights.layers) {
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up,
                                       &layer.down, &layer.experts.router}) {
      if (matrix->rows > 0) matrices[matrix->data] = matrix->bytes();
    }
    for (const auto* of_experts : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
      for (const PackedMatrix& matrix : *of_experts) matrices[matrix.data] = matrix.bytes();
    }
  }
  matrices[weights.embedding.data] = weights.embedding.bytes();
  matrices[weights.output.data] = weights.output.bytes();
  for (const int threads : {1, 2, 3, 40}) {
    std::map<const uint8_t*, size_t> shares;
    for (int thread = 0; thread < threads; ++thread) {
      for (absl::Span<const uint8_t> share : SharesOfWeights(weights, made.model->hyper.layers, thread, threads)) {
        EXPECT_TRUE(shares.emplace(share.data(), share.size()).second) << "two shares begin at the same place";
      }
    }
    auto share = shares.begin();
    for (const auto& [begin, bytes] : matrices) {
      const uint8_t* at = begin;
      for (; share != shares.end() && share->first == at && at < begin + bytes; ++share) at += share->second;
      EXPECT_EQ(at, begin + bytes) << threads << " threads";
    }
    EXPECT_EQ(share, shares.end());
  }
}

}  // namespace
}  // namespace stagecoach
