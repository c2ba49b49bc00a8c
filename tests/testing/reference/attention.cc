#include "tests/testing/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/reference/latent_attention.h"
#include "tests/testing/reference/rotary.h"

namespace stagecoach::testing::reference {
namespace {

// The window of a layer, 0 where it sees everything. Windowed layers are all but the last of every period.
int64_t Window(const FileReader& file, int64_t layer) {
  const int64_t period = file.Is("gpt-oss") || file.Is("gemma2") ? 2 : file.Is("olmo2") ? 4 : file.Is("gemma3") ? 6 : 0;
  const int64_t window = file.Int("attention.sliding_window", file.Is("gemma2") ? 4096 : 0);
  // Phi 3 and Mistral 7B: every layer, as the models were published; llama.cpp looks at no key there.
  if (period == 0) return window;
  const std::vector<int64_t> flags = file.Array("attention.sliding_window_pattern");
  if (!flags.empty()) return flags.at(static_cast<size_t>(layer)) != 0 ? window : 0;
  const int64_t pattern = file.Int("attention.sliding_window_pattern", period);
  return layer % pattern < pattern - 1 ? window : 0;
}

double Scale(const FileReader& file, int64_t heads, int64_t width) {
  if (file.Is("granite")) return file.Float("attention.scale");
  const int64_t blocks = file.Int("block_count");
  // The 27B models of Gemma scale by the width that hidden / heads would be.
  if ((file.Is("gemma2") && blocks == 46) || (file.Is("gemma3") && blocks == 62))
    width = file.Int("embedding_length") / heads;
  return 1 / std::sqrt(static_cast<double>(width));
}

// The first `rotated` components of a head; no rotary at all in every fourth layer of SmolLM 3, and in Granite's models
// whose file says so.
int64_t RotatedWidth(const FileReader& file, int64_t layer, int64_t width) {
  if (file.Is("smollm3") && (layer + 1) % 4 == 0) return 0;
  if (file.Is("granite") && !file.Bool("rope.scaling.finetuned", true)) return 0;
  return file.Int("rope.dimension_count", width);
}

class HeadedAttention : public Attention {
 public:
  HeadedAttention(const FileReader& file, int64_t layer, int64_t context)
      : heads_(file.IntOfLayer("attention.head_count", layer)),
        kv_heads_(file.IntOfLayer("attention.head_count_kv", layer, heads_)),
        width_(file.Int("attention.key_length", file.Int("embedding_length") / heads_)),
        value_width_(file.Int("attention.value_length", file.Int("embedding_length") / heads_)),
        eps_(file.Float("attention.layer_norm_rms_epsilon")),
        head_{.scale = Scale(file, heads_, width_),
              .soft_cap = file.Is("gemma2") ? file.Float("attn_logit_softcapping", 50) : 0,
              .window = Window(file, layer)},
        rotary_(file, RotatedWidth(file, layer, width_), head_.window > 0, context) {
    const std::string prefix = absl::StrCat("blk.", layer, ".");
    ReadProjections(file, prefix);
    out_ = file.ReadLinear(prefix + "attn_output");
    q_norm_ = file.ReadVector(prefix + "attn_q_norm.weight");
    k_norm_ = file.ReadVector(prefix + "attn_k_norm.weight");
    sinks_ = file.ReadVector(prefix + "attn_sinks.weight");
    CHECK(sinks_.empty() || sinks_.size() == static_cast<size_t>(heads_));
    keys_.resize(static_cast<size_t>(kv_heads_));
    values_.resize(static_cast<size_t>(kv_heads_));
  }

  Vector Attend(const Vector& x) override {
    Vector q = Apply(q_, x), k = Apply(k_, x);
    const Vector v = Apply(v_, x);
    PlaceHeads(q_norm_, &q);
    PlaceHeads(k_norm_, &k);
    for (int64_t h = 0; h < kv_heads_; ++h) {
      keys_[static_cast<size_t>(h)].emplace_back(k.begin() + h * width_, k.begin() + (h + 1) * width_);
      values_[static_cast<size_t>(h)].emplace_back(v.begin() + h * value_width_, v.begin() + (h + 1) * value_width_);
    }
    ++position_;
    Vector all;
    for (int64_t h = 0; h < heads_; ++h) {
      Head head = head_;
      if (!sinks_.empty()) head.sink = &sinks_[static_cast<size_t>(h)];
      const size_t kv = static_cast<size_t>(h / (heads_ / kv_heads_));
      const Vector query(q.begin() + h * width_, q.begin() + (h + 1) * width_);
      const Vector out = AttendWithHead(head, query, keys_[kv], values_[kv]);
      all.insert(all.end(), out.begin(), out.end());
    }
    return Apply(out_, all);
  }

  void Forget() override {
    for (auto& keys : keys_) keys.clear();
    for (auto& values : values_) values.clear();
    position_ = 0;
  }

 private:
  void ReadProjections(const FileReader& file, const std::string& prefix) {
    if (!file.HasTensor(prefix + "attn_qkv.weight")) {
      q_ = file.ReadLinear(prefix + "attn_q");
      k_ = file.ReadLinear(prefix + "attn_k");
      v_ = file.ReadLinear(prefix + "attn_v");
    } else {
      const Linear all = file.ReadLinear(prefix + "attn_qkv");
      int64_t row = 0;
      for (const auto& [part, rows] : {std::pair(&q_, heads_ * width_), std::pair(&k_, kv_heads_ * width_),
                                       std::pair(&v_, kv_heads_ * value_width_)}) {
        part->weight = Rows(all.weight, row, rows);
        if (!all.bias.empty()) part->bias = Vector(all.bias.begin() + row, all.bias.begin() + row + rows);
        row += rows;
      }
    }
    CHECK_EQ(q_.weight.rows, heads_ * width_);
    CHECK_EQ(k_.weight.rows, kv_heads_ * width_);
    CHECK_EQ(v_.weight.rows, kv_heads_ * value_width_);
  }

  // Norm, then rotation. A norm as long as the whole vector is one over all heads, a shorter one is that of each head.
  void PlaceHeads(const Vector& norm, Vector* all) const {
    const bool whole = norm.size() == all->size();
    if (whole) *all = RmsNorm(all->data(), norm, eps_);
    for (size_t begin = 0; begin < all->size(); begin += static_cast<size_t>(width_)) {
      double* head = all->data() + begin;
      if (!norm.empty() && !whole) {
        CHECK_EQ(norm.size(), static_cast<size_t>(width_));
        const Vector normed = RmsNorm(head, norm, eps_);
        std::copy(normed.begin(), normed.end(), head);
      }
      rotary_.Rotate(head, position_);
    }
  }

  const int64_t heads_, kv_heads_, width_, value_width_;
  const double eps_;
  const Head head_;  // what all heads of the layer share
  const Rotary rotary_;
  Linear q_, k_, v_, out_;
  Vector q_norm_, k_norm_, sinks_;
  std::vector<std::vector<Vector>> keys_, values_;  // [kv_heads][positions][width]
  int64_t position_ = 0;
};

}  // namespace

Vector AttendWithHead(const Head& head, const Vector& query, const std::vector<Vector>& keys,
                      const std::vector<Vector>& values) {
  const int64_t count = static_cast<int64_t>(keys.size());
  const int64_t begin = head.window > 0 ? std::max<int64_t>(0, count - head.window) : 0;
  Vector weights;
  for (int64_t j = begin; j < count; ++j) {
    const double product = Dot(query.data(), keys[static_cast<size_t>(j)].data(), static_cast<int64_t>(query.size()));
    weights.push_back(SoftCap(product * head.scale, head.soft_cap));
  }
  if (head.sink != nullptr) weights.push_back(*head.sink);
  SoftmaxInPlace(&weights);
  Vector out(values.front().size());
  for (int64_t j = begin; j < count; ++j) {
    const Vector& value = values[static_cast<size_t>(j)];
    for (size_t d = 0; d < out.size(); ++d) out[d] += weights[static_cast<size_t>(j - begin)] * value[d];
  }
  return out;
}

std::unique_ptr<Attention> ReadAttention(const FileReader& file, int64_t layer, int64_t context) {
  if (file.Is("deepseek2")) return std::make_unique<LatentAttention>(file, layer, context);
  return std::make_unique<HeadedAttention>(file, layer, context);
}

}  // namespace stagecoach::testing::reference
