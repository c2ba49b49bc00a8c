#include "common/model/hyper_parameters.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

struct Architecture {
  const char* name;
  RopePairs pairs;
  LayerTraits traits;
};

constexpr Architecture kArchitectures[] = {
    {"llama", RopePairs::kAdjacent, {.qk_norm = false, .qkv_bias_required = false, .rope_factors = true}},
    {"qwen2", RopePairs::kHalves, {.qk_norm = false, .qkv_bias_required = true, .rope_factors = false}},
    {"qwen3", RopePairs::kHalves, {.qk_norm = true, .qkv_bias_required = false, .rope_factors = false}},
};

// Bounds far above any model; they keep products of sizes far from overflow.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxContext = int64_t{1} << 30;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxHeadDim = 1024;

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

  // As Int; an array with one value a layer is accepted when all of them are equal.
  absl::StatusOr<int64_t> UniformInt(absl::string_view name, int64_t layers, int64_t low, int64_t high,
                                     std::optional<int64_t> fallback = {}) const {
    const GgufValue* value = metadata_.Find(Key(name));
    if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) return Int(name, low, high, fallback);
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, metadata_.GetInts(Key(name)));
    if (static_cast<int64_t>(values.size()) != layers) {
      return Invalid(name, "is an array of ", values.size(), " values, expected ", layers, ", one a layer");
    }
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i] == values[0]) continue;
      return Unsupported(name, "is ", values[0], " in layer 0 and ", values[i], " in layer ", i,
                         "; only models whose layers are all alike are supported");
    }
    if (values[0] < low || values[0] > high) return Invalid(name, "is ", values[0], ", expected ", low, " to ", high);
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

// What would change the forward pass in a way we do not compute.
absl::Status RefuseUnsupported(const KeyReader& keys, int64_t context) {
  ASSIGN_OR_RETURN(const int64_t experts, keys.Int("expert_count", 0, kMaxHeads, 0));
  if (experts > 0)
    return keys.Unsupported("expert_count", "is ", experts, ", expected 0: mixture-of-experts is not supported");
  ASSIGN_OR_RETURN(const bool causal, keys.metadata().GetBoolOr(keys.Key("attention.causal"), true));
  if (!causal)
    return keys.Unsupported("attention.causal", "is false, expected true: only causal attention is supported");
  ASSIGN_OR_RETURN(const int64_t window, keys.Int("attention.sliding_window", 0, INT64_MAX, 0));
  if (window > 0 && window < context) {
    return keys.Unsupported("attention.sliding_window", "is ", window, ", expected 0 or at least the context of ",
                            context, ": sliding-window attention is not supported");
  }
  ASSIGN_OR_RETURN(const double scale, keys.metadata().GetFloatOr(keys.Key("attention.scale"), 0));
  if (scale != 0) {
    return keys.Unsupported("attention.scale", "is ", scale, ", expected 0: only 1/sqrt(head size) is supported");
  }
  return absl::OkStatus();
}

absl::Status ReadAttention(const KeyReader& keys, HyperParameters& hyper) {
  ASSIGN_OR_RETURN(hyper.heads, keys.UniformInt("attention.head_count", hyper.layers, 1, kMaxHeads));
  ASSIGN_OR_RETURN(hyper.kv_heads, keys.UniformInt("attention.head_count_kv", hyper.layers, 1, kMaxHeads, hyper.heads));
  if (hyper.heads % hyper.kv_heads != 0) {
    return keys.Invalid("attention.head_count_kv", "is ", hyper.kv_heads,
                        ", expected a divisor of attention.head_count ", hyper.heads);
  }
  if (!keys.Has("attention.key_length") && hyper.hidden % hyper.heads != 0) {
    return keys.Invalid("attention.key_length", "is missing, and embedding_length ", hyper.hidden,
                        " is not a multiple of attention.head_count ", hyper.heads);
  }
  ASSIGN_OR_RETURN(hyper.head_dim, keys.Int("attention.key_length", 2, kMaxHeadDim, hyper.hidden / hyper.heads));
  if (hyper.head_dim < 2 || hyper.head_dim > kMaxHeadDim || hyper.head_dim % 2 != 0) {
    return keys.Invalid("attention.key_length", "is ", hyper.head_dim, " (stored, or embedding_length ", hyper.hidden,
                        " / attention.head_count ", hyper.heads, "), expected an even number from 2 to ", kMaxHeadDim);
  }
  for (const char* name : {"attention.value_length", "rope.dimension_count"}) {
    ASSIGN_OR_RETURN(const int64_t size, keys.Int(name, 1, kMaxHeadDim, hyper.head_dim));
    if (size != hyper.head_dim) {
      return keys.Unsupported(name, "is ", size, ", expected ", hyper.head_dim, ", the size of a head");
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

absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file) {
  HyperParameters hyper;
  KeyReader keys(file.metadata());
  RETURN_IF_ERROR(RefuseFoldedWeights(file.metadata()));
  ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(file.metadata()));
  hyper.architecture = architecture->name;
  hyper.traits = architecture->traits;
  hyper.rope.pairs = architecture->pairs;
  ASSIGN_OR_RETURN(hyper.name, file.metadata().GetStringOr("general.name", ""));
  keys.set_prefix(hyper.architecture);
  ASSIGN_OR_RETURN(hyper.layers, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(hyper.context, keys.Int("context_length", 1, kMaxContext));
  RETURN_IF_ERROR(RefuseUnsupported(keys, hyper.context));
  ASSIGN_OR_RETURN(hyper.hidden, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(hyper.ffn, keys.UniformInt("feed_forward_length", hyper.layers, 1, kMaxWidth));
  RETURN_IF_ERROR(ReadAttention(keys, hyper));
  ASSIGN_OR_RETURN(const double eps, keys.Float("attention.layer_norm_rms_epsilon", 0, true));
  if (eps < 1e-30 || eps > 1) {
    return keys.Invalid("attention.layer_norm_rms_epsilon", "is ", eps, ", expected a number from 1e-30 to 1");
  }
  hyper.rms_eps = static_cast<float>(eps);
  RETURN_IF_ERROR(ReadRope(keys, hyper.context, hyper.rope));
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
