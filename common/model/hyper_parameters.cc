#include "common/model/hyper_parameters.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"

namespace stagecoach {
namespace {

// What an architecture means beyond its keys.
struct Architecture {
  const char* name;
  RopePairs pairs;
  bool qkv_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool rope_factors = false;
};

constexpr Architecture kArchitectures[] = {
    {.name = "llama", .pairs = RopePairs::kAdjacent, .rope_factors = true},
    {.name = "qwen2", .pairs = RopePairs::kHalves, .qkv_bias = true},
    {.name = "qwen3", .pairs = RopePairs::kHalves, .qk_norm = QkNorm::kHeads},
};

// Bounds far above any model; they keep products of sizes far from overflow.
constexpr int64_t kMaxContext = int64_t{1} << 30;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxExperts = int64_t{1} << 16;
static_assert(kMostDummyLayers == kMaxLayers, "a model without weights may have as many layers as any");

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
                         "; only models whose layers have the same attention are supported");
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
    return value;
  }

  const GgufMetadata& metadata() const { return metadata_; }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

absl::StatusOr<const Architecture*> ReadArchitecture(const GgufMetadata& metadata) {
  if (!metadata.Has("general.architecture")) {
    return absl::InvalidArgumentError(absl::StrCat("'", metadata.path(),
                                                   "': key 'general.architecture' is missing, expected ", "one of ",
                                                   SupportedArchitectures()));
  }
  ASSIGN_OR_RETURN(const std::string name, metadata.GetString("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return absl::UnimplementedError(absl::StrCat("'", metadata.path(), "': key 'general.architecture' is '", name,
                                               "'; supported architectures are ", SupportedArchitectures()));
}

absl::Status RefuseFoldedWeights(const GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.entries()) {
    if (!absl::StartsWith(key, "prism.hadamard.")) continue;
    return absl::UnimplementedError(
        absl::StrCat("'", metadata.path(), "': key '", key, "' says that weights are folded with a Hadamard ",
                     "transform, which is not implemented; without it the model would answer with noise"));
  }
  return absl::OkStatus();
}

// What would change the forward pass in a way for which there is no field.
absl::Status RefuseUnsupported(const KeyReader& keys) {
  ASSIGN_OR_RETURN(const bool causal, keys.metadata().GetBoolOr(keys.Key("attention.causal"), true));
  if (!causal)
    return keys.Unsupported("attention.causal", "is false, expected true: only causal attention is supported");
  ASSIGN_OR_RETURN(const double scale, keys.metadata().GetFloatOr(keys.Key("attention.scale"), 0));
  if (scale != 0) {
    return keys.Unsupported("attention.scale", "is ", scale, ", expected 0: only 1/sqrt(head size) is supported");
  }
  return absl::OkStatus();
}

// The kinds of layers that no code computes.
absl::Status RefuseKinds(const KeyReader& keys, const HyperParameters& hyper) {
  for (const LayerSpec& layer : hyper.layers) {
    if (layer.attention.kind == AttentionKind::kWindowed) {
      return keys.Unsupported("attention.sliding_window", "is ", layer.attention.window,
                              ", expected 0 or at least the context of ", hyper.context,
                              ": sliding-window attention is not supported");
    }
    if (layer.ffn.kind == FfnKind::kExperts) {
      return keys.Unsupported("expert_count", "is ", layer.ffn.experts,
                              ", expected 0: mixture-of-experts is not supported");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const KeyReader& keys, const HyperParameters& hyper, AttentionSpec& attention) {
  const int64_t layers = hyper.layer_count();
  ASSIGN_OR_RETURN(attention.heads, keys.UniformInt("attention.head_count", layers, 1, kMaxHeads));
  ASSIGN_OR_RETURN(attention.kv_heads,
                   keys.UniformInt("attention.head_count_kv", layers, 1, kMaxHeads, attention.heads));
  if (attention.heads % attention.kv_heads != 0) {
    return keys.Invalid("attention.head_count_kv", "is ", attention.kv_heads,
                        ", expected a divisor of attention.head_count ", attention.heads);
  }
  if (!keys.Has("attention.key_length") && hyper.hidden % attention.heads != 0) {
    return keys.Invalid("attention.key_length", "is missing, and embedding_length ", hyper.hidden,
                        " is not a multiple of attention.head_count ", attention.heads);
  }
  ASSIGN_OR_RETURN(attention.head_dim,
                   keys.Int("attention.key_length", 2, kMaxHeadDim, hyper.hidden / attention.heads));
  if (attention.head_dim < 2 || attention.head_dim > kMaxHeadDim || attention.head_dim % 2 != 0) {
    return keys.Invalid("attention.key_length", "is ", attention.head_dim, " (stored, or embedding_length ",
                        hyper.hidden, " / attention.head_count ", attention.heads,
                        "), expected an even number from 2 to ", kMaxHeadDim);
  }
  for (const char* name : {"attention.value_length", "rope.dimension_count"}) {
    ASSIGN_OR_RETURN(const int64_t size, keys.Int(name, 1, kMaxHeadDim, attention.head_dim));
    if (size != attention.head_dim) {
      return keys.Unsupported(name, "is ", size, ", expected ", attention.head_dim, ", the size of a head");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadYarn(const KeyReader& keys, RopeParameters& rope) {
  // yarn_attn_factor is the newer name of a second factor; the two multiply.
  ASSIGN_OR_RETURN(const double yarn_attn, keys.Float("rope.scaling.yarn_attn_factor", 0, true, 1));
  rope.attn_factor *= yarn_attn;
  ASSIGN_OR_RETURN(rope.ext_factor, keys.Float("rope.scaling.yarn_ext_factor", 0, false, 1));
  ASSIGN_OR_RETURN(rope.beta_fast, keys.Float("rope.scaling.yarn_beta_fast", 0, true, 32));
  ASSIGN_OR_RETURN(rope.beta_slow, keys.Float("rope.scaling.yarn_beta_slow", 0, true, 1));
  return absl::OkStatus();
}

absl::Status ReadRope(const KeyReader& keys, int64_t context, RopeParameters& rope) {
  ASSIGN_OR_RETURN(rope.freq_base, keys.Float("rope.freq_base", 1, true, 10000));
  ASSIGN_OR_RETURN(const std::string type, keys.metadata().GetStringOr(keys.Key("rope.scaling.type"), "linear"));
  if (type != "none" && type != "linear" && type != "yarn") {
    return keys.Unsupported("rope.scaling.type", "is '", type, "'; supported are none, linear, yarn");
  }
  // Older files call the linear factor rope.scale_linear. Zero means unset.
  const char* factor_name = keys.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  ASSIGN_OR_RETURN(const double factor, keys.Float(factor_name, 0, false, 0));
  if (factor != 0 && factor < 1) return keys.Invalid(factor_name, "is ", factor, ", expected 0 (unset) or at least 1");
  ASSIGN_OR_RETURN(rope.original_context, keys.Int("rope.scaling.original_context_length", 1, kMaxContext, context));
  ASSIGN_OR_RETURN(rope.attn_factor, keys.Float("rope.scaling.attn_factor", 0, true, 1));
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.factor = factor == 0 ? 1 : factor;
    return ReadYarn(keys, rope);
  }
  if (rope.attn_factor != 1) {
    return keys.Unsupported("rope.scaling.attn_factor", "is ", rope.attn_factor, " with rope.scaling.type '", type,
                            "', expected 1: it is supported with yarn only");
  }
  if (type == "linear" && factor > 1) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
  }
  return absl::OkStatus();
}

// The attention of every layer.
absl::StatusOr<AttentionSpec> ReadAttention(const KeyReader& keys, const Architecture& architecture,
                                            const HyperParameters& hyper) {
  AttentionSpec attention;
  attention.qkv_bias = architecture.qkv_bias;
  attention.qk_norm = architecture.qk_norm;
  attention.rope.pairs = architecture.pairs;
  ASSIGN_OR_RETURN(const int64_t window, keys.Int("attention.sliding_window", 0, INT64_MAX, 0));
  if (window > 0 && window < hyper.context) {
    attention.kind = AttentionKind::kWindowed;
    attention.window = window;
  }
  RETURN_IF_ERROR(ReadHeads(keys, hyper, attention));
  attention.value_dim = attention.head_dim;
  attention.score_scale = 1 / std::sqrt(static_cast<double>(attention.head_dim));
  attention.rope.dims = attention.head_dim;
  attention.rope.factors = architecture.rope_factors;
  RETURN_IF_ERROR(ReadRope(keys, hyper.context, attention.rope));
  return attention;
}

// The FFN of every layer; their widths may differ.
absl::Status ReadFfns(const KeyReader& keys, HyperParameters& hyper) {
  ASSIGN_OR_RETURN(const int64_t experts, keys.Int("expert_count", 0, kMaxExperts, 0));
  const char* expert_width = "expert_feed_forward_length";
  const char* width_key = experts > 0 && keys.Has(expert_width) ? expert_width : "feed_forward_length";
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths, keys.LayerInts(width_key, hyper.layer_count(), 1, kMaxWidth));
  FfnSpec ffn;
  if (experts > 0) {
    ffn.kind = FfnKind::kExperts;
    ffn.experts = experts;
    ASSIGN_OR_RETURN(ffn.experts_used, keys.Int("expert_used_count", 1, experts, 1));
  }
  for (size_t i = 0; i < widths.size(); ++i) {
    ffn.width = widths[i];
    hyper.layers[i].ffn = ffn;
  }
  return absl::OkStatus();
}

// The vocabulary is as large as the embedding; every other mention of its size must agree.
absl::Status ReadVocabulary(const GgufFile& file, const KeyReader& keys, HyperParameters& hyper) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", file.path(), "': tensor 'token_embd.weight' is missing",
                                                   file.tensors().empty() ? "; the file holds a vocabulary only" : ""));
  }
  hyper.vocab = embedding->rows();
  if (hyper.vocab > kMaxWidth) {
    return absl::InvalidArgumentError(absl::StrCat("'", file.path(), "': tensor 'token_embd.weight' has ", hyper.vocab,
                                                   " rows, expected at most ", kMaxWidth));
  }
  ASSIGN_OR_RETURN(const int64_t announced, keys.Int("vocab_size", 1, kMaxWidth, hyper.vocab));
  if (announced != hyper.vocab) {
    return keys.Invalid("vocab_size", "is ", announced, ", but tensor 'token_embd.weight' has ", hyper.vocab, " rows");
  }
  return absl::OkStatus();
}

}  // namespace

int32_t HyperParameters::block_groups() const {
  int32_t groups = 1;
  for (const LayerSpec& layer : layers) groups = std::max(groups, layer.block_group + 1);
  return groups;
}

std::vector<int64_t> HyperParameters::group_windows() const {
  std::vector<int64_t> windows(static_cast<size_t>(block_groups()));
  for (const LayerSpec& layer : layers) {
    const AttentionSpec& attention = layer.attention;
    windows[static_cast<size_t>(layer.block_group)] = attention.kind == AttentionKind::kWindowed ? attention.window : 0;
  }
  return windows;
}

absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file) {
  HyperParameters hyper;
  KeyReader keys(file.metadata());
  RETURN_IF_ERROR(RefuseFoldedWeights(file.metadata()));
  ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(file.metadata()));
  hyper.architecture = architecture->name;
  ASSIGN_OR_RETURN(hyper.name, file.metadata().GetStringOr("general.name", ""));
  keys.set_prefix(hyper.architecture);
  RETURN_IF_ERROR(RefuseUnsupported(keys));
  ASSIGN_OR_RETURN(const int64_t layers, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(hyper.context, keys.Int("context_length", 1, kMaxContext));
  ASSIGN_OR_RETURN(hyper.hidden, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const double eps, keys.Float("attention.layer_norm_rms_epsilon", 0, true));
  if (eps < 1e-30 || eps > 1) {
    return keys.Invalid("attention.layer_norm_rms_epsilon", "is ", eps, ", expected a number from 1e-30 to 1");
  }
  hyper.rms_eps = static_cast<float>(eps);
  hyper.layers.resize(static_cast<size_t>(layers));
  ASSIGN_OR_RETURN(const AttentionSpec attention, ReadAttention(keys, *architecture, hyper));
  RETURN_IF_ERROR(ReadFfns(keys, hyper));
  for (LayerSpec& layer : hyper.layers) {
    layer.attention = attention;
    layer.norm_eps = hyper.rms_eps;
  }
  RETURN_IF_ERROR(RefuseKinds(keys, hyper));
  RETURN_IF_ERROR(ReadVocabulary(file, keys, hyper));
  return hyper;
}

std::string SupportedArchitectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures)
    absl::StrAppend(&names, names.empty() ? "" : ", ", architecture.name);
  return names;
}

}  // namespace stagecoach
