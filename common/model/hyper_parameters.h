#ifndef STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
#define STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_

// The numbers that define a model's forward pass, read from GGUF metadata and checked.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/model/layer_spec.h"

namespace stagecoach {

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
  int32_t block_groups() const;  // the layers' block_group are 0 .. block_groups() - 1
  // [groups] 0: its layers see all positions; W: a row sees its own position and the W - 1 before it.
  std::vector<int64_t> group_windows() const;
};

// Reads and checks every field (formula and ranges in the GGUF specification). kUnimplemented with the list of
// supported ones for another architecture, and for what no code computes; kInvalidArgument names the key, the value and
// the range.
absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file);

// Bounds far above any model; they keep products of sizes far from overflow.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxContext = int64_t{1} << 30;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = 1024;              // of a query, key or value
inline constexpr int64_t kMaxExperts = int64_t{1} << 12;  // what routing a row takes grows with its square

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_HYPER_PARAMETERS_H_
