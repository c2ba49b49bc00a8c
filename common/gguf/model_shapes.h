#ifndef STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_
#define STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_

// The shapes of well-known models, as data: what their files say about sizes, for models without weights
// (dummy_model.h).

#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

struct ModelShape {
  const char* name;          // "qwen3-0.6b"
  const char* architecture;  // general.architecture
  int64_t layers;
  int64_t hidden;
  int64_t ffn;  // of one expert where there are experts
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocab;
  int64_t context;  // trained context length
  double freq_base;
  double rms_eps;
  bool tied;        // the embedding is also the output matrix
  bool qk_norm;     // norms of the q and k heads
  bool qkv_bias;    // biases of q, k and v
  int64_t experts;  // 0: a dense model
};

// From small to large. "tiny" is nobody's model: a few layers, for quick tests.
absl::Span<const ModelShape> ModelShapes();

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_MODEL_SHAPES_H_
