#ifndef STAGECOACH_COMMON_MODEL_LAYER_SPEC_H_
#define STAGECOACH_COMMON_MODEL_LAYER_SPEC_H_

// What one layer computes, as data: the forward pass, the loader and the planner go by these fields and never by an
// architecture's name. Layers of a model may differ. A kind that no code computes is refused when a model is opened
// (ReadHyperParameters), so that whoever has a spec may trust it.

#include <cstdint>

namespace stagecoach {

// Which elements of a head RoPE rotates together.
enum class RopePairs {
  kHalves,    // (x[i], x[i + H/2]): qwen2, qwen3 ("NEOX")
  kAdjacent,  // (x[2i], x[2i + 1]): llama ("NORM")
};
enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeParameters {
  RopePairs pairs = RopePairs::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  double freq_base = 10000;
  double factor = 1;             // context extension; positions are divided by it (linear, YaRN)
  int64_t original_context = 0;  // YaRN's n0
  double attn_factor = 1;        // YaRN: multiplies cos and sin, beside 1 + 0.1 ln(factor)
  double ext_factor = 1, beta_fast = 32, beta_slow = 1;

  friend bool operator==(const RopeParameters&, const RopeParameters&) = default;
};

// Which positions a row attends to.
enum class AttentionKind {
  kFull,      // its own and all before it
  kWindowed,  // its own and the window - 1 before it; no code computes it
};

// Grouped-query attention: x += Wo softmax(q K^T / sqrt(H)) V. Specs that are equal share one plan of the step's
// walks and one table of angles.
struct AttentionSpec {
  AttentionKind kind = AttentionKind::kFull;
  int64_t window = 0;     // kWindowed: positions a row sees, its own included
  int64_t heads = 0;      // Nq
  int64_t kv_heads = 0;   // Nk, divides heads
  int64_t head_dim = 0;   // H, even
  bool qkv_bias = false;  // q, k and v must have biases (qwen2); where it is false they may
  bool qk_norm = false;   // RMSNorm of every q and k head before RoPE (qwen3)
  RopeParameters rope;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t group() const { return heads / kv_heads; }  // query heads to a KV head
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

enum class FfnKind {
  kDense,    // x += Wdown (silu(Wgate m) * Wup m)
  kExperts,  // a router chooses `experts_used` of `experts` such units for each row; no code computes it
};

struct FfnSpec {
  FfnKind kind = FfnKind::kDense;
  int64_t width = 0;  // F, of one unit
  int64_t experts = 0, experts_used = 0;

  friend bool operator==(const FfnSpec&, const FfnSpec&) = default;
};

// One transformer layer: each half normalises its input with RMSNorm first.
struct LayerSpec {
  AttentionSpec attention;
  FfnSpec ffn;
  float norm_eps = 0;
  int32_t block_group = 0;  // of its KV: see BlockLists in common/step/step.h

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_LAYER_SPEC_H_
