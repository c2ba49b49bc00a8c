#include "tests/testing/reference/latent_attention.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach::testing::reference {
namespace {

// YaRN's magnitude is in the scale, squared, since it belongs to the query and to the key. The file holds a tenth of
// the model's factor.
double Scale(const FileReader& file, int64_t width) {
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

}  // namespace

LatentAttention::LatentAttention(const FileReader& file, int64_t layer, int64_t context)
    : split_(file.HasKey("attention.key_length_mla")),
      heads_(file.Int("attention.head_count")),
      rank_(file.Int("attention.kv_lora_rank")),
      rotated_(file.Int("rope.dimension_count")),
      key_width_(file.Int(split_ ? "attention.key_length_mla" : "attention.key_length")),
      value_width_(file.Int(split_ ? "attention.value_length_mla" : "attention.value_length")),
      eps_(file.Float("attention.layer_norm_rms_epsilon")),
      rotary_(file, rotated_, /*windowed=*/false, context),
      keys_(static_cast<size_t>(heads_)),
      values_(static_cast<size_t>(heads_)) {
  head_.scale = reference::Scale(file, key_width_);
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

void LatentAttention::Forget() {
  for (auto& keys : keys_) keys.clear();
  for (auto& values : values_) values.clear();
  position_ = 0;
}

}  // namespace stagecoach::testing::reference
