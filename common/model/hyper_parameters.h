#ifndef STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
#define STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_

// The numbers that define a model's forward pass, read from GGUF metadata and checked. Architectures are data: the
// forward pass looks at these fields and at LayerTraits, never at an architecture's name.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"

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
};

// What an architecture's layers have, beyond the common transformer block.
struct LayerTraits {
  bool qk_norm = false;            // RMSNorm of every q and k head before RoPE (qwen3)
  bool qkv_bias_required = false;  // qwen2
  bool rope_factors = false;       // optional rope_freqs.weight (llama 3)
};

struct HyperParameters {
  std::string architecture;  // "qwen3", for display and metadata keys only
  std::string name;          // general.name, may be empty
  LayerTraits traits;
  int64_t layers = 0;
  int64_t context = 0;   // trained context length, tokens
  int64_t hidden = 0;    // D, embedding length
  int64_t ffn = 0;       // F
  int64_t heads = 0;     // Nq
  int64_t kv_heads = 0;  // Nk, divides heads
  int64_t head_dim = 0;  // H, even
  int64_t vocab = 0;     // V, rows of token_embd
  float rms_eps = 0;
  RopeParameters rope;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Reads and checks every field (formula and ranges in the GGUF specification). kUnimplemented with the list of
// supported ones for another architecture; kInvalidArgument names the key, the value and the range.
absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file);

std::string SupportedArchitectures();  // "llama, qwen2, qwen3"

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
