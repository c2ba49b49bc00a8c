#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {
namespace {

constexpr const char* kWindow = "attention.sliding_window";
constexpr const char* kPattern = "attention.sliding_window_pattern";

// Far above any model; angles and scores stay numbers.
constexpr double kMaxYarnFactor = 1000;

absl::Status ReadHeadCounts(const KeyReader& keys, int64_t blocks, AttentionSpec& attention) {
  ASSIGN_OR_RETURN(attention.heads, keys.UniformInt("attention.head_count", blocks, 1, kMaxHeads));
  ASSIGN_OR_RETURN(attention.kv_heads,
                   keys.UniformInt("attention.head_count_kv", blocks, 1, kMaxHeads, attention.heads));
  if (attention.heads % attention.kv_heads == 0) return absl::OkStatus();
  return keys.Invalid("attention.head_count_kv", "is ", attention.kv_heads,
                      ", expected a divisor of attention.head_count ", attention.heads);
}

absl::Status CheckHeadSize(const KeyReader& keys, const char* key, int64_t size, const AttentionSpec& attention,
                           const HyperParameters& hyper) {
  if (size >= 2 && size <= kMaxHeadDim && size % 2 == 0) return absl::OkStatus();
  return keys.Invalid(key, "is ", size, " (stored, or embedding_length ", hyper.hidden, " / attention.head_count ",
                      attention.heads, "), expected an even number from 2 to ", kMaxHeadDim);
}

absl::Status ReadRotatedDims(const KeyReader& keys, int64_t most, RopeParameters& rope) {
  ASSIGN_OR_RETURN(rope.dims, keys.Int("rope.dimension_count", 2, most, most));
  if (rope.dims % 2 == 0) return absl::OkStatus();
  return keys.Invalid("rope.dimension_count", "is ", rope.dims, ", expected an even number");
}

absl::Status ReadGroupedHeads(const KeyReader& keys, const HyperParameters& hyper, AttentionSpec& attention) {
  if (!keys.Has("attention.key_length") && hyper.hidden % attention.heads != 0) {
    return keys.Invalid("attention.key_length", "is missing, and embedding_length ", hyper.hidden,
                        " is not a multiple of attention.head_count ", attention.heads);
  }
  ASSIGN_OR_RETURN(attention.head_dim,
                   keys.Int("attention.key_length", 2, kMaxHeadDim, hyper.hidden / attention.heads));
  RETURN_IF_ERROR(CheckHeadSize(keys, "attention.key_length", attention.head_dim, attention, hyper));
  ASSIGN_OR_RETURN(attention.value_dim, keys.Int("attention.value_length", 1, kMaxHeadDim, attention.head_dim));
  if (attention.value_dim != attention.head_dim) {
    return keys.Unsupported("attention.value_length", "is ", attention.value_dim, ", expected ", attention.head_dim,
                            ", the size of a head");
  }
  return ReadRotatedDims(keys, attention.head_dim, attention.rope);
}

// A key that repeats what follows from others.
absl::Status CheckRepeated(const KeyReader& keys, const char* name, int64_t expected, const char* of) {
  ASSIGN_OR_RETURN(const int64_t found, keys.Int(name, 1, INT64_MAX, expected));
  if (found == expected) return absl::OkStatus();
  return keys.Invalid(name, "is ", found, ", expected ", expected, ", ", of);
}

absl::Status ReadLatentHeads(const KeyReader& keys, const HyperParameters& hyper, AttentionSpec& attention) {
  if (!keys.Has("attention.key_length_mla")) {
    return keys.Unsupported("attention.key_length_mla",
                            "is missing: the file is of the older form with whole keys and ",
                            "values, and only latent attention with attn_k_b and attn_v_b is supported; convert the ",
                            "model again with a converter of May 2025 or later");
  }
  if (attention.kv_heads != 1) {
    return keys.Invalid("attention.head_count_kv", "is ", attention.kv_heads, ", expected 1 with latent attention");
  }
  ASSIGN_OR_RETURN(attention.kv_rank, keys.Int("attention.kv_lora_rank", 2, kMaxHeadDim));
  ASSIGN_OR_RETURN(attention.q_rank, keys.Int("attention.q_lora_rank", 0, kMaxWidth, 0));
  ASSIGN_OR_RETURN(attention.head_dim, keys.Int("attention.key_length_mla", 4, kMaxHeadDim));
  RETURN_IF_ERROR(CheckHeadSize(keys, "attention.key_length_mla", attention.head_dim, attention, hyper));
  ASSIGN_OR_RETURN(attention.value_dim, keys.Int("attention.value_length_mla", 2, kMaxHeadDim));
  if (attention.value_dim % 2 != 0) {
    return keys.Invalid("attention.value_length_mla", "is ", attention.value_dim, ", expected an even number");
  }
  if (!keys.Has("rope.dimension_count")) return keys.Invalid("rope.dimension_count", "is missing");
  RETURN_IF_ERROR(ReadRotatedDims(keys, attention.head_dim - 2, attention.rope));
  if (attention.key_dim() > kMaxHeadDim || attention.key_dim() % 2 != 0) {
    return keys.Invalid("attention.kv_lora_rank", "is ", attention.kv_rank, ", with rope.dimension_count ",
                        attention.rope.dims, " expected an even sum of at most ", kMaxHeadDim);
  }
  RETURN_IF_ERROR(CheckRepeated(keys, "attention.key_length", attention.key_dim(),
                                "attention.kv_lora_rank + rope.dimension_count"));
  return CheckRepeated(keys, "attention.value_length", attention.kv_rank, "attention.kv_lora_rank");
}

// rope.scaling.yarn_attn_factor is not read: it repeats what follows from YaRN's factor. attn_factor multiplies it.
absl::Status ReadYarn(const KeyReader& keys, RopeParameters& rope) {
  ASSIGN_OR_RETURN(rope.ext_factor, keys.Float("rope.scaling.yarn_ext_factor", 0, false, 1));
  if (rope.ext_factor > kMaxYarnFactor) {
    return keys.Invalid("rope.scaling.yarn_ext_factor", "is ", rope.ext_factor, ", expected 0 to ", kMaxYarnFactor);
  }
  ASSIGN_OR_RETURN(rope.beta_fast, keys.Float("rope.scaling.yarn_beta_fast", 0, true, 32));
  ASSIGN_OR_RETURN(rope.beta_slow, keys.Float("rope.scaling.yarn_beta_slow", 0, true, 1));
  return absl::OkStatus();
}

absl::Status ReadRope(const KeyReader& keys, int64_t context, RopeParameters& rope) {
  ASSIGN_OR_RETURN(rope.freq_base, keys.Float("rope.freq_base", 1, true, 10000));
  ASSIGN_OR_RETURN(const std::string type, keys.metadata().GetStringOr(keys.Key("rope.scaling.type"), "linear"));
  if (type != "none" && type != "linear" && type != "yarn") {
    return keys.Unsupported("rope.scaling.type", "is ", ShownText(type), "; supported are none, linear, yarn");
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
  if (type == "linear" && factor > 1) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
  }
  return absl::OkStatus();
}

// DeepSeek has YaRN's magnitude in the scale of the scores alone: m^2 with m = 1 + yarn_log_multiplier * ln(factor).
absl::Status ReadLatentMagnitude(const KeyReader& keys, AttentionSpec& attention) {
  if (attention.rope.scaling != RopeScaling::kYarn) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double multiplier, keys.Float("rope.scaling.yarn_log_multiplier", 0, true));
  if (multiplier > kMaxYarnFactor) {
    return keys.Invalid("rope.scaling.yarn_log_multiplier", "is ", multiplier, ", expected at most ", kMaxYarnFactor);
  }
  const double magnitude = 1 + multiplier * FixedLn(attention.rope.factor);
  attention.score_scale *= magnitude * magnitude;
  attention.rope.log_magnitude = false;
  return absl::OkStatus();
}

absl::Status ReadScores(const KeyReader& keys, const Architecture& architecture, const HyperParameters& hyper,
                        AttentionSpec& attention) {
  const bool of_hidden = hyper.layer_count() == architecture.layers_of_hidden_scale;
  const int64_t width = of_hidden ? hyper.hidden / attention.heads : attention.head_dim;
  if (width < 1) {
    return keys.Invalid("attention.head_count", "is ", attention.heads, ", expected at most embedding_length ",
                        hyper.hidden);
  }
  attention.score_scale = 1 / std::sqrt(static_cast<double>(width));
  ASSIGN_OR_RETURN(const double scale, keys.Float("attention.scale", 0, false, 0));
  if (scale != 0 && !architecture.scale_key) {
    return keys.Unsupported("attention.scale", "is ", scale, ", expected 0: of architecture ", architecture.name,
                            " only 1/sqrt(head size) is known");
  }
  if (scale != 0) attention.score_scale = scale;
  ASSIGN_OR_RETURN(attention.score_cap, keys.Float("attn_logit_softcapping", 0, false, architecture.score_cap));
  return absl::OkStatus();
}

// The attention that all layers have in common.
absl::StatusOr<AttentionSpec> ReadCommon(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                                         int64_t blocks, const HyperParameters& hyper) {
  AttentionSpec attention;
  attention.qkv_bias = architecture.qkv_bias;
  const bool has_norms = !architecture.optional_qk_norm || file.FindTensor("blk.0.attn_q_norm.weight") != nullptr;
  attention.qk_norm = has_norms ? architecture.qk_norm : QkNorm::kNone;
  attention.sinks = architecture.sinks;
  attention.gated = architecture.delta_net;
  attention.rope.pairs = architecture.pairs;
  attention.rope.factors = architecture.rope_factors;
  RETURN_IF_ERROR(ReadHeadCounts(keys, blocks, attention));
  RETURN_IF_ERROR(architecture.latent ? ReadLatentHeads(keys, hyper, attention)
                                      : ReadGroupedHeads(keys, hyper, attention));
  const int64_t width = std::max(attention.heads * attention.key_dim(), attention.output_width());
  if (width > kMaxWidth) {
    return keys.Invalid("attention.head_count", "is ", attention.heads, ", whose heads are ", width,
                        " wide together, expected at most ", kMaxWidth);
  }
  RETURN_IF_ERROR(ReadScores(keys, architecture, hyper, attention));
  RETURN_IF_ERROR(ReadRope(keys, hyper.context, attention.rope));
  if (attention.latent()) RETURN_IF_ERROR(ReadLatentMagnitude(keys, attention));
  // How a model says that it has no positions at all.
  ASSIGN_OR_RETURN(const bool rotated, keys.Bool("rope.scaling.finetuned", true));
  if (architecture.scale_keys && !rotated) attention.rope.dims = 0;
  return attention;
}

// Which layers are windowed, if the model has a window: by key (a period, or a value a layer) or architecture.
absl::StatusOr<std::vector<bool>> ReadPattern(const KeyReader& keys, const Architecture& architecture, int64_t blocks) {
  const GgufValue* value = keys.metadata().Find(keys.Key(kPattern));
  const GgufArray* array = value != nullptr ? std::get_if<GgufArray>(value) : nullptr;
  if (const auto* flags = array != nullptr ? std::get_if<std::vector<bool>>(&array->values) : nullptr) {
    if (static_cast<int64_t>(flags->size()) == blocks) return *flags;
    return keys.Invalid(kPattern, "is an array of ", flags->size(), " values, expected ", blocks, ", one a layer");
  }
  std::vector<bool> windowed(static_cast<size_t>(blocks), true);
  if (array != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> flags, keys.LayerInts(kPattern, blocks, 0, 1));
    for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = flags[i] == 1;
    return windowed;
  }
  ASSIGN_OR_RETURN(const int64_t period, keys.Int(kPattern, 0, kMaxLayers, architecture.window_period));
  for (size_t i = 0; period > 0 && i < windowed.size(); ++i) {
    windowed[i] = static_cast<int64_t>(i) % period < period - 1;
  }
  return windowed;
}

absl::Status ReadWindows(const KeyReader& keys, const Architecture& architecture, int64_t blocks,
                         HyperParameters& hyper) {
  const bool required = architecture.window == Presence::kRequired;
  const auto fallback = required ? std::optional<int64_t>() : architecture.default_window;
  // Converters write 0 for "no window", which contradicts layers that must have one.
  const bool some = required || architecture.default_window > 0;
  ASSIGN_OR_RETURN(const int64_t window, keys.Int(kWindow, some ? 1 : 0, INT64_MAX, fallback));
  if (window == 0) return absl::OkStatus();
  const bool narrow = window < hyper.context;  // a wide one hides nothing
  if (narrow && architecture.window == Presence::kAbsent) {
    return keys.Unsupported(kWindow, "is ", window, ", expected 0 or at least the context of ", hyper.context,
                            ": architecture ", architecture.name, " has no windows");
  }
  ASSIGN_OR_RETURN(const std::vector<bool> windowed, ReadPattern(keys, architecture, blocks));
  ASSIGN_OR_RETURN(const double local_base,
                   keys.Float("rope.freq_base_swa", 1, true,
                              architecture.local_freq_base > 0 ? architecture.local_freq_base
                                                               : hyper.layers[0].attention.rope.freq_base));
  bool any_full = false;
  for (size_t i = 0; i < hyper.layers.size(); ++i) any_full = any_full || !windowed[i];
  for (size_t i = 0; i < hyper.layers.size(); ++i) {
    if (!windowed[i]) continue;
    LayerSpec& layer = hyper.layers[i];
    if (narrow) {
      layer.attention.kind = AttentionKind::kWindowed;
      layer.attention.window = window;
      layer.block_group = any_full ? 1 : 0;
    }
    layer.attention.rope.freq_base = local_base;
    if (!architecture.local_unscaled) continue;
    const RopeParameters unscaled;
    RopeParameters& rope = layer.attention.rope;
    rope.scaling = RopeScaling::kNone;
    rope.factor = unscaled.factor;
    rope.attn_factor = unscaled.attn_factor;
  }
  return absl::OkStatus();
}

constexpr const char* kExpertWidth = "expert_feed_forward_length";
constexpr const char* kWidth = "feed_forward_length";

// The values of expert_gating_func; 0 means unset.
absl::Status ReadGating(const KeyReader& keys, const Architecture& architecture, Gating& gating) {
  constexpr const char* kName = "expert_gating_func";
  constexpr Gating kByNumber[] = {Gating::kSoftmax, Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen};
  ASSIGN_OR_RETURN(const int64_t number, keys.Int(kName, 0, INT64_MAX, 0));
  if (number == 0) return absl::OkStatus();
  const bool known = number <= 3 && (architecture.gating_key || kByNumber[number] == gating);
  if (!known) {
    return keys.Unsupported(kName, "is ", number, ", and architecture ", architecture.name, " has ",
                            architecture.gating_key ? "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)"
                                                    : "its own alone, which is another");
  }
  gating = kByNumber[number];
  return absl::OkStatus();
}

absl::Status ReadGroups(const KeyReader& keys, const FfnSpec& ffn, RouterSpec& router) {
  constexpr const char* kGroups = "expert_group_count";
  constexpr const char* kUsed = "expert_group_used_count";
  ASSIGN_OR_RETURN(const int64_t groups, keys.Int(kGroups, 0, kMaxExperts, 0));
  if (groups <= 1) return absl::OkStatus();
  if (ffn.experts % groups != 0 || ffn.experts / groups < 2) {
    return keys.Invalid(kGroups, "is ", groups, ", expected a divisor of expert_count ", ffn.experts,
                        " that leaves two experts or more to a group");
  }
  if (router.gating == Gating::kSoftmaxOfChosen) {
    return keys.Unsupported(kGroups, "is ", groups, ", expected 0 or 1 with a softmax of the chosen");
  }
  router.groups = groups;
  ASSIGN_OR_RETURN(router.groups_used, keys.Int(kUsed, 1, groups));
  if (ffn.experts_used <= ffn.experts / groups * router.groups_used) return absl::OkStatus();
  return keys.Invalid(kUsed, "is ", router.groups_used, ", whose groups have ",
                      ffn.experts / groups * router.groups_used, " experts, fewer than expert_used_count ",
                      ffn.experts_used);
}

absl::Status ReadRouter(const KeyReader& keys, const Architecture& architecture, int64_t blocks,
                        const HyperParameters& hyper, FfnSpec& ffn) {
  RouterSpec& router = ffn.router;
  // GLM-4.7-Flash's files say nothing and mean sigmoid.
  const bool flash = architecture.latent && (blocks == 47 || blocks == 48) && hyper.vocab == 154880;
  router.gating = flash ? Gating::kSigmoid : architecture.gating;
  RETURN_IF_ERROR(ReadGating(keys, architecture, router.gating));
  ASSIGN_OR_RETURN(router.normalized, keys.Bool("expert_weights_norm", architecture.normalized));
  if (router.gating == Gating::kSoftmaxOfChosen) router.normalized = false;  // they add up to 1
  ASSIGN_OR_RETURN(const double scale, keys.Float("expert_weights_scale", 0, false, 0));
  if (scale != 0 && scale != 1 && !architecture.scale_of_weights) {
    return keys.Unsupported("expert_weights_scale", "is ", scale, ", expected 0 or 1 of architecture ",
                            architecture.name);
  }
  router.scale = scale == 0 ? 1 : scale;
  return ReadGroups(keys, ffn, router);
}

constexpr const char* kSharedWidth = "expert_shared_feed_forward_length";

// Of architectures whose one shared unit has a width of its own. Readers of files that do not say it disagree about
// what it is then; the tensors know.
absl::Status ReadGatedShared(const KeyReader& keys, const GgufFile& file, FfnSpec& ffn) {
  int64_t width = 0;
  if (!keys.Has(kSharedWidth)) {
    const GgufTensor* gate = file.FindTensor("blk.0.ffn_gate_shexp.weight");
    width = gate == nullptr ? 0 : gate->rows();
  }
  ASSIGN_OR_RETURN(ffn.shared_width, keys.Int(kSharedWidth, 0, kMaxWidth, width));
  if (ffn.shared_width > kMaxWidth) {
    return keys.Invalid(kSharedWidth, "is missing, and tensor 'blk.0.ffn_gate_shexp.weight' has ", ffn.shared_width,
                        " rows, expected at most ", kMaxWidth);
  }
  ffn.shared_gated = ffn.shared_width > 0;
  return absl::OkStatus();
}

absl::Status ReadShared(const KeyReader& keys, const Architecture& architecture, const GgufFile& file, FfnSpec& ffn) {
  if (architecture.delta_net) return ReadGatedShared(keys, file, ffn);
  constexpr const char* kCount = "expert_shared_count";
  ASSIGN_OR_RETURN(const int64_t units, keys.Int(kCount, 0, kMaxExperts, 0));
  ASSIGN_OR_RETURN(const int64_t width, keys.Int(kSharedWidth, 0, kMaxWidth, 0));
  if (architecture.shared) {
    ffn.shared_width = units * ffn.width;
    if (ffn.shared_width > kMaxWidth) {
      return keys.Invalid(kCount, "is ", units, ", expected at most ", kMaxWidth / ffn.width, " of width ", ffn.width);
    }
    if (width == 0 || width == ffn.shared_width) return absl::OkStatus();
    return keys.Invalid(kSharedWidth, "is ", width, ", expected ", ffn.shared_width, ", as expert_shared_count says");
  }
  if (units == 0 && width == 0) return absl::OkStatus();
  return keys.Unsupported(units > 0 ? kCount : kSharedWidth, "is ", units > 0 ? units : width,
                          ", expected 0: architecture ", architecture.name, " has no shared experts");
}

// Of the layers that have experts.
absl::StatusOr<FfnSpec> ReadExperts(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                                    int64_t experts, int64_t blocks, const HyperParameters& hyper) {
  FfnSpec ffn;
  ffn.kind = FfnKind::kExperts;
  ffn.activation = architecture.activation;
  ffn.experts = experts;
  ASSIGN_OR_RETURN(ffn.experts_used, keys.Int("expert_used_count", 1, experts));
  const char* width = keys.Has(kExpertWidth) ? kExpertWidth : kWidth;
  ASSIGN_OR_RETURN(ffn.width, keys.UniformInt(width, blocks, 1, kMaxWidth));
  RETURN_IF_ERROR(ReadRouter(keys, architecture, blocks, hyper, ffn));
  RETURN_IF_ERROR(ReadShared(keys, architecture, file, ffn));
  return ffn;
}

}  // namespace

absl::Status ReadAttentions(const KeyReader& keys, const Architecture& architecture, const GgufFile& file,
                            int64_t blocks, HyperParameters& hyper) {
  ASSIGN_OR_RETURN(const AttentionSpec common, ReadCommon(keys, architecture, file, blocks, hyper));
  for (size_t i = 0; i < hyper.layers.size(); ++i) {
    hyper.layers[i].attention = common;
    const int64_t step = architecture.no_rope_step;
    if (step > 0 && (static_cast<int64_t>(i) + 1) % step == 0) hyper.layers[i].attention.rope.dims = 0;
  }
  return ReadWindows(keys, architecture, blocks, hyper);
}

absl::Status ReadFfns(const KeyReader& keys, const Architecture& architecture, const GgufFile& file, int64_t blocks,
                      HyperParameters& hyper) {
  const bool required = architecture.experts == Presence::kRequired;
  const auto none = required ? std::optional<int64_t>() : 0;
  ASSIGN_OR_RETURN(const int64_t experts, keys.Int("expert_count", required ? 1 : 0, kMaxExperts, none));
  if (experts > 0 && architecture.experts == Presence::kAbsent) {
    return keys.Unsupported("expert_count", "is ", experts, ", expected 0: architecture ", architecture.name,
                            " has no experts");
  }
  int64_t first = hyper.layer_count();
  FfnSpec with_experts;
  if (experts > 0) {
    ASSIGN_OR_RETURN(first, keys.Int("leading_dense_block_count", 0, blocks, 0));
    ASSIGN_OR_RETURN(with_experts, ReadExperts(keys, architecture, file, experts, blocks, hyper));
  }
  std::vector<int64_t> widths;
  if (first > 0) {
    ASSIGN_OR_RETURN(widths, keys.LayerInts(kWidth, blocks, 1, kMaxWidth));
  }
  for (int64_t i = 0; i < hyper.layer_count(); ++i) {
    FfnSpec& ffn = hyper.layers[static_cast<size_t>(i)].ffn;
    if (i >= first) {
      ffn = with_experts;
      continue;
    }
    ffn.activation = architecture.activation;
    ffn.width = widths[static_cast<size_t>(i)];
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
