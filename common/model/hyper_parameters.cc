#include "common/model/hyper_parameters.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "common/model/architectures.h"

namespace stagecoach {
namespace {

static_assert(JobLimits::kLayersOfAStage.max == kMaxLayers, "one stage may have all layers of any model");
static_assert(kMostDummyLayers == kMaxLayers, "a model without weights may have as many layers as any");

// `keys` have no prefix yet.
absl::StatusOr<const Architecture*> ReadArchitecture(const KeyReader& keys) {
  constexpr char kKey[] = "general.architecture";
  if (!keys.Has(kKey)) return keys.Invalid(kKey, "is missing, expected one of ", SupportedArchitectures());
  ASSIGN_OR_RETURN(const std::string name, keys.metadata().GetString(kKey));
  if (const Architecture* architecture = FindArchitecture(name)) return architecture;
  return keys.Unsupported(kKey, "is ", ShownText(name), "; supported architectures are ", SupportedArchitectures());
}

absl::Status RefuseFoldedWeights(const KeyReader& keys) {
  for (const auto& [key, value] : keys.metadata().entries()) {
    if (!absl::StartsWith(key, "prism.hadamard.")) continue;
    return keys.Unsupported(key, "says that weights are folded with a Hadamard transform, which is not implemented; ",
                            "without it the model would answer with noise");
  }
  return absl::OkStatus();
}

// Keys of variants and of other programs' files that would change the computation and are not read. Zero: unset.
absl::Status RefuseUnreadKeys(const KeyReader& keys) {
  constexpr struct {
    const char* name;
    const char* what;
  } kUnread[] = {
      {"attention.temperature_scale", "queries grow with their position"},  // Mistral Large 3
      {"attention.clamp_kqv", "queries, keys and values are clamped"},
      {"attention.output_scale", "what attention gives is scaled"},
      {"router_logit_softcapping", "the router's logits are capped"},
      {"rope.scaling.alpha", "the base of RoPE is stretched"},
      {"rope.global.freq_base", "a base of RoPE has another name than rope.freq_base"},  // Ollama's Gemma 3
  };
  for (const auto& [name, what] : kUnread) {
    if (!keys.Has(name)) continue;
    ASSIGN_OR_RETURN(const double value, keys.Float(name, 0, false));
    if (value != 0) return keys.Unsupported(name, "is ", value, ": ", what, ", which is not implemented");
  }
  return absl::OkStatus();
}

// A number that multiplies something of the forward pass.
absl::StatusOr<float> ReadScale(const KeyReader& keys, const char* name) {
  ASSIGN_OR_RETURN(const double scale, keys.Float(name, 0, true));
  return static_cast<float>(scale);
}

absl::Status ReadScales(const KeyReader& keys, const Architecture& architecture, HyperParameters& hyper) {
  if (architecture.embedding_times_sqrt) hyper.embedding_scale = std::sqrt(static_cast<float>(hyper.hidden));
  if (architecture.scale_keys) {
    ASSIGN_OR_RETURN(hyper.embedding_scale, ReadScale(keys, "embedding_scale"));
    ASSIGN_OR_RETURN(const float divisor, ReadScale(keys, "logit_scale"));
    hyper.logit_scale = 1 / divisor;
    ASSIGN_OR_RETURN(const float residual, ReadScale(keys, "residual_scale"));
    for (LayerSpec& layer : hyper.layers) layer.residual_scale = residual;
  }
  ASSIGN_OR_RETURN(const double cap, keys.Float("final_logit_softcapping", 0, false, architecture.logit_cap));
  hyper.logit_cap = static_cast<float>(cap);
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

bool HyperParameters::recurrent() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) { return layer.recurrent(); });
}

const AttentionSpec& HyperParameters::first_attention() const {
  const auto first =
      std::find_if(layers.begin(), layers.end(), [](const LayerSpec& layer) { return !layer.recurrent(); });
  CHECK(first != layers.end());
  return first->attention;
}

int32_t HyperParameters::block_groups() const {
  int32_t groups = 1;
  for (const LayerSpec& layer : layers) groups = std::max(groups, layer.block_group + 1);
  return groups;
}

std::vector<int64_t> HyperParameters::group_windows() const {
  std::vector<int64_t> windows(static_cast<size_t>(block_groups()));
  for (const LayerSpec& layer : layers) {
    if (layer.block_group == kNoBlockGroup) continue;
    const AttentionSpec& attention = layer.attention;
    windows[static_cast<size_t>(layer.block_group)] = attention.kind == AttentionKind::kWindowed ? attention.window : 0;
  }
  return windows;
}

absl::StatusOr<HyperParameters> ReadHyperParameters(const GgufFile& file) {
  HyperParameters hyper;
  KeyReader keys(file.metadata());
  RETURN_IF_ERROR(RefuseFoldedWeights(keys));
  ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(keys));
  hyper.architecture = architecture->name;
  ASSIGN_OR_RETURN(hyper.name, file.metadata().GetStringOr("general.name", ""));
  keys.set_prefix(hyper.architecture);
  ASSIGN_OR_RETURN(const bool causal, keys.Bool("attention.causal", true));
  if (!causal) {
    return keys.Unsupported("attention.causal", "is false, expected true: only causal attention is supported");
  }
  RETURN_IF_ERROR(RefuseUnreadKeys(keys));
  ASSIGN_OR_RETURN(const int64_t blocks, keys.Int("block_count", 1, kMaxLayers));
  // The last blocks may be heads that draft further tokens: they are no part of the forward pass.
  ASSIGN_OR_RETURN(hyper.skipped_layers, keys.Int("nextn_predict_layers", 0, blocks - 1, 0));
  ASSIGN_OR_RETURN(hyper.context, keys.Int("context_length", 1, kMaxContext));
  ASSIGN_OR_RETURN(hyper.hidden, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const double eps, keys.Float("attention.layer_norm_rms_epsilon", 0, true));
  if (eps > 1) {
    return keys.Invalid("attention.layer_norm_rms_epsilon", "is ", eps, ", expected a number from 1e-30 to 1");
  }
  hyper.rms_eps = static_cast<float>(eps);
  RETURN_IF_ERROR(ReadVocabulary(file, keys, hyper));
  hyper.layers.resize(static_cast<size_t>(blocks - hyper.skipped_layers));
  for (LayerSpec& layer : hyper.layers) {
    layer.norm_eps = hyper.rms_eps;
    layer.pre_norms = architecture->pre_norms;
    layer.post_norms = architecture->post_norms;
  }
  RETURN_IF_ERROR(ReadAttentions(keys, *architecture, file, blocks, hyper));
  if (architecture->delta_net) RETURN_IF_ERROR(ReadDeltaNets(keys, *architecture, blocks, hyper));
  RETURN_IF_ERROR(ReadFfns(keys, *architecture, file, blocks, hyper));
  RETURN_IF_ERROR(ReadScales(keys, *architecture, hyper));
  return hyper;
}

}  // namespace stagecoach
