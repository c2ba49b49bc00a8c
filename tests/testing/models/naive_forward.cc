#include "tests/testing/models/naive_forward.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/quant/tensor_type.h"

namespace stagecoach::testing {
namespace {

using Vector = std::vector<double>;

// The values of a tensor, row after row; empty for an absent one.
Vector ReadTensor(const ModelDescription& model, const GgufTensor* tensor) {
  if (tensor == nullptr) return {};
  std::vector<uint8_t> raw(tensor->bytes);
  CHECK(model.file->Read(*tensor, 0, absl::MakeSpan(raw)).ok());
  const TensorType type = static_cast<TensorType>(tensor->type_id);
  std::vector<float> row(static_cast<size_t>(tensor->cols()));
  Vector values;
  for (int64_t r = 0; r < tensor->rows(); ++r) {
    DequantizeRow(type, raw.data() + static_cast<size_t>(r) * RowBytes(type, tensor->cols()), tensor->cols(),
                  row.data());
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

Vector Multiply(const Vector& matrix, const Vector& bias, const Vector& x) {
  Vector out(matrix.size() / x.size());
  for (size_t r = 0; r < out.size(); ++r) {
    for (size_t c = 0; c < x.size(); ++c) out[r] += matrix[r * x.size() + c] * x[c];
    if (!bias.empty()) out[r] += bias[r];
  }
  return out;
}

Vector Norm(const double* x, const Vector& weight, double eps) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
  Vector out(weight.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * factor * weight[i];
  return out;
}

// The angle of pair i at a position, and the factor of cos and sin.
double Angle(const AttentionSpec& spec, const Vector& freqs, int64_t position, int64_t i, double* magnitude) {
  const RopeParameters& rope = spec.rope;
  const double dims = static_cast<double>(rope.dims);
  double theta = static_cast<double>(position) * std::pow(rope.freq_base, -2.0 * static_cast<double>(i) / dims);
  if (rope.factors && !freqs.empty()) theta /= freqs[static_cast<size_t>(i)];
  *magnitude = rope.attn_factor;
  if (rope.scaling == RopeScaling::kLinear) return theta / rope.factor;
  if (rope.scaling == RopeScaling::kNone) return theta;
  const auto dim = [&](double b) {
    return dims * std::log(static_cast<double>(rope.original_context) / (b * 2 * std::numbers::pi)) /
           (2 * std::log(rope.freq_base));
  };
  const double lo = std::max(0.0, std::floor(dim(rope.beta_fast)));
  const double hi = std::min(dims - 1, std::ceil(dim(rope.beta_slow)));
  const double ramp = 1 - std::clamp((static_cast<double>(i) - lo) / std::max(0.001, hi - lo), 0.0, 1.0);
  if (rope.log_magnitude) *magnitude *= 1 + 0.1 * std::log(rope.factor);
  return theta / rope.factor * (1 - ramp * rope.ext_factor) + theta * ramp * rope.ext_factor;
}

void Rotate(const AttentionSpec& spec, const Vector& freqs, int64_t position, double* head) {
  const int64_t half = spec.rope.dims / 2;
  for (int64_t i = 0; i < half; ++i) {
    const bool halves = spec.rope.pairs == RopePairs::kHalves;
    double& a = head[halves ? i : 2 * i];
    double& b = head[halves ? i + half : 2 * i + 1];
    double magnitude;
    const double angle = Angle(spec, freqs, position, i, &magnitude);
    const double c = std::cos(angle) * magnitude, s = std::sin(angle) * magnitude;
    const double x = a, y = b;
    a = x * c - y * s;
    b = x * s + y * c;
  }
}

class Layer {
 public:
  Layer(const ModelDescription& model, const LayerSpec& spec, const LayerTensors& t)
      : spec_(spec),
        freqs_(ReadTensor(model, model.rope_freqs)),
        attn_norm_(ReadTensor(model, t.attn_norm)),
        qkv_(ReadTensor(model, t.attn_qkv)),
        qkv_bias_(ReadTensor(model, t.attn_qkv_bias)),
        q_norm_(ReadTensor(model, t.attn_q_norm)),
        k_norm_(ReadTensor(model, t.attn_k_norm)),
        out_(ReadTensor(model, t.attn_output)),
        out_bias_(ReadTensor(model, t.attn_output_bias)),
        sinks_(ReadTensor(model, t.attn_sinks)),
        attn_post_norm_(ReadTensor(model, t.attn_post_norm)),
        ffn_post_norm_(ReadTensor(model, t.ffn_post_norm)),
        ffn_norm_(ReadTensor(model, t.ffn_norm)),
        gate_(ReadTensor(model, t.ffn_gate)),
        up_(ReadTensor(model, t.ffn_up)),
        down_(ReadTensor(model, t.ffn_down)),
        gate_bias_(ReadTensor(model, t.ffn_gate_bias)),
        up_bias_(ReadTensor(model, t.ffn_up_bias)),
        down_bias_(ReadTensor(model, t.ffn_down_bias)) {
    for (const GgufTensor* part : {t.attn_q, t.attn_k, t.attn_v}) Append(ReadTensor(model, part), &qkv_);
    for (const GgufTensor* part : {t.attn_q_bias, t.attn_k_bias, t.attn_v_bias})
      Append(ReadTensor(model, part), &qkv_bias_);
  }

  // Takes in the next position.
  void Run(Vector* x) {
    Add(Multiply(out_, out_bias_, Attend(Input(*x, attn_norm_))), attn_post_norm_, x);
    const Vector m = Input(*x, ffn_norm_);
    Vector gate = Multiply(gate_, gate_bias_, m);
    const Vector up = Multiply(up_, up_bias_, m);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    Add(Multiply(down_, down_bias_, gate), ffn_post_norm_, x);
  }

 private:
  static void Append(const Vector& from, Vector* to) { to->insert(to->end(), from.begin(), from.end()); }

  Vector Input(const Vector& x, const Vector& norm) const {
    return spec_.pre_norms ? Norm(x.data(), norm, spec_.norm_eps) : x;
  }

  void Add(Vector output, const Vector& norm, Vector* x) const {
    if (spec_.post_norms) output = Norm(output.data(), norm, spec_.norm_eps);
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] += static_cast<double>(spec_.residual_scale) * output[i];
  }

  void PlaceHead(const Vector& norm, double* head) const {
    if (spec_.attention.qk_norm == QkNorm::kHeads) {
      const Vector normed = Norm(head, norm, spec_.norm_eps);
      std::copy(normed.begin(), normed.end(), head);
    }
    Rotate(spec_.attention, freqs_, static_cast<int64_t>(keys_.size()), head);
  }

  Vector Attend(const Vector& a) {
    Vector q = Multiply(qkv_, qkv_bias_, a);
    const int64_t width = spec_.attention.head_dim, heads = spec_.attention.heads;
    const int64_t kv_heads = spec_.attention.kv_heads;
    const AttentionSpec& spec = spec_.attention;
    if (spec.qk_norm == QkNorm::kWhole) {
      const Vector q_normed = Norm(q.data(), q_norm_, spec_.norm_eps);
      const Vector k_normed = Norm(q.data() + heads * width, k_norm_, spec_.norm_eps);
      std::copy(q_normed.begin(), q_normed.end(), q.begin());
      std::copy(k_normed.begin(), k_normed.end(), q.begin() + heads * width);
    }
    for (int64_t h = 0; h < heads; ++h) PlaceHead(q_norm_, q.data() + h * width);
    for (int64_t h = 0; h < kv_heads; ++h) PlaceHead(k_norm_, q.data() + (heads + h) * width);
    keys_.emplace_back(q.begin() + heads * width, q.begin() + (heads + kv_heads) * width);
    values_.emplace_back(q.begin() + (heads + kv_heads) * width, q.end());
    Vector out(static_cast<size_t>(heads * width));
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv = h / (heads / kv_heads) * width;
      Vector scores(keys_.size());
      for (size_t j = 0; j < keys_.size(); ++j) {
        for (int64_t d = 0; d < width; ++d) scores[j] += q[h * width + d] * keys_[j][kv + d];
        scores[j] *= spec.score_scale;
        if (spec.score_cap > 0) scores[j] = spec.score_cap * std::tanh(scores[j] / spec.score_cap);
        const bool windowed = spec.kind == AttentionKind::kWindowed;
        if (windowed && static_cast<int64_t>(keys_.size() - j) > spec.window) scores[j] = -INFINITY;
      }
      double max = *std::max_element(scores.begin(), scores.end());
      if (spec.sinks) max = std::max(max, sinks_[h]);
      double sum = spec.sinks ? std::exp(sinks_[h] - max) : 0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (size_t j = 0; j < keys_.size(); ++j) {
        for (int64_t d = 0; d < width; ++d) out[h * width + d] += scores[j] / sum * values_[j][kv + d];
      }
    }
    return out;
  }

  const LayerSpec& spec_;
  Vector freqs_, attn_norm_, qkv_, qkv_bias_, q_norm_, k_norm_, out_, out_bias_, sinks_, attn_post_norm_,
      ffn_post_norm_, ffn_norm_, gate_, up_, down_, gate_bias_, up_bias_, down_bias_;
  std::vector<Vector> keys_, values_;  // [positions][Nk*H]
};

}  // namespace

std::vector<std::vector<double>> NaiveLogits(const ModelDescription& model, const std::vector<TokenId>& tokens) {
  const Vector embedding = ReadTensor(model, model.token_embd), head = ReadTensor(model, model.output);
  const Vector output_norm = ReadTensor(model, model.output_norm), output_bias = ReadTensor(model, model.output_bias);
  std::vector<Layer> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) layers.emplace_back(model, model.hyper.layers[i], model.layers[i]);
  std::vector<Vector> logits;
  for (const TokenId token : tokens) {
    const auto row = embedding.begin() + token * model.hyper.hidden;
    Vector x(row, row + model.hyper.hidden);
    for (double& value : x) value *= static_cast<double>(model.hyper.embedding_scale);
    for (Layer& layer : layers) layer.Run(&x);
    logits.push_back(Multiply(head, output_bias, Norm(x.data(), output_norm, model.hyper.rms_eps)));
    const double cap = static_cast<double>(model.hyper.logit_cap);
    for (double& logit : logits.back()) {
      logit *= static_cast<double>(model.hyper.logit_scale);
      if (cap > 0) logit = cap * std::tanh(logit / cap);
    }
  }
  return logits;
}

}  // namespace stagecoach::testing
