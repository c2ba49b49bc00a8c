// Layers of experts from a file to panels.

#include <atomic>
#include <cstring>
#include <memory>

#include "common/base/aligned_buffer.h"
#include "common/model/footprint.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// A model of two layers, whose widths do not fill panels, and what a stage of all of it has.
struct Loaded {
  testing::TempDir dir;
  testing::TinyArchitectureOptions options;
  std::shared_ptr<const ModelDescription> model;
  Gang gang{2, {}};
  StageWeights weights;

  explicit Loaded(const std::string& architecture, bool fused = false)
      : options(testing::TinyArchitecture(architecture)) {
    options.layers = 2;
    options.nextn = false;
    options.fused_gate_up = fused;
    model = OpenModel(testing::WriteTinyArchitecture(dir.File("m.gguf"), options)).value();
    const StageWeightsRequest request = {
        .first_layer = 0, .last_layer = 2, .owns_embedding = true, .owns_head = true, .gang = &gang};
    std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
    weights = LoadStageWeights(*model, request, *SelectKernels("auto").value(), &to_load, &touched, &loaded).value();
    EXPECT_EQ(loaded.load(), to_load.load());
    EXPECT_GT(touched.load(), 0u);
    EXPECT_EQ(model->file->bytes_read(), to_load.load()) << "every byte is read once";
  }

  const ExpertWeights& experts() const { return weights.layers[1].experts; }

  // Of a tensor of the second layer, as the file has it.
  std::vector<float> Values(const std::string& name) const {
    const GgufTensor* tensor = model->file->FindTensor("blk.1." + name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<uint8_t> bytes(tensor->bytes);
    EXPECT_TRUE(model->file->Read(*tensor, 0, absl::MakeSpan(bytes)).ok());
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // `matrix` is rows [first, first + rows) of the tensor.
  void ExpectRows(const PackedMatrix& matrix, const std::string& name, int64_t first, int64_t rows) const {
    const GgufTensor* tensor = model->file->FindTensor("blk.1." + name);
    ASSERT_NE(tensor, nullptr) << name;
    ASSERT_EQ(matrix.rows, rows) << name;
    ASSERT_EQ(matrix.cols, tensor->cols()) << name;
    const std::vector<float> values = Values(name);
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    for (int64_t i = 0; i < rows; ++i) {
      matrix.UnpackRow(i, row.data());
      const auto expected = values.begin() + (first + i) * matrix.cols;
      ASSERT_EQ(row, std::vector<float>(expected, expected + matrix.cols)) << name << ", row " << first + i;
    }
  }
};

TEST(ExpertWeights, AreEachExpertsRowsOfTheFile) {
  for (const bool fused : {false, true}) {
    const Loaded made("qwen3moe", fused);
    const ExpertWeights& experts = made.experts();
    const int64_t hidden = made.options.hidden, width = made.options.expert_ffn;
    made.ExpectRows(experts.router, "ffn_gate_inp.weight", 0, made.options.experts);
    for (const auto* matrices : {&experts.gate, &experts.up, &experts.down}) {
      ASSERT_EQ(matrices->size(), static_cast<size_t>(made.options.experts));
    }
    for (int64_t e = 0; e < made.options.experts; ++e) {
      const auto i = static_cast<size_t>(e);
      const int64_t first = fused ? 2 * e * width : e * width;
      const std::string both = "ffn_gate_up_exps.weight";
      made.ExpectRows(experts.gate[i], fused ? both : "ffn_gate_exps.weight", first, width);
      made.ExpectRows(experts.up[i], fused ? both : "ffn_up_exps.weight", fused ? first + width : first, width);
      made.ExpectRows(experts.down[i], "ffn_down_exps.weight", e * hidden, hidden);
    }
    EXPECT_EQ(made.weights.layers[1].gate.data, nullptr) << "there is no shared unit";
    EXPECT_TRUE(experts.router_bias.empty() && experts.selection_bias.empty() && experts.gate_bias.empty());
  }
}

TEST(ExpertWeights, HaveTheirBiases) {
  const Loaded gpt("gpt-oss"), glm("glm4moe");
  EXPECT_EQ(gpt.experts().router_bias, gpt.Values("ffn_gate_inp.bias"));
  EXPECT_EQ(gpt.experts().gate_bias, gpt.Values("ffn_gate_exps.bias"));
  EXPECT_EQ(gpt.experts().up_bias, gpt.Values("ffn_up_exps.bias"));
  EXPECT_EQ(gpt.experts().down_bias, gpt.Values("ffn_down_exps.bias"));
  EXPECT_EQ(glm.experts().selection_bias, glm.Values("exp_probs_b.bias"));
}

TEST(ExpertWeights, HaveTheSharedUnitBesideThem) {
  const Loaded made("glm4moe");
  const LayerWeights& layer = made.weights.layers[1];
  made.ExpectRows(layer.gate, "ffn_gate_shexp.weight", 0, made.options.expert_ffn);
  made.ExpectRows(layer.up, "ffn_up_shexp.weight", 0, made.options.expert_ffn);
  made.ExpectRows(layer.down, "ffn_down_shexp.weight", 0, made.options.hidden);
  EXPECT_TRUE(made.weights.layers[0].experts.gate.empty()) << "the first layer is dense";
}

TEST(ExpertWeights, TakeTheMemoryThatIsCounted) {
  for (const bool fused : {false, true}) {
    const Loaded made("glm4moe", fused);
    const testing::TinyArchitectureOptions& o = made.options;
    const uint64_t counted = StageWeightMemory(*made.model, 0, 2, true, true);
    EXPECT_LE(counted, made.weights.bytes());
    // The last panels of what are no experts: up to 15 rows of each matrix, of as many columns as the heads are wide.
    EXPECT_LE(made.weights.bytes() - counted,
              2u * 9 * 15 * static_cast<uint64_t>(o.heads * o.head_dim) * sizeof(float));
    // Without the experts' padding it would be much less.
    const auto padding_of = [](int64_t rows) { return RoundUp(static_cast<size_t>(rows), kPanelRows) - rows; };
    const uint64_t padding =
        o.experts * (2 * padding_of(o.expert_ffn) * o.hidden + padding_of(o.hidden) * o.expert_ffn) * sizeof(float);
    EXPECT_GE(counted, StageWeightBytes(*made.model, 0, 2, true, true) + padding);
  }
}

}  // namespace
}  // namespace stagecoach
