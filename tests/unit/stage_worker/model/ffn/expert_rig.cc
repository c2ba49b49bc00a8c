#include "tests/unit/stage_worker/model/ffn/expert_rig.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/model/footprint.h"
#include "stage_worker/model/ffn/ffn.h"

namespace stagecoach {
namespace {

constexpr int32_t kRigBlockTokens = 16;

// A plan of so many rows of one sequence.
class PlanOf {
 public:
  PlanOf(int64_t rows, const LayerScratchSizes& sizes) : plan_(sizes), table_(kRigBlockTokens, blocks_, 4096) {
    MicroBatch batch;
    batch.open.emplace_back().sequence = 1;
    SequenceSlice& slice = batch.slices.emplace_back();
    slice.sequence = 1;
    slice.count = static_cast<int32_t>(rows);
    slice.new_blocks.resize(1);
    for (int64_t block = 0; block * kRigBlockTokens < rows; ++block) {
      slice.new_blocks[0].push_back(static_cast<BlockId>(block));
    }
    CHECK(table_.Apply(batch).ok());
    plan_.Build(batch, table_);
  }
  const StepPlan& plan() const { return plan_; }

 private:
  StepPlan plan_;
  const std::vector<int32_t> blocks_ = {256};
  SequenceTable table_;
};

double Act(Activation activation, double gate, double up) {
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  switch (activation) {
    case Activation::kSwiglu: return gate * sigmoid(gate) * up;
    case Activation::kGeglu:
      return gate / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Activation::kClampedSwiglu: {
      const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
      return g * sigmoid(1.702 * g) * (u + 1);
    }
  }
  return 0;
}

}  // namespace

ExpertRig::ExpertRig(const ExpertShape& shape, const Kernels& kernels) : shape_(shape), kernels_(kernels) {
  LayerSpec layer;
  layer.attention = {.heads = 1, .kv_heads = 1, .head_dim = 16, .value_dim = 16, .score_scale = 0.25};
  layer.ffn = shape.ffn;
  model_.hyper.layers = {layer};
  model_.hyper.hidden = shape.hidden;
  model_.layers.resize(1);
  LayerTensors& tensors = model_.layers[0];
  tensors.attn_q = tensors.attn_k = tensors.attn_v = Describe(TensorType::kF32, {shape.hidden, 16});
  tensors.attn_output = Describe(TensorType::kF32, {16, shape.hidden});
  AddExperts();
}

void ExpertRig::AddExperts() {
  const int64_t d = shape_.hidden, f = shape_.ffn.width, e = shape_.ffn.experts, shared = shape_.ffn.shared_width;
  LayerTensors& tensors = model_.layers[0];
  tensors.router = Describe(shape_.router, {d, e});
  tensors.gate_exps = Describe(shape_.gate, {d, f, e});
  tensors.up_exps = Describe(shape_.up, {d, f, e});
  tensors.down_exps = Describe(shape_.down, {f, d, e});
  ExpertWeights& experts = weights_.experts;
  experts.router = Add(shape_.router, e, d);
  for (int64_t i = 0; i < e; ++i) {
    experts.gate.push_back(Add(shape_.gate, f, d));
    experts.up.push_back(Add(shape_.up, f, d));
    experts.down.push_back(Add(shape_.down, d, f));
  }
  if (shape_.router_bias) experts.router_bias = AddVector(e, 1);
  if (shape_.selection_bias) experts.selection_bias = AddVector(e, 0.3);
  if (shape_.biases) {
    experts.gate_bias = AddVector(e * f, 1);
    experts.up_bias = AddVector(e * f, 1);
    experts.down_bias = AddVector(e * d, 1);
  }
  if (shared == 0) return;
  tensors.ffn_gate = tensors.ffn_up = Describe(shape_.shared, {d, shared});
  tensors.ffn_down = Describe(shape_.shared, {shared, d});
  weights_.gate = Add(shape_.shared, shared, d);
  weights_.up = Add(shape_.shared, shared, d);
  weights_.down = Add(shape_.shared, d, shared);
  if (!shape_.ffn.shared_gated) return;
  tensors.shared_gate = Describe(TensorType::kF32, {d});
  experts.shared_gate = AddVector(d, 0.5);
}

const GgufTensor* ExpertRig::Describe(TensorType type, std::vector<int64_t> dims) {
  auto tensor = std::make_unique<GgufTensor>();
  tensor->dims = std::move(dims);
  tensor->type_id = static_cast<uint32_t>(type);
  tensor->bytes = RowBytes(type, tensor->cols()) * static_cast<uint64_t>(tensor->rows());
  tensors_.push_back(std::move(tensor));
  return tensors_.back().get();
}

std::vector<float> ExpertRig::AddVector(int64_t size, double range) {
  std::vector<float> vector(static_cast<size_t>(size));
  ++seed_;
  for (size_t i = 0; i < vector.size(); ++i) vector[i] = static_cast<float>((2 * UniformAt(seed_, i) - 1) * range);
  return vector;
}

PackedMatrix ExpertRig::Add(TensorType type, int64_t rows, int64_t cols) {
  auto matrix = std::make_unique<Matrix>();
  const size_t row_bytes = RowBytes(type, cols);
  std::vector<uint8_t> raw(row_bytes * static_cast<size_t>(rows));
  matrix->values.resize(static_cast<size_t>(rows * cols));
  const auto magnitude = static_cast<float>(1.5 / std::sqrt(static_cast<double>(cols)));
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t* const at = raw.data() + row_bytes * static_cast<size_t>(row);
    FillRandomRow(type, cols, ++seed_, magnitude, at);
    DequantizeRow(type, at, cols, matrix->values.data() + row * cols);
  }
  PackedMatrix& packed = matrix->packed;
  packed = {.type = type, .rows = rows, .cols = cols};
  matrix->panels = AlignedBuffer(packed.bytes());
  packed.data = matrix->panels.data();
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    kernels_.pack_panel(type, raw.data() + row_bytes * static_cast<size_t>(panel * kPanelRows), row_bytes,
                        static_cast<int>(std::min<int64_t>(kPanelRows, rows - panel * kPanelRows)), cols,
                        matrix->panels.data() + PanelBytes(type, cols) * static_cast<size_t>(panel));
  }
  matrices_.push_back(std::move(matrix));
  return matrices_.back()->packed;
}

std::vector<float> ExpertRig::Inputs(int64_t rows) const {
  std::vector<float> inputs(static_cast<size_t>(rows * shape_.hidden));
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(4 * UniformAt(99, i) - 2);
  return inputs;
}

std::vector<float> ExpertRig::Run(const std::vector<float>& inputs, int threads, int64_t tile_rows) const {
  const int64_t rows = static_cast<int64_t>(inputs.size()) / shape_.hidden;
  const StepLimits limits = {.max_rows = static_cast<int32_t>(rows),
                             .max_slices = 1,
                             .context = 4096,
                             .threads = threads,
                             .bf16_dot = kernels_.bf16_dot};
  LayerScratchSizes sizes = ScratchSizesOf(model_, 0, 1, false, limits).layers;
  if (tile_rows > 0) sizes.experts.rows = std::min(tile_rows, rows);
  StepScratch scratch(sizes);
  const PlanOf plan(rows, sizes);
  std::vector<KvPool> pools(1);
  const StepContext step = {shape_.hidden, kernels_, plan.plan(), pools, scratch};
  const StageLayer layer = {
      .spec = model_.hyper.layers[0], .weights = weights_, .forms = InputFormsOf(model_.layers[0], kernels_.bf16_dot)};
  MatmulInput input(layer.forms.ffn, rows, shape_.hidden);
  for (int64_t row = 0; row < rows; ++row) {
    input.Set(kernels_, layer.forms.ffn, row, shape_.hidden, 0, inputs.data() + row * shape_.hidden, shape_.hidden);
  }
  std::vector<float> out(inputs.size());
  Gang gang(threads, {});
  gang.Run([&](int thread) { AddFfn(layer, input.View(shape_.hidden), step, Worker{gang, thread}, out.data()); });
  return out;
}

std::vector<float> ExpertRig::AsKernelsHave(TensorType reader, const std::vector<float>& x) const {
  std::vector<float> seen = x;
  const size_t n = x.size();
  switch (ActivationKindFor(kernels_, reader)) {
    case ActivationKind::kFloat: break;
    case ActivationKind::kBf16:
      for (float& value : seen) value = Bf16ToFloat(FloatToBf16(value));
      break;
    case ActivationKind::kInt8: {
      std::vector<int8_t> q(n);
      std::vector<float> scales(n / 32);
      std::vector<int32_t> starts(n / 32), half_starts(n / 16);
      kernels_.quantize_row(x.data(), static_cast<int64_t>(n), q.data(), scales.data(), starts.data(),
                            half_starts.data());
      for (size_t i = 0; i < n; ++i) seen[i] = static_cast<float>(q[i]) * scales[i / 32];
    }
  }
  return seen;
}

std::vector<double> ExpertRig::Multiply(const PackedMatrix& matrix, const float* bias,
                                        const std::vector<float>& x) const {
  const auto found = std::find_if(matrices_.begin(), matrices_.end(),
                                  [&](const auto& entry) { return entry->packed.data == matrix.data; });
  const float* w = (*found)->values.data();
  const std::vector<float> seen = AsKernelsHave(matrix.type, x);
  std::vector<double> out(static_cast<size_t>(matrix.rows));
  for (size_t row = 0; row < out.size(); ++row) {
    out[row] = bias == nullptr ? 0 : static_cast<double>(bias[row]);
    for (size_t k = 0; k < seen.size(); ++k, ++w) out[row] += static_cast<double>(*w) * static_cast<double>(seen[k]);
  }
  return out;
}

std::vector<double> ExpertRig::UnitInDouble(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down,
                                            const float* gate_bias, const float* up_bias, const float* down_bias,
                                            const std::vector<float>& x) const {
  const std::vector<double> g = Multiply(gate, gate_bias, x), u = Multiply(up, up_bias, x);
  std::vector<float> activated(g.size());
  for (size_t i = 0; i < g.size(); ++i) activated[i] = static_cast<float>(Act(shape_.ffn.activation, g[i], u[i]));
  return Multiply(down, down_bias, activated);
}

std::vector<double> ExpertRig::RunInDouble(const float* input) const {
  const ExpertWeights& w = weights_.experts;
  const FfnSpec& ffn = shape_.ffn;
  const auto bias = [](const std::vector<float>& biases, int64_t expert, int64_t width) {
    return biases.empty() ? nullptr : biases.data() + expert * width;
  };
  const std::vector<float> x(input, input + shape_.hidden);
  const std::vector<double> exact = Multiply(w.router, bias(w.router_bias, 0, 0), x);
  const std::vector<float> logits(exact.begin(), exact.end());
  std::vector<float> work(4 * logits.size()), weights(static_cast<size_t>(ffn.experts_used));
  std::vector<int32_t> chosen(weights.size());
  Route(ffn.router, ffn.experts, ffn.experts_used, logits.data(), bias(w.selection_bias, 0, 0), work.data(),
        chosen.data(), weights.data());
  std::vector<double> out(static_cast<size_t>(shape_.hidden));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto e = static_cast<size_t>(chosen[i]);
    const std::vector<double> of_expert =
        UnitInDouble(w.gate[e], w.up[e], w.down[e], bias(w.gate_bias, chosen[i], ffn.width),
                     bias(w.up_bias, chosen[i], ffn.width), bias(w.down_bias, chosen[i], shape_.hidden), x);
    for (size_t k = 0; k < out.size(); ++k) out[k] += static_cast<double>(weights[i]) * of_expert[k];
  }
  if (ffn.shared_width > 0) {
    const std::vector<double> shared =
        UnitInDouble(weights_.gate, weights_.up, weights_.down, nullptr, nullptr, nullptr, x);
    double gate = 1;
    if (ffn.shared_gated) {
      double logit = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        logit += static_cast<double>(w.shared_gate[k]) * static_cast<double>(x[k]);
      }
      gate = 1 / (1 + std::exp(-logit));
    }
    for (size_t k = 0; k < out.size(); ++k) out[k] += gate * shared[k];
  }
  return out;
}

}  // namespace stagecoach
