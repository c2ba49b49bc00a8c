#ifndef STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_
#define STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_

// Random models, complete enough to load, tokenise and run. Every tensor's values depend on its name, its shape and the
// seed only, so that a fused qkv matrix holds the same rows as the separate ones, and shards the same values as one
// file.

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/gguf_writer.h"
#include "common/quant/tensor_type.h"

namespace stagecoach::testing {

struct TinyModelOptions {
  std::string architecture = "qwen3";  // qwen3 has q and k norms, qwen2 always has q, k, v biases
  int64_t layers = 4;
  int64_t hidden = 64;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 32;  // deliberately not hidden / heads; written as key_length
  int64_t ffn = 96;
  std::vector<int64_t> ffn_of_layers;  // instead of ffn: one for every layer
  int64_t vocab =
      320;  // 256 bytes, pairs and triples of letters with their merges, and one end-of-text token (the last id)
  int64_t context = 512;
  TensorType type = TensorType::kF32;         // of the matrices; their row lengths must be multiples of its block
  TensorType vector_type = TensorType::kF32;  // of norms and biases
  bool tied = true;                           // no output.weight
  bool fused_qkv = false;                     // attn_qkv in place of attn_q, attn_k, attn_v
  bool biases = false;  // q, k, v biases; on llama also those of the attention output and of the FFN
  double rope_freq_base = 10000;
  std::string rope_scaling;           // "none", "linear", "yarn"; empty: no key
  double rope_factor = 1;             // with rope_scaling
  int64_t rope_original_context = 0;  // 0: no key
  bool rope_factors = false;          // llama 3's rope_freqs.weight
  uint64_t seed = 1;
  int shards = 1;
};

// The smallest shape whose every row length is a multiple of 256, the largest block of any type.
TinyModelOptions WideTinyModel(TensorType type);

// The model as a writer, for tests that change something before they write it.
GgufWriter TinyModel(const TinyModelOptions& options);

// Writes the model and returns the path to open (WriteModel in model_parts.h).
std::string WriteTinyModel(const std::string& path, const TinyModelOptions& options = {});

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_
