#ifndef STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_
#define STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_

// The shapes of well-known models, as data: the sizes that their files state, for models without weights
// (dummy_model.h), and the header of such a file.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach {

// Which norms a layer has, and what the file calls them.
enum class ShapeNorms {
  kInputs,         // attn_norm, ffn_norm
  kInputsAsPost,   // attn_norm, and that of the FFN's input as post_attention_norm (gpt-oss, glm4moe, qwen35)
  kOutputs,        // post_attention_norm, post_ffw_norm (olmo2)
  kInputsOutputs,  // all four (gemma)
};

enum class ShapeQkNorm { kNone, kHeads, kWhole };

// What the models of an architecture have in common.
struct ShapeForm {
  const char* architecture;  // general.architecture
  ShapeNorms norms = ShapeNorms::kInputs;
  bool qkv_bias = false, output_bias = false;
  bool fused = false;                 // q, k and v in one matrix, gate and up in another (phi3)
  bool sinks = false;                 // of attention
  bool expert_bias = false;           // of the router's logits and of every expert's matrices
  bool head_dim_keys = true;          // attention.key_length and value_length are written
  bool rope_dim_key = false;          // rope.dimension_count is written though all of a head is rotated
  bool original_context_key = false;  // rope.scaling.original_context_length is written though nothing is scaled
  bool fused_beta_alpha = false;      // of delta nets: ssm_ba in place of ssm_beta and ssm_alpha (qwen3next)
  bool sections = false;              // rope.dimension_sections is written: the rotated pairs in three parts
};

// rope.*; what is 0 is not written.
struct ShapeRope {
  double freq_base = 0;
  int64_t dims = 0;  // of a head, where not all of it is rotated
  const char* scaling = nullptr;
  double factor = 0;
  int64_t original_context = 0;
  double log_multiplier = 0;  // DeepSeek's mscale_all_dim / 10
};

struct ShapeExperts {
  int64_t count = 0;  // 0: a dense model
  int64_t used = 0;
  int64_t width = 0;       // of one expert
  int64_t shared = 0;      // experts that all rows go through, in one unit of so many widths; of delta nets it is gated
  int64_t dense_lead = 0;  // layers before the first one of experts, as wide as ModelShape::ffn
  // Keys, where they are written.
  int64_t groups = 0, groups_used = 0;
  int64_t gating = 0;  // 1: softmax, 2: sigmoid; models of the latter have a bias of the choice
  double weights_scale = 0;
  std::optional<bool> weights_norm = std::nullopt;

  bool selection_bias() const { return gating == 2; }
};

// Of latent attention (deepseek2).
struct ShapeLatent {
  int64_t q_rank = 0;  // 0: q has one matrix
  int64_t kv_rank = 0;
  int64_t value_dim = 0;  // of a head; head_dim is that of its query
};

// Of gated delta nets, in all layers but every interval-th, whose attention is gated, too (qwen3next, qwen35).
struct ShapeDeltaNet {
  int64_t key_heads = 0, value_heads = 0;
  int64_t head_dim = 128;
  int64_t conv_kernel = 4;
  int64_t interval = 4;
};

struct ShapeNumber {
  const char* key = nullptr;  // behind the architecture's prefix
  double value = 0;
};
using ShapeNumbers = std::array<ShapeNumber, 4>;

struct ModelShape {
  const char* name = nullptr;  // "qwen3-0.6b"
  ShapeForm form = {};
  int64_t layers = 0;  // of the forward pass
  int64_t nextn = 0;   // blocks behind them that only draft; files count them in block_count
  int64_t hidden = 0;
  int64_t ffn = 0;  // feed_forward_length: of the layers without experts
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // trained context length
  double rms_eps = 0;
  bool tied = false;  // the embedding is also the output matrix
  ShapeQkNorm qk_norm = ShapeQkNorm::kNone;
  ShapeRope rope = {};
  std::optional<int64_t> window = std::nullopt;  // attention.sliding_window
  ShapeNumbers numbers = {};                     // further keys
  ShapeExperts experts = {};
  ShapeLatent latent = {};
  ShapeDeltaNet delta_net = {};
  // Of the file's tokenizer, which a model without weights lacks.
  const char* tokenizer = "gpt2";    // tokenizer.ggml.model
  const char* pre_tokenizer = "";    // tokenizer.ggml.pre
  const char* unverified = nullptr;  // what no header of a file, no published configuration confirmed

  int64_t blocks() const { return layers + nextn; }
  bool has_latent() const { return latent.kv_rank > 0; }
  bool has_delta_nets() const { return delta_net.key_heads > 0; }
  // Blocks that only draft have attention.
  bool is_delta_net(int64_t layer) const {
    return has_delta_nets() && layer < layers && (layer + 1) % delta_net.interval != 0;
  }
};

// From small to large. "tiny" is nobody's model: a few layers, for quick tests.
absl::Span<const ModelShape> ModelShapes();

// The keys of a header that state the shape: general.architecture and those below its prefix, in the converters' order.
std::vector<std::pair<std::string, GgufValue>> ShapeKeys(const ModelShape& shape);

// What decides a tensor's type beside the type that was asked for.
enum class ShapeTensorKind {
  kFloats,    // norms, biases, sinks, routers, a delta net's convolution, decays and alpha and beta: F32 in most files
  kMatrix,    //
  kMoreBits,  // the mixes of types give it more where it matters: attn_v, ffn_down
  kFusedQkv,  // q, k and v
  kHead,      // the output matrix, also when it is the embedding
};

struct ShapeTensor {
  std::string name;
  std::vector<int64_t> dims;  // the row length first
  ShapeTensorKind kind = ShapeTensorKind::kMatrix;
  int64_t layer = -1;    // -1: of none
  bool experts = false;  // one matrix of each expert: dims[2] of them
};

// The tensors of a file, in the order of the layers.
std::vector<ShapeTensor> ShapeTensors(const ModelShape& shape);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_
