#include <algorithm>
#include <cmath>
#include <deque>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/reference/attention.h"

namespace stagecoach::testing::reference {
namespace {

// Rows [first, first + count) of each `stride` rows, `groups` times.
Matrix RowsOfGroups(const Matrix& matrix, int64_t first, int64_t count, int64_t stride, int64_t groups) {
  Matrix out = {.rows = 0, .cols = matrix.cols, .values = {}};
  for (int64_t g = 0; g < groups; ++g) {
    const Matrix part = Rows(matrix, g * stride + first, count);
    out.rows += part.rows;
    out.values.insert(out.values.end(), part.values.begin(), part.values.end());
  }
  return out;
}

Matrix Below(Matrix a, const Matrix& b) {
  a.rows += b.rows;
  a.values.insert(a.values.end(), b.values.begin(), b.values.end());
  return a;
}

double Softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// The recurrence as its paper and Qwen's own code write it, position by position, head by head.
class DeltaNet : public Attention {
 public:
  DeltaNet(const FileReader& file, int64_t layer)
      : key_heads_(file.Int("ssm.group_count")),
        value_heads_(file.Int("ssm.time_step_rank")),
        width_(file.Int("ssm.state_size")),
        taps_(file.Int("ssm.conv_kernel")),
        grouped_(file.Is("qwen3next")),
        eps_(file.Float("attention.layer_norm_rms_epsilon")) {
    const std::string prefix = absl::StrCat("blk.", layer, ".");
    ReadProjections(file, prefix);
    conv_ = file.ReadMatrix(prefix + "ssm_conv1d.weight");
    dt_ = file.ReadVector(prefix + "ssm_dt.bias");
    decay_ = file.ReadVector(prefix + "ssm_a");
    norm_ = file.ReadVector(prefix + "ssm_norm.weight");
    out_ = file.ReadMatrix(prefix + "ssm_out.weight");
    CHECK_EQ(qkv_.rows, (2 * key_heads_ + value_heads_) * width_);
    CHECK_EQ(z_.rows, value_heads_ * width_);
    CHECK(conv_.rows == qkv_.rows && conv_.cols == taps_);
    CHECK(beta_.rows == value_heads_ && alpha_.rows == value_heads_);
    CHECK_EQ(norm_.size(), static_cast<size_t>(width_));
    DeltaNet::Forget();
  }

  Vector Attend(const Vector& x) override {
    const Vector mixed = Convolve(Multiply(qkv_, x));
    const Vector z = Multiply(z_, x), betas = Multiply(beta_, x), alphas = Multiply(alpha_, x);
    Vector all;
    for (int64_t h = 0; h < value_heads_; ++h) {
      const int64_t key_head = grouped_ ? h / (value_heads_ / key_heads_) : h % key_heads_;
      const auto part = [&](int64_t head) {
        return Vector(mixed.begin() + head * width_, mixed.begin() + (head + 1) * width_);
      };
      Vector q = Unit(part(key_head)), k = Unit(part(key_heads_ + key_head));
      for (double& value : q) value /= std::sqrt(static_cast<double>(width_));
      const auto at = static_cast<size_t>(h);
      const double decay = std::exp(Softplus(alphas[at] + dt_[at]) * decay_[at]);
      const Vector o = Step(at, q, k, part(2 * key_heads_ + h), decay, Sigmoid(betas[at]));
      const Vector normed = RmsNorm(o.data(), norm_, eps_);
      for (int64_t d = 0; d < width_; ++d) {
        all.push_back(normed[static_cast<size_t>(d)] * Silu(z[static_cast<size_t>(h * width_ + d)]));
      }
    }
    return Multiply(out_, all);
  }

  void Forget() override {
    past_.assign(static_cast<size_t>(taps_), Vector(static_cast<size_t>(qkv_.rows)));
    states_.assign(static_cast<size_t>(value_heads_), Vector(static_cast<size_t>(width_ * width_)));
  }

 private:
  void ReadProjections(const FileReader& file, const std::string& prefix) {
    const int64_t group = value_heads_ / key_heads_;
    if (file.HasTensor(prefix + "ssm_in.weight")) {
      const Matrix all = file.ReadMatrix(prefix + "ssm_in.weight");
      const int64_t values = group * width_, stride = 2 * width_ + 2 * values;
      const auto part = [&](int64_t first, int64_t rows) { return RowsOfGroups(all, first, rows, stride, key_heads_); };
      qkv_ = Below(Below(part(0, width_), part(width_, width_)), part(2 * width_, values));
      z_ = part(2 * width_ + values, values);
    } else {
      qkv_ = file.ReadMatrix(prefix + "attn_qkv.weight");
      z_ = file.ReadMatrix(prefix + "attn_gate.weight");
    }
    if (file.HasTensor(prefix + "ssm_ba.weight")) {
      const Matrix both = file.ReadMatrix(prefix + "ssm_ba.weight");
      beta_ = RowsOfGroups(both, 0, group, 2 * group, key_heads_);
      alpha_ = RowsOfGroups(both, group, group, 2 * group, key_heads_);
    } else {
      beta_ = file.ReadMatrix(prefix + "ssm_beta.weight");
      alpha_ = file.ReadMatrix(prefix + "ssm_alpha.weight");
    }
  }

  // The newest of the last inputs has the last tap.
  Vector Convolve(Vector input) {
    past_.push_back(std::move(input));
    past_.pop_front();
    Vector out(static_cast<size_t>(qkv_.rows));
    for (size_t channel = 0; channel < out.size(); ++channel) {
      double sum = 0;
      for (size_t t = 0; t < past_.size(); ++t) sum += conv_.values[channel * past_.size() + t] * past_[t][channel];
      out[channel] = Silu(sum);
    }
    return out;
  }

  Vector Unit(Vector x) const {
    const double norm = std::sqrt(Dot(x.data(), x.data(), width_));
    for (double& value : x) value /= std::max(norm, eps_);
    return x;
  }

  // The state forgets, learns what it does not know of v yet, and is asked.
  Vector Step(size_t head, const Vector& q, const Vector& k, const Vector& v, double decay, double beta) {
    Vector& state = states_[head];  // [keys][values]
    for (double& value : state) value *= decay;
    const auto read = [&](const Vector& by) {
      Vector sum(by.size());
      for (size_t i = 0; i < by.size(); ++i) {
        for (size_t j = 0; j < sum.size(); ++j) sum[j] += by[i] * state[i * sum.size() + j];
      }
      return sum;
    };
    const Vector known = read(k);
    for (size_t i = 0; i < k.size(); ++i) {
      for (size_t j = 0; j < v.size(); ++j) state[i * v.size() + j] += k[i] * beta * (v[j] - known[j]);
    }
    return read(q);
  }

  const int64_t key_heads_, value_heads_, width_, taps_;
  const bool grouped_;  // value heads that share a key head lie side by side, else they are dealt out
  const double eps_;
  Matrix qkv_, z_, beta_, alpha_, out_;
  Matrix conv_;  // [channels][taps]
  Vector dt_, decay_, norm_;
  std::deque<Vector> past_;     // [taps] inputs, the oldest first
  std::vector<Vector> states_;  // [value heads]
};

}  // namespace

std::unique_ptr<Attention> ReadDeltaNet(const FileReader& file, int64_t layer) {
  return std::make_unique<DeltaNet>(file, layer);
}

bool IsRecurrent(const FileReader& file, int64_t layer) {
  if (!file.Is("qwen3next") && !file.Is("qwen35") && !file.Is("qwen35moe")) return false;
  const std::vector<int64_t> flags = file.Array("attention.recurrent_layers");
  if (!flags.empty()) return flags.at(static_cast<size_t>(layer)) != 0;
  return (layer + 1) % file.Int("full_attention_interval", 4) != 0;
}

}  // namespace stagecoach::testing::reference
