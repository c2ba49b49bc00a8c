#ifndef STAGECOACH_TESTS_TESTING_MODELS_TINY_ARCHITECTURES_H_
#define STAGECOACH_TESTS_TESTING_MODELS_TINY_ARCHITECTURES_H_

// Random models of every architecture: experts, windows, sinks, latent attention, norms behind the layers, scales and
// caps. Each optional tensor and key can be there or not. Complete enough to load, tokenise and run. tiny_model.h has
// plain dense ones.
//
// The values are lively: routers choose by natural margins, biases are not near zero, windows and YaRN's ramp lie
// within a few dozen positions, clamps and caps clip, so that a feature that is left out or applied wrongly moves the
// logits by far more than any rounding. Every tensor's values depend on its name and the seed only; what can be written
// in two forms (fused or apart) has the same values in both where the type of its matrices can be encoded here.

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/gguf_writer.h"
#include "common/quant/tensor_type.h"
#include "gtest/gtest.h"

namespace stagecoach::testing {

// Where nothing else is said, a plain dense model of Qwen 3 (tiny_model.h).
struct TinyArchitectureOptions {
  std::string architecture = "qwen3";
  int64_t layers = 4;  // of the forward pass
  int64_t hidden = 64;
  int64_t heads = 4, kv_heads = 2;
  int64_t head_dim = 32;               // deliberately not hidden / heads; written as key_length
  int64_t ffn = 96;                    // of dense layers
  std::vector<int64_t> ffn_of_layers;  // instead of ffn: one for every layer
  int64_t vocab = 320;  // 256 bytes, pairs and triples of letters with their merges, and last an end-of-text token
  int64_t context = 512;

  // Of matrices. A row that is no multiple of the type's block falls back to Q8_0, and else to F16, as quantisers do.
  // Routers are F32.
  TensorType type = TensorType::kF32;
  TensorType expert_type = TensorType::kF32;
  TensorType vector_type = TensorType::kF32;  // of norms, biases and sinks
  bool tied = true;                           // no output.weight
  bool fused_qkv = false;                     // attn_qkv in place of attn_q, attn_k, attn_v
  bool biases = false;  // of plain models: of q, k and v; of llama also of the attention's output and of the FFN

  // Rotation.
  double freq_base = 10000;
  double freq_base_windowed = 0;  // 0: no key
  std::string rope_scaling;       // "none", "linear", "yarn"; empty: no key
  double rope_factor = 0;         // 0: no key
  int64_t original_context = 0;   // 0: no key
  double yarn_log_multiplier = 0;
  double rope_attention_factor = 0;
  bool rope_factors = false;       // rope_freqs.weight; where it is not lively, Llama 3.1's
  bool long_rope_factors = false;  // the long and the short ones
  bool rotates = true;             // granite: rope.scaling.finetuned says whether anything is rotated

  uint64_t seed = 1;
  int shards = 1;
  bool lively = false;  // false: every matrix keeps the size of what it multiplies, norms are about 1

  // Attention.
  int64_t rotated = 0;  // components of a head that are rotated; 0: all, and no key
  bool qkv_biases = false, output_bias = false;
  bool qk_norms = false;
  bool whole_norms = false;  // qk_norms over whole vectors, not one for every head
  bool sinks = false;
  int64_t window = 0;                       // of windowed layers; 0: no key
  int64_t window_period = 0;                // key sliding_window_pattern: all but the last of so many layers; 0: no key
  std::vector<bool> windowed;               // the same key as an array, one value a layer
  double attention_scale = 0;               // 0: no key
  double attention_cap = 0, logit_cap = 0;  // 0: no key

  // Latent attention, in place of heads of their own.
  int64_t q_rank = 0;                                 // 0: one matrix from hidden to q
  int64_t kv_rank = 0, plain_dim = 0, value_dim = 0;  // a head: plain_dim and `rotated` of a key, value_dim of a value
  bool split_kv_b = true;                             // else attn_kv_b, and the keys of before it was split

  // Gated delta nets, in all layers but every interval-th, beside gated attention; none with 0 heads. The shared expert
  // is then gated, and has a key for its width.
  int64_t delta_key_heads = 0, delta_value_heads = 0, delta_head_dim = 0;
  int64_t conv_kernel = 4;
  int64_t interval = 4;                      // of full attention
  std::vector<bool> recurrent;               // instead: key recurrent_layers, one value a layer
  bool fused_in = false;                     // ssm_in in place of attn_qkv and attn_gate; of grouped value heads only
  bool fused_beta_alpha = false;             // ssm_ba in place of ssm_beta and ssm_alpha; likewise
  TensorType delta_type = TensorType::kF32;  // of these three
  std::vector<int32_t> sections;             // key rope.dimension_sections

  // Granite's multipliers; 0: no key.
  double embedding_scale = 0, residual_scale = 0, logit_scale = 0;

  // Norms of the layer. renamed_ffn_norm: the one before the FFN is called post_attention_norm.
  bool pre_norms = true, post_norms = false, renamed_ffn_norm = false;
  bool fused_ffn = false;   // gate and up in one ffn_up, as Phi 3 has them
  bool ffn_biases = false;  // of dense layers

  // Experts; none with 0.
  int64_t experts = 0, experts_used = 0, expert_ffn = 0;
  int64_t shared_experts = 0, dense_lead = 0;
  int64_t groups = 0, groups_used = 0;  // 0: no keys
  int gating = 0;                       // key expert_gating_func; 0: none
  bool router_bias = false, expert_biases = false, selection_bias = false;
  bool weights_norm = false;  // false: no key
  double weights_scale = 0;   // 0: no key
  bool fused_gate_up = false;
  double expert_gain = 1;  // of gate and up, to reach a clamp; down makes up for it
  bool nextn = false;      // one more block at the end, which predicts the token after the next
};

// The architectures: qwen3moe, gpt-oss, glm4moe, deepseek2, minimax-m2, mixtral (llama with experts), gemma2, gemma3,
// phi3, granite, olmo2, smollm3, llama, qwen2, qwen3.
const std::vector<std::string>& TinyArchitectureNames();
// qwen35, qwen35moe, qwen3next: with recurrent layers.
const std::vector<std::string>& TinyRecurrentArchitectureNames();
// Those with experts, as their published models are called.
const std::vector<std::string>& TinyExpertArchitectureNames();
// The name of a test whose parameter is an architecture.
std::string ArchitectureTestName(const ::testing::TestParamInfo<std::string>& architecture);

// The options of an architecture with everything that its published models have. Widths suit rows of whole blocks of
// both types and are otherwise multiples of as little as possible.
TinyArchitectureOptions TinyArchitecture(const std::string& architecture, TensorType type = TensorType::kF32);
TinyArchitectureOptions TinyArchitecture(const std::string& architecture, TensorType type, TensorType expert_type);

// The model as a writer, for tests that change something before they write it.
GgufWriter TinyArchitectureModel(const TinyArchitectureOptions& options);

// Writes the model and returns the path to open, as WriteTinyModel does.
std::string WriteTinyArchitecture(const std::string& path, const TinyArchitectureOptions& options);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_TINY_ARCHITECTURES_H_
