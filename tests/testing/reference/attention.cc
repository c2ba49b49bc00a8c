#include "tests/testing/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
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

// How a head turns the scores of the positions it sees into weights and those into one value.
struct Head {
  double scale = 1;              // of the products of query and key
  double soft_cap = 0;           // of the scaled ones; 0: none
  const double* sink = nullptr;  // one more logit, with nothing behind it
  int64_t window = 0;            // of positions, the own one included; 0: all before
};

// keys and values: [positions][width], of this head; returns [value width].
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
        rotary_(file, RotatedWidth(file, layer, width_), head_.window > 0, context),
        gated_(file.Is("qwen3next") || file.Is("qwen35") || file.Is("qwen35moe")) {
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
    const Vector v = Apply(v_, x), gates = TakeGates(&q);
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
    for (size_t i = 0; i < gates.size(); ++i) all[i] *= Sigmoid(gates[i]);
    return Apply(out_, all);
  }

 private:
  int64_t q_rows() const { return (gated_ ? 2 : 1) * heads_ * width_; }

  // Of gated attention each head's query is followed by as many gates, which leave q.
  Vector TakeGates(Vector* q) const {
    if (!gated_) return {};
    Vector queries, gates;
    for (int64_t h = 0; h < heads_; ++h) {
      const auto head = q->begin() + 2 * h * width_;
      queries.insert(queries.end(), head, head + width_);
      gates.insert(gates.end(), head + width_, head + 2 * width_);
    }
    *q = queries;
    return gates;
  }

  void ReadProjections(const FileReader& file, const std::string& prefix) {
    if (!file.HasTensor(prefix + "attn_qkv.weight")) {
      q_ = file.ReadLinear(prefix + "attn_q");
      k_ = file.ReadLinear(prefix + "attn_k");
      v_ = file.ReadLinear(prefix + "attn_v");
    } else {
      const Linear all = file.ReadLinear(prefix + "attn_qkv");
      int64_t row = 0;
      for (const auto& [part, rows] :
           {std::pair(&q_, q_rows()), std::pair(&k_, kv_heads_ * width_), std::pair(&v_, kv_heads_ * value_width_)}) {
        part->weight = Rows(all.weight, row, rows);
        if (!all.bias.empty()) part->bias = Vector(all.bias.begin() + row, all.bias.begin() + row + rows);
        row += rows;
      }
    }
    CHECK_EQ(q_.weight.rows, q_rows());
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
  const bool gated_;
  Linear q_, k_, v_, out_;
  Vector q_norm_, k_norm_, sinks_;
};

// YaRN's magnitude is in the scale, squared, since it belongs to the query and to the key. The file holds a tenth of
// the model's factor.
double LatentScale(const FileReader& file, int64_t width) {
  double magnitude = 1;
  if (file.String("rope.scaling.type", "linear") == "yarn") {
    CHECK_EQ(file.Float("rope.scaling.attn_factor", 1), 1.0);  // what it would multiply here is not agreed upon
    magnitude += file.Float("rope.scaling.yarn_log_multiplier") * std::log(file.Float("rope.scaling.factor"));
  }
  return magnitude * magnitude / std::sqrt(static_cast<double>(width));
}

Matrix Transposed(const Matrix& matrix) {
  Matrix out = {.rows = matrix.cols, .cols = matrix.rows, .values = Vector(matrix.values.size())};
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) {
      out.values[static_cast<size_t>(c * matrix.rows + r)] = matrix.values[static_cast<size_t>(r * matrix.cols + c)];
    }
  }
  return out;
}

// DeepSeek's attention as its paper writes it: every head's keys and values are made from the latent vector, and then
// it is attention like any other. The product keeps the latent and moves the matrices to the query and the output: that
// both give the same is what a comparison of the two shows.
class LatentAttention : public Attention {
 public:
  LatentAttention(const FileReader& file, int64_t layer, int64_t context);

  Vector Attend(const Vector& x) override;

 private:
  void ReadQuery(const FileReader& file, const std::string& prefix);
  void ReadKeysAndValues(const FileReader& file, const std::string& prefix);
  void Remember(const Vector& x);

  const bool split_;  // the file tells the two halves of kv_b apart
  const int64_t heads_, rank_, rotated_, key_width_, value_width_;
  const double eps_;
  const Rotary rotary_;
  Head head_;
  Matrix q_a_, q_b_;  // without q_a, q_b is the whole projection
  Vector q_a_norm_, kv_norm_;
  Matrix kv_a_;              // [rank + rotated][hidden]
  std::vector<Matrix> k_b_;  // of every head, [key_width - rotated][rank]
  std::vector<Matrix> v_b_;  // of every head, [value_width][rank]
  Linear out_;
};

LatentAttention::LatentAttention(const FileReader& file, int64_t layer, int64_t context)
    : split_(file.HasKey("attention.key_length_mla")),
      heads_(file.Int("attention.head_count")),
      rank_(file.Int("attention.kv_lora_rank")),
      rotated_(file.Int("rope.dimension_count")),
      key_width_(file.Int(split_ ? "attention.key_length_mla" : "attention.key_length")),
      value_width_(file.Int(split_ ? "attention.value_length_mla" : "attention.value_length")),
      eps_(file.Float("attention.layer_norm_rms_epsilon")),
      rotary_(file, rotated_, /*windowed=*/false, context) {
  keys_.resize(static_cast<size_t>(heads_));
  values_.resize(static_cast<size_t>(heads_));
  head_.scale = LatentScale(file, key_width_);
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  ReadQuery(file, prefix);
  kv_a_ = file.ReadMatrix(prefix + "attn_kv_a_mqa.weight");
  kv_norm_ = file.ReadVector(prefix + "attn_kv_a_norm.weight");
  CHECK_EQ(kv_a_.rows, rank_ + rotated_);
  CHECK_EQ(kv_norm_.size(), static_cast<size_t>(rank_));
  ReadKeysAndValues(file, prefix);
  out_ = file.ReadLinear(prefix + "attn_output");
}

void LatentAttention::ReadQuery(const FileReader& file, const std::string& prefix) {
  if (file.HasKey("attention.q_lora_rank")) {
    q_a_ = file.ReadMatrix(prefix + "attn_q_a.weight");
    q_a_norm_ = file.ReadVector(prefix + "attn_q_a_norm.weight");
    CHECK_EQ(q_a_.rows, file.Int("attention.q_lora_rank"));
    q_b_ = file.ReadMatrix(prefix + "attn_q_b.weight");
  } else {
    q_b_ = file.ReadMatrix(prefix + "attn_q.weight");
  }
  CHECK_EQ(q_b_.rows, heads_ * key_width_);
}

void LatentAttention::ReadKeysAndValues(const FileReader& file, const std::string& prefix) {
  const int64_t plain = key_width_ - rotated_;
  if (file.HasTensor(prefix + "attn_kv_b.weight")) {
    const Matrix both = file.ReadMatrix(prefix + "attn_kv_b.weight");
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t row = h * (plain + value_width_);
      k_b_.push_back(Rows(both, row, plain));
      v_b_.push_back(Rows(both, row + plain, value_width_));
    }
  } else {
    for (const Matrix& head : file.ReadStack(prefix + "attn_k_b.weight")) k_b_.push_back(Transposed(head));
    v_b_ = file.ReadStack(prefix + "attn_v_b.weight");
  }
  CHECK_EQ(k_b_.size(), static_cast<size_t>(heads_));
  CHECK_EQ(v_b_.size(), static_cast<size_t>(heads_));
  CHECK_EQ(k_b_[0].rows, plain);
  CHECK_EQ(v_b_[0].rows, value_width_);
}

// The keys and values of the next position: a head's key is what its own matrix makes of the latent vector, and the
// rotated part, which all heads share.
void LatentAttention::Remember(const Vector& x) {
  const Vector compressed = Multiply(kv_a_, x);
  const Vector latent = RmsNorm(compressed.data(), kv_norm_, eps_);
  Vector rotated(compressed.begin() + rank_, compressed.end());
  rotary_.Rotate(rotated.data(), position_);
  for (size_t h = 0; h < keys_.size(); ++h) {
    Vector key = Multiply(k_b_[h], latent);
    key.insert(key.end(), rotated.begin(), rotated.end());
    keys_[h].push_back(std::move(key));
    values_[h].push_back(Multiply(v_b_[h], latent));
  }
}

Vector LatentAttention::Attend(const Vector& x) {
  Vector narrow = x;
  if (q_a_.rows > 0) {
    const Vector compressed = Multiply(q_a_, x);
    narrow = RmsNorm(compressed.data(), q_a_norm_, eps_);
  }
  const Vector q = Multiply(q_b_, narrow);
  Remember(x);
  Vector all;
  for (size_t h = 0; h < keys_.size(); ++h) {
    const auto first = q.begin() + static_cast<int64_t>(h) * key_width_;
    Vector query(first, first + key_width_);
    rotary_.Rotate(query.data() + key_width_ - rotated_, position_);
    const Vector out = AttendWithHead(head_, query, keys_[h], values_[h]);
    all.insert(all.end(), out.begin(), out.end());
  }
  ++position_;
  return Apply(out_, all);
}

}  // namespace

void Attention::Forget() {
  for (auto& keys : keys_) keys.clear();
  for (auto& values : values_) values.clear();
  position_ = 0;
}

std::unique_ptr<Attention> ReadAttention(const FileReader& file, int64_t layer, int64_t context) {
  if (IsRecurrent(file, layer)) return ReadDeltaNet(file, layer);
  if (file.Is("deepseek2")) return std::make_unique<LatentAttention>(file, layer, context);
  return std::make_unique<HeadedAttention>(file, layer, context);
}

}  // namespace stagecoach::testing::reference
