#include "common/model/ffn_keys.h"

#include <optional>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/model_limits.h"

namespace stagecoach {
namespace {

constexpr const char* kExpertWidth = "expert_feed_forward_length";
constexpr const char* kWidth = "feed_forward_length";

// GLM-4.7-Flash's files say nothing and mean sigmoid.
Gating DefaultGating(const Architecture& architecture, int64_t blocks, const HyperParameters& hyper) {
  const bool flash = architecture.latent && (blocks == 47 || blocks == 48) && hyper.vocab == 154880;
  return flash ? Gating::kSigmoid : architecture.gating;
}

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
  router.gating = DefaultGating(architecture, blocks, hyper);
  RETURN_IF_ERROR(ReadGating(keys, architecture, router.gating));
  ASSIGN_OR_RETURN(router.normalized, keys.Bool("expert_weights_norm", architecture.normalized));
  if (router.gating == Gating::kSoftmaxOfChosen) router.normalized = false;  // they add up to 1
  ASSIGN_OR_RETURN(const double scale, keys.Float("expert_weights_scale", 0, false, 0));
  if (scale != 0 && scale != 1 && !architecture.scale_of_weights) {
    return keys.Unsupported("expert_weights_scale", "is ", scale, ", expected 0 or 1 of architecture ",
                            architecture.name);
  }
  if (scale != 0 && (scale < 1e-30 || scale > 1e30)) {
    return keys.Invalid("expert_weights_scale", "is ", scale, ", expected 0 (none) or a number from 1e-30 to 1e30");
  }
  router.scale = scale == 0 ? 1 : scale;
  return ReadGroups(keys, ffn, router);
}

absl::Status ReadShared(const KeyReader& keys, const Architecture& architecture, FfnSpec& ffn) {
  constexpr const char* kCount = "expert_shared_count";
  constexpr const char* kSharedWidth = "expert_shared_feed_forward_length";
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
absl::StatusOr<FfnSpec> ReadExperts(const KeyReader& keys, const Architecture& architecture, int64_t experts,
                                    int64_t blocks, const HyperParameters& hyper) {
  FfnSpec ffn;
  ffn.kind = FfnKind::kExperts;
  ffn.activation = architecture.activation;
  ffn.experts = experts;
  ASSIGN_OR_RETURN(ffn.experts_used, keys.Int("expert_used_count", 1, experts));
  const char* width = keys.Has(kExpertWidth) ? kExpertWidth : kWidth;
  ASSIGN_OR_RETURN(ffn.width, keys.UniformInt(width, blocks, 1, kMaxWidth));
  RETURN_IF_ERROR(ReadRouter(keys, architecture, blocks, hyper, ffn));
  RETURN_IF_ERROR(ReadShared(keys, architecture, ffn));
  return ffn;
}

}  // namespace

absl::Status ReadFfns(const KeyReader& keys, const Architecture& architecture, int64_t blocks, HyperParameters& hyper) {
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
    ASSIGN_OR_RETURN(with_experts, ReadExperts(keys, architecture, experts, blocks, hyper));
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
