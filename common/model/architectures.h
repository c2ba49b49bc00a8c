#ifndef STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_
#define STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_

// What the keys of a model's file mean: the table of architectures, which adds defaults and optional parts, and the
// reader of keys. Read when a model is opened; the computation goes by LayerSpec.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_file.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {

enum class Presence { kAbsent, kOptional, kRequired };

struct Architecture {
  const char* name;

  // Attention.
  RopePairs pairs = RopePairs::kHalves;
  bool latent = false;
  bool qkv_bias = false;  // required; where it is false they may be there
  QkNorm qk_norm = QkNorm::kNone;
  bool optional_qk_norm = false;  // if the first layer has the tensors
  bool sinks = false;
  bool output_bias = false;             // required, of attn_output
  bool rope_factors = false;            // may have rope_freqs.weight
  int64_t no_rope_step = 0;             // n: layers n-1, 2n-1, ... are not rotated
  bool scale_key = false;               // reads attention.scale
  int64_t layers_of_hidden_scale = 0;   // with so many layers scores are scaled by 1/sqrt(D/Nq): the largest gemmas
  double score_cap = 0, logit_cap = 0;  // where the keys are absent

  // Windows: layer i is windowed if i mod window_period < window_period - 1; period 0: every layer, if at all.
  Presence window = Presence::kOptional;
  int64_t window_period = 0;
  int64_t default_window = 0;
  double local_freq_base = 0;   // of windowed layers; 0: as of the others
  bool local_unscaled = false;  // windowed layers have no RoPE scaling

  // Gated delta nets in most layers, beside gated attention in the others. Their experts' shared unit is gated, too.
  bool delta_net = false;
  bool grouped_value_heads = false;  // unless the file says that its value heads are in another order

  // Norms. A file calls the norm of an FFN's input ffn_norm, or post_attention_norm.
  bool pre_norms = true, post_norms = false;
  bool ffn_norm_after_attention = false;

  // FFN.
  Activation activation = Activation::kSwiglu;
  bool fused_gate_up = false;  // without an ffn_gate, ffn_up holds the rows of gate, then of up
  Presence experts = Presence::kAbsent;
  Gating gating = Gating::kSoftmax;
  bool gating_key = false;        // reads expert_gating_func
  bool normalized = true;         // where expert_weights_norm is absent
  bool scale_of_weights = false;  // reads expert_weights_scale
  bool shared = false;            // reads expert_shared_count
  Presence selection_bias = Presence::kAbsent;
  bool expert_biases = false;  // required, of router, gate, up and down

  // Scales.
  bool embedding_times_sqrt = false;  // of the hidden size
  bool scale_keys = false;            // reads embedding_scale, residual_scale and logit_scale
};

const Architecture* FindArchitecture(absl::string_view name);  // nullptr: not supported
std::string SupportedArchitectures();                          // "deepseek2, gemma2, ..."

// Reads keys below the architecture's prefix, with their ranges.
class KeyReader {
 public:
  explicit KeyReader(const GgufMetadata& metadata) : metadata_(metadata) {}

  void set_prefix(const std::string& architecture) {
    prefix_ = architecture + ".";
    // What OxiBonsai writes, whatever the architecture.
    if (!Has("block_count") && metadata_.Has("llm.block_count")) prefix_ = "llm.";
  }
  std::string Key(absl::string_view name) const { return prefix_ + std::string(name); }
  bool Has(absl::string_view name) const { return metadata_.Has(Key(name)); }

  template <typename... Parts>
  absl::Status Invalid(absl::string_view name, const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("'", metadata_.path(), "': key '", Key(name), "' ", parts...));
  }
  template <typename... Parts>
  absl::Status Unsupported(absl::string_view name, const Parts&... parts) const {
    return absl::UnimplementedError(absl::StrCat("'", metadata_.path(), "': key '", Key(name), "' ", parts...));
  }

  // An integer in [low, high]; `fallback` for an absent key, which without one is an error.
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t low, int64_t high,
                              std::optional<int64_t> fallback = {}) const {
    if (!Has(name) && fallback.has_value()) return *fallback;
    if (!Has(name)) return Invalid(name, "is missing, expected an integer from ", low, " to ", high);
    ASSIGN_OR_RETURN(const int64_t value, metadata_.GetInt(Key(name)));
    if (value < low || value > high) return Invalid(name, "is ", value, ", expected ", low, " to ", high);
    return value;
  }

  // One value for every layer, from an integer for all of them or an array.
  absl::StatusOr<std::vector<int64_t>> LayerInts(absl::string_view name, int64_t layers, int64_t low, int64_t high,
                                                 std::optional<int64_t> fallback = {}) const {
    const GgufValue* value = metadata_.Find(Key(name));
    if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) {
      ASSIGN_OR_RETURN(const int64_t all, Int(name, low, high, fallback));
      return std::vector<int64_t>(static_cast<size_t>(layers), all);
    }
    ASSIGN_OR_RETURN(std::vector<int64_t> values, metadata_.GetInts(Key(name)));
    if (static_cast<int64_t>(values.size()) != layers) {
      return Invalid(name, "is an array of ", values.size(), " values, expected ", layers, ", one a layer");
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= low && values[i] <= high) continue;
      return Invalid(name, "is ", values[i], " in layer ", i, ", expected ", low, " to ", high);
    }
    return values;
  }

  // The value of all layers, where they may not differ.
  absl::StatusOr<int64_t> UniformInt(absl::string_view name, int64_t layers, int64_t low, int64_t high,
                                     std::optional<int64_t> fallback = {}) const {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, LayerInts(name, layers, low, high, fallback));
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i] == values[0]) continue;
      return Unsupported(name, "is ", values[0], " in layer 0 and ", values[i], " in layer ", i,
                         "; only models that have the same in every layer are supported");
    }
    return values[0];
  }

  // A finite number of at least `low` (above it when `exclusive`).
  absl::StatusOr<double> Float(absl::string_view name, double low, bool exclusive,
                               std::optional<double> fallback = {}) const {
    const char* relation = exclusive ? "above " : "of at least ";
    if (!Has(name) && fallback.has_value()) return *fallback;
    if (!Has(name)) return Invalid(name, "is missing, expected a finite number ", relation, low);
    ASSIGN_OR_RETURN(const double value, metadata_.GetFloat(Key(name)));
    if (value < low || (exclusive && value == low)) {
      return Invalid(name, "is ", value, ", expected a finite number ", relation, low);
    }
    // Whatever is computed in floats would make an infinity or nothing of other numbers.
    if (value != 0 && (value < 1e-30 || value > 1e30)) {
      return Invalid(name, "is ", value, ", expected a number from 1e-30 to 1e30");
    }
    return value;
  }

  absl::StatusOr<bool> Bool(absl::string_view name, bool fallback) const {
    return metadata_.GetBoolOr(Key(name), fallback);
  }

  const GgufMetadata& metadata() const { return metadata_; }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// Reads the attention of every layer that runs, and the block group of its KV, into hyper.layers. `blocks`: the layers
// of the file. Errors: as ReadHyperParameters. ReadDeltaNets then takes both away from recurrent layers.
absl::Status ReadAttentions(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                            int64_t blocks, HyperParameters& hyper);

// Of an architecture that has delta nets: which layers are delta nets, and their sizes.
absl::Status ReadDeltaNets(const KeyReader& keys, const Architecture& architecture, int64_t blocks,
                           HyperParameters& hyper);

// The same for the FFN; hyper.vocab is known.
absl::Status ReadFfns(const KeyReader& keys, const Architecture& architecture, const GgufFile& file, int64_t blocks,
                      HyperParameters& hyper);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_
