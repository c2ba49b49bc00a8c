#ifndef STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
#define STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_

// The numbers that define a model's forward pass, read from GGUF metadata and checked, and what each layer computes, as
// data: the forward pass, the loader and the planner read these fields, never the architecture's name. Layers of a
// model may differ. ReadHyperParameters refuses what no code computes, so they may be trusted.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach {

// Which elements of what RoPE rotates it takes for a pair.
enum class RopePairs {
  kHalves,    // (x[i], x[i + n/2]) of n: qwen2, qwen3 ("NEOX")
  kAdjacent,  // (x[2i], x[2i + 1]): llama, deepseek2 ("NORM")
};
enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeParameters {
  RopePairs pairs = RopePairs::kHalves;
  int64_t dims = 0;  // of a head that are rotated, even: its first, of latent attention its last; 0: none
  RopeScaling scaling = RopeScaling::kNone;
  double freq_base = 10000;
  double factor = 1;             // context extension; positions are divided by it (linear, YaRN)
  int64_t original_context = 0;  // YaRN's n0
  double attn_factor = 1;        // multiplies cos and sin
  bool log_magnitude = true;     // YaRN: so does 1 + 0.1 ln(factor); DeepSeek has that in AttentionSpec::score_scale
  double ext_factor = 1, beta_fast = 32, beta_slow = 1;
  bool factors = false;  // rope_freqs.weight of the model divides the frequencies (llama 3)

  friend bool operator==(const RopeParameters&, const RopeParameters&) = default;
};

// Which positions a row attends to.
enum class AttentionKind {
  kFull,      // its own and all before it
  kWindowed,  // its own and the window - 1 before it
};

// RMSNorm of q and k before RoPE.
enum class QkNorm {
  kNone,
  kHeads,  // of each head; weights [H] that all heads share (qwen3)
  kWhole,  // of all heads together; weights [Nq*H] and [Nk*H] (minimax-m2, olmo2)
};

// x += Wo softmax(score_scale * q K^T) V.
// Grouped-query attention keeps K and V of every KV head. Latent attention (MLA; DeepSeek-V2, 2024), with kv_rank r > 0
// and d = rope.dims, keeps of each position one row [r + d], shared by all heads: a latent, which is also the value,
// and a rotated key. It is computed in its absorbed form alone: of a head's q = [n | p], n of head_dim - d elements,
// the score is (Wk_b n | p) . row, and Wv_b takes the weighted latents [r] to the head's output [value_dim].
// Specs whose walks are equal share one plan of the step; equal RopeParameters share one table of angles.
struct AttentionSpec {
  AttentionKind kind = AttentionKind::kFull;
  int64_t window = 0;     // kWindowed: positions a row sees, its own included
  int64_t heads = 0;      // Nq
  int64_t kv_heads = 0;   // Nk, divides heads; latent: 1
  int64_t head_dim = 0;   // H, of q, and unless latent of k and v; even
  int64_t value_dim = 0;  // of what a head gives to Wo: H, unless latent
  int64_t kv_rank = 0;    // r of latent attention, else 0
  int64_t q_rank = 0;     // of latent attention: q = Wq_b RMSNorm(Wq_a x) through so many elements; 0: q = Wq x
  bool qkv_bias = false;  // q, k and v must have biases (qwen2); where it is false they may
  QkNorm qk_norm = QkNorm::kNone;
  // Wq gives of each head H rows of q, then H of a gate: sigmoid(gate) multiplies the head's output.
  bool gated = false;
  bool sinks = false;      // a score of its own for each head, which joins the softmax and has no value (gpt-oss)
  double score_scale = 0;  // 1/sqrt(H), unless the model says otherwise
  double score_cap = 0;    // score = cap * tanh(score / cap) (gemma2); 0: none
  RopeParameters rope;

  bool latent() const { return kv_rank > 0; }
  int64_t q_width() const { return heads * head_dim; }
  int64_t q_rows() const { return gated ? 2 * q_width() : q_width(); }  // of Wq
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t output_width() const { return heads * value_dim; }  // of Wo's input
  int64_t group() const { return heads / kv_heads; }          // query heads to a KV head
  // What the cache has of a position and KV head: a key, and a value, which is the key's beginning if latent.
  int64_t key_dim() const { return latent() ? kv_rank + rope.dims : head_dim; }
  int64_t cached_value_dim() const { return latent() ? kv_rank : head_dim; }
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

// Gated delta net (Yang et al. 2024): linear attention that keeps, whatever the length of a sequence, a state of
// value_heads matrices and the last conv_kernel - 1 inputs of a convolution. Of a row h, with KD = key_heads * d and
// VD = value_heads * d:
//   u = Wqkv h [2 KD + VD], z = Wz h [VD], b = Wb h, a = Wa h [value_heads]
//   y = SiLU(sum_t w[t] u of the position conv_kernel - 1 - t before), which is q, k [key_heads][d] and
//       v [value_heads][d]
//   q, k each divided by max(its norm, norm_eps); q also by sqrt(d)
//   of each value head, S [d of the key][d of the value]: S = e^g S; S += k (sigmoid(b) (v - k S))^T; o = q S,
//       with g = softplus(a + dt_bias) * decay, decay < 0; all in f32
//   x += Wout (RMSNorm(o of each head) * SiLU(z))
// The step form, row after row, is the definition: a result's bits depend on nothing else.
struct DeltaNetSpec {
  int64_t conv_kernel = 0;  // c, kMinConvKernel .. kMaxConvKernel
  int64_t key_heads = 0;    // Hk
  int64_t value_heads = 0;  // Hv, a multiple of key_heads
  int64_t head_dim = 0;     // d
  bool grouped = false;     // value head h goes with key head h / (Hv / Hk) (qwen3next); else with h mod Hk (qwen35)

  int64_t key_width() const { return key_heads * head_dim; }
  int64_t value_width() const { return value_heads * head_dim; }
  int64_t conv_width() const { return 2 * key_width() + value_width(); }
  int64_t key_head_of(int64_t value_head) const {
    return grouped ? value_head / (value_heads / key_heads) : value_head % key_heads;
  }
  // Floats of a sequence's state in one layer: the matrices, and the convolution's last inputs.
  int64_t conv_floats() const { return (conv_kernel - 1) * conv_width(); }
  int64_t state_floats() const { return conv_floats() + value_heads * head_dim * head_dim; }
  friend bool operator==(const DeltaNetSpec&, const DeltaNetSpec&) = default;
};

// What mixes a row with those before it.
enum class MixerKind {
  kAttention,  // over K and V that blocks of the layer's block group keep
  kDeltaNet,   // with a part of its sequence's state slot; no blocks
};

// Of g = Wgate m and u = Wup m.
enum class Activation {
  kSwiglu,         // silu(g) * u
  kGeglu,          // gelu(g) * u, gelu by tanh (gemma)
  kClampedSwiglu,  // g' sigmoid(1.702 g') (u' + 1), g' = min(g, 7), u' = u held within -7 .. 7 (gpt-oss)
};

enum class FfnKind {
  kDense,    // x += Wdown act(Wgate m, Wup m)
  kExperts,  // x += the sum of what the `experts_used` of `experts` such units give that a router chooses for the row
};

// How logits l = Wr m of a row, one an expert, become a choice and its weights. Ties go to the lower expert.
enum class Gating {
  kSoftmax,          // p = softmax over all (qwen3moe)
  kSigmoid,          // p = sigmoid (glm4moe, deepseek2, minimax-m2)
  kSoftmaxOfChosen,  // chosen by l itself; weights are the softmax over the chosen (gpt-oss)
};

// Choice: the largest s = p (+ a bias of each expert, which no weight sees), among the experts of the groups_used best
// of `groups` equal, consecutive groups; a group's score is the sum of its two largest s. Weights: p of the chosen in
// descending order of s, divided by their sum (at least 2^-14) if normalized, times scale.
struct RouterSpec {
  Gating gating = Gating::kSoftmax;
  bool normalized = true;
  double scale = 1;
  int64_t groups = 1, groups_used = 1;

  friend bool operator==(const RouterSpec&, const RouterSpec&) = default;
};

struct FfnSpec {
  FfnKind kind = FfnKind::kDense;
  Activation activation = Activation::kSwiglu;
  int64_t width = 0;  // F, of one unit
  int64_t experts = 0, experts_used = 0;
  int64_t shared_width = 0;   // kExperts: of a dense unit beside them whose output is added; 0: none
  bool shared_gated = false;  // it is multiplied by sigmoid(shared_gate . m)
  RouterSpec router;          // kExperts

  friend bool operator==(const FfnSpec&, const FfnSpec&) = default;
};

inline constexpr int32_t kNoBlockGroup = -1;

// One transformer layer. Each half applies RMSNorm to input, output or both, and adds residual_scale * output.
struct LayerSpec {
  MixerKind mixer = MixerKind::kAttention;
  AttentionSpec attention;  // kAttention
  DeltaNetSpec delta_net;   // kDeltaNet
  FfnSpec ffn;
  float norm_eps = 0;
  bool pre_norms = true;    // of the inputs
  bool post_norms = false;  // of the outputs, before they are added (gemma, olmo2)
  float residual_scale = 1;
  int32_t block_group = 0;  // of its KV: see BlockLists in common/step/step.h; kNoBlockGroup: it has a state instead

  bool recurrent() const { return mixer == MixerKind::kDeltaNet; }
  // Floats of a sequence's state in this layer; 0: it has none.
  int64_t state_floats() const { return recurrent() ? delta_net.state_floats() : 0; }
  // Whether the output of a half must be whole before it is added.
  bool completes_outputs() const { return post_norms || residual_scale != 1; }
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// ln(x) for x > 0 from +, -, * and / alone: the same bits on every machine. By the series of atanh: x = m * 2^e with m
// in [1/sqrt 2, sqrt 2), ln m = 2 (t + t^3/3 + ..), t = (m - 1) / (m + 1). |t| < 0.172, so 13 terms reach below 2^-53.
inline double FixedLn(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double series = 0;
  for (int term = 12; term >= 0; --term) series = series * t2 + 1.0 / (2 * term + 1);
  return 2 * t * series + exponent * std::numbers::ln2;
}

struct HyperParameters {
  std::string architecture;       // "qwen3", for display and metadata keys only
  std::string name;               // general.name, may be empty
  std::vector<LayerSpec> layers;  // first to last; at least one
  int64_t skipped_layers = 0;     // blocks behind them in the file that the forward pass leaves out (NextN, MTP)
  int64_t context = 0;            // trained context length, tokens
  int64_t hidden = 0;             // D, embedding length
  int64_t vocab = 0;              // V, rows of token_embd
  float rms_eps = 0;              // of the output norm
  float embedding_scale = 1;      // of the rows of token_embd (gemma, granite)
  float logit_scale = 1;          // of the output matrix's products (granite)
  float logit_cap = 0;            // then logit = cap * tanh(logit / cap) (gemma2); 0: none

  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  bool recurrent() const;                        // whether some layer has a state; at least one has blocks
  const AttentionSpec& first_attention() const;  // of the first layer that has blocks
  int32_t block_groups() const;  // the block_group of layers that have blocks are 0 .. block_groups() - 1
  // [groups] 0: its layers see all positions; W: a row sees its own position and the W - 1 before it.
  std::vector<int64_t> group_windows() const;
};

// Reads and checks every field (formula and ranges in the GGUF specification). kUnimplemented: another architecture
// (with the supported ones), or something that no code computes. kInvalidArgument names key, value and range.
absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file);

// Bounds far above any model; they keep products of sizes far from overflow.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxContext = int64_t{1} << 30;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = 1024;                      // of a query, key or value
inline constexpr int64_t kMinConvKernel = 2, kMaxConvKernel = 8;  // of a delta net
inline constexpr int64_t kMaxExperts = int64_t{1} << 12;          // what routing a row takes grows with its square

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
