#include "tests/testing/reference/feed_forward.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/reference/experts.h"

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
                           file.Is("minimax-m2") || (file.Is("llama") && file.Int("expert_count", 0) > 0);
  if (has_experts && layer >= file.Int("leading_dense_block_count", 0)) {
    return std::make_unique<ExpertFeedForward>(file, prefix);
  }
  return std::make_unique<DenseFeedForward>(file, prefix);
}

}  // namespace stagecoach::testing::reference
