#include "common/model/attention_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/base/fixed_log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/model/model_limits.h"

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

// The key rope.scaling.yarn_attn_factor is not read: it repeats the magnitude that YaRN's factor gives, which is
// computed here; attn_factor multiplies it.
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

// Which layers are windowed, were there a window: by the key, a period or a value for every layer, or the
// architecture's period.
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
  // Converters write 0 for a model without windows, which one whose layers are said to have them cannot be.
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

}  // namespace stagecoach
