#include "tests/testing/reference/feed_forward.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach::testing::reference {
namespace {

double Activate(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::kSilu: return Silu(gate) * up;
    case Activation::kGelu: return Gelu(gate) * up;
    case Activation::kClampedSwiglu: {
      gate = std::min(gate, 7.0);
      return gate * Sigmoid(1.702 * gate) * (std::clamp(up, -7.0, 7.0) + 1);
    }
  }
  CHECK(false);
}

class DenseFeedForward : public FeedForward {
 public:
  DenseFeedForward(const FileReader& file, const std::string& prefix) {
    network_.down = file.ReadLinear(prefix + "ffn_down");
    if (file.Is("gemma2") || file.Is("gemma3")) network_.activation = Activation::kGelu;
    if (file.HasTensor(prefix + "ffn_gate.weight")) {
      network_.gate = file.ReadLinear(prefix + "ffn_gate");
      network_.up = file.ReadLinear(prefix + "ffn_up");
    } else {  // Phi 3: one matrix, the gate's rows first
      const Matrix both = file.ReadMatrix(prefix + "ffn_up.weight");
      network_.gate.weight = Rows(both, 0, both.rows / 2);
      network_.up.weight = Rows(both, both.rows / 2, both.rows / 2);
    }
  }
  Vector Run(const Vector& x) override { return network_.Run(x); }

 private:
  GatedNetwork network_;
};

bool Normalised(const FileReader& file) {
  if (file.Is("qwen3moe") || file.Is("minimax-m2") || file.Is("llama")) return true;  // whatever the key says
  if (file.Is("qwen35moe") || file.Is("qwen3next")) return true;
  return !file.Is("gpt-oss") && file.Bool("expert_weights_norm", false);
}

double WeightScale(const FileReader& file) {
  if (!file.Is("glm4moe") && !file.Is("deepseek2") && !file.Is("qwen35moe") && !file.Is("qwen3next")) return 1;
  const double scale = file.Float("expert_weights_scale", 1);
  return scale == 0 ? 1 : scale;
}

// One matrix a kind and expert, and its bias where there are some: {width, experts}.
std::vector<Linear> ReadExperts(const FileReader& file, const std::string& name) {
  std::vector<Linear> experts;
  for (Matrix& matrix : file.ReadStack(name + ".weight")) experts.push_back({.weight = std::move(matrix), .bias = {}});
  if (!file.HasTensor(name + ".bias")) return experts;
  const Matrix biases = file.ReadMatrix(name + ".bias");
  CHECK_EQ(biases.rows, static_cast<int64_t>(experts.size()));
  for (size_t e = 0; e < experts.size(); ++e) experts[e].bias = Rows(biases, static_cast<int64_t>(e), 1).values;
  return experts;
}

class Router {
 public:
  Router(const FileReader& file, const std::string& prefix);

  // The chosen experts, the best first, and their weights.
  std::vector<std::pair<int64_t, double>> Choose(const Vector& x);
  double smallest_margin() const { return smallest_margin_; }
  int64_t experts() const { return experts_; }

 private:
  enum class Gating { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  static Gating GatingOf(const FileReader& file);
  // -infinity in place of the scores of groups that are out.
  void KeepBestGroups(Vector* scores);
  // The `count` largest, of equal ones the first ones; notes the margin.
  std::vector<int64_t> Largest(const Vector& scores, int64_t count);

  const int64_t experts_, used_, groups_, groups_used_;
  const Gating gating_;
  const bool normalised_;
  const double scale_;  // of the weights
  Linear gate_;
  Vector choice_bias_;
  double smallest_margin_ = 1e300;
};

class ExpertFeedForward : public FeedForward {
 public:
  ExpertFeedForward(const FileReader& file, const std::string& prefix);
  Vector Run(const Vector& x) override;
  double ChoiceMargin() const override { return router_.smallest_margin(); }

 private:
  Router router_;
  std::vector<GatedNetwork> experts_;
  std::vector<GatedNetwork> shared_;  // one, as wide as all shared ones, or none
  Vector shared_gate_;                // empty: none
};

Router::Gating Router::GatingOf(const FileReader& file) {
  if (file.Is("qwen3moe") || file.Is("llama") || file.Is("qwen35moe") || file.Is("qwen3next")) return Gating::kSoftmax;
  if (file.Is("gpt-oss")) return Gating::kSoftmaxOfChosen;
  const int64_t function = file.Int("expert_gating_func", 0);
  CHECK_LE(function, 3);
  if (function != 0) return static_cast<Gating>(function - 1);
  // GLM-4.7-Flash is told from DeepSeek's older models by its size.
  const int64_t blocks = file.Int("block_count");
  const bool flash = (blocks == 47 || blocks == 48) && file.Int("vocab_size", 0) == 154880;
  return file.Is("deepseek2") && !flash ? Gating::kSoftmax : Gating::kSigmoid;
}

Router::Router(const FileReader& file, const std::string& prefix)
    : experts_(file.Int("expert_count")),
      used_(file.Int("expert_used_count")),
      groups_(file.Is("qwen3moe") || file.Is("gpt-oss") ? 1 : std::max<int64_t>(1, file.Int("expert_group_count", 1))),
      groups_used_(groups_ > 1 ? file.Int("expert_group_used_count") : 1),
      gating_(GatingOf(file)),
      normalised_(Normalised(file)),
      scale_(WeightScale(file)),
      gate_(file.ReadLinear(prefix + "ffn_gate_inp")),
      choice_bias_(file.ReadVector(prefix + "exp_probs_b.bias")) {
  CHECK_EQ(gate_.weight.rows, experts_);
  CHECK_LE(used_, experts_);
}

std::vector<int64_t> Router::Largest(const Vector& scores, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  if (count < static_cast<int64_t>(order.size())) {
    const auto score = [&](int64_t rank) { return scores[static_cast<size_t>(order[static_cast<size_t>(rank)])]; };
    smallest_margin_ = std::min(smallest_margin_, score(count - 1) - score(count));
  }
  order.resize(static_cast<size_t>(count));
  return order;
}

void Router::KeepBestGroups(Vector* scores) {
  const int64_t size = experts_ / groups_;
  Vector of_groups;
  for (int64_t g = 0; g < groups_; ++g) {
    Vector group(scores->begin() + g * size, scores->begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    of_groups.push_back(group[0] + (size > 1 ? group[1] : 0));
  }
  const std::vector<int64_t> best = Largest(of_groups, groups_used_);
  for (int64_t g = 0; g < groups_; ++g) {
    if (std::find(best.begin(), best.end(), g) != best.end()) continue;
    std::fill_n(scores->begin() + g * size, size, -std::numeric_limits<double>::infinity());
  }
}

std::vector<std::pair<int64_t, double>> Router::Choose(const Vector& x) {
  const Vector logits = Apply(gate_, x);
  Vector probabilities = logits;
  if (gating_ == Gating::kSoftmax) SoftmaxInPlace(&probabilities);
  if (gating_ == Gating::kSigmoid) std::transform(logits.begin(), logits.end(), probabilities.begin(), Sigmoid);
  // The bias decides who is chosen, never how much the choice weighs.
  Vector scores = probabilities;
  AddTo(choice_bias_, &scores);
  if (groups_ > 1) KeepBestGroups(&scores);
  const std::vector<int64_t> chosen = Largest(scores, used_);
  Vector weights;
  for (const int64_t expert : chosen) weights.push_back(probabilities[static_cast<size_t>(expert)]);
  if (gating_ == Gating::kSoftmaxOfChosen) SoftmaxInPlace(&weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::pair<int64_t, double>> result;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (normalised_) weights[i] /= std::max(sum, 6.103515625e-5);
    result.emplace_back(chosen[i], weights[i] * scale_);
  }
  return result;
}

ExpertFeedForward::ExpertFeedForward(const FileReader& file, const std::string& prefix)
    : router_(file, prefix), experts_(static_cast<size_t>(router_.experts())) {
  const std::vector<Linear> downs = ReadExperts(file, prefix + "ffn_down_exps");
  std::vector<Linear> gates, ups;
  if (file.HasTensor(prefix + "ffn_gate_up_exps.weight")) {
    for (const Linear& both : ReadExperts(file, prefix + "ffn_gate_up_exps")) {
      const int64_t width = both.weight.rows / 2;
      CHECK(both.bias.empty());
      gates.push_back({.weight = Rows(both.weight, 0, width), .bias = {}});
      ups.push_back({.weight = Rows(both.weight, width, width), .bias = {}});
    }
  } else {
    gates = ReadExperts(file, prefix + "ffn_gate_exps");
    ups = ReadExperts(file, prefix + "ffn_up_exps");
  }
  CHECK_EQ(downs.size(), experts_.size());
  const Activation activation = file.Is("gpt-oss") ? Activation::kClampedSwiglu : Activation::kSilu;
  for (size_t e = 0; e < experts_.size(); ++e) {
    experts_[e] = {.gate = gates.at(e), .up = ups.at(e), .down = downs[e], .activation = activation};
  }
  if (file.HasTensor(prefix + "ffn_gate_shexp.weight")) {
    shared_.push_back({.gate = file.ReadLinear(prefix + "ffn_gate_shexp"),
                       .up = file.ReadLinear(prefix + "ffn_up_shexp"),
                       .down = file.ReadLinear(prefix + "ffn_down_shexp")});
    shared_gate_ = file.ReadVector(prefix + "ffn_gate_inp_shexp.weight");
  }
}

Vector ExpertFeedForward::Run(const Vector& x) {
  Vector sum(x.size());
  for (const auto& [expert, weight] : router_.Choose(x)) {
    const Vector out = experts_[static_cast<size_t>(expert)].Run(x);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * out[i];
  }
  for (const GatedNetwork& shared : shared_) {
    Vector out = shared.Run(x);
    const double gate =
        shared_gate_.empty() ? 1 : Sigmoid(Dot(shared_gate_.data(), x.data(), static_cast<int64_t>(x.size())));
    for (double& value : out) value *= gate;
    AddTo(out, &sum);
  }
  return sum;
}

}  // namespace

Vector GatedNetwork::Run(const Vector& x) const {
  Vector inner = Apply(gate, x);
  const Vector factors = Apply(up, x);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = Activate(activation, inner[i], factors[i]);
  return Apply(down, inner);
}

std::unique_ptr<FeedForward> ReadFeedForward(const FileReader& file, int64_t layer) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const bool has_experts = file.Is("qwen3moe") || file.Is("gpt-oss") || file.Is("glm4moe") || file.Is("deepseek2") ||
                           file.Is("minimax-m2") || file.Is("qwen35moe") || file.Is("qwen3next") ||
                           (file.Is("llama") && file.Int("expert_count", 0) > 0);
  if (has_experts && layer >= file.Int("leading_dense_block_count", 0)) {
    return std::make_unique<ExpertFeedForward>(file, prefix);
  }
  return std::make_unique<DenseFeedForward>(file, prefix);
}

}  // namespace stagecoach::testing::reference
