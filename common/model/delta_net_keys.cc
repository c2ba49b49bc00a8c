#include <algorithm>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {
namespace {

constexpr const char* kInterval = "full_attention_interval";
constexpr const char* kRecurrentLayers = "attention.recurrent_layers";
constexpr const char* kSections = "rope.dimension_sections";
constexpr int64_t kUsualInterval = 4;

// `flags` are of the layers that run, or of all blocks of the file; those of blocks that only draft mean nothing.
absl::StatusOr<std::vector<bool>> FlagsOfLayers(const KeyReader& keys, std::vector<bool> flags, size_t layers,
                                                int64_t blocks) {
  if (flags.size() != layers && static_cast<int64_t>(flags.size()) != blocks) {
    return keys.Invalid(kRecurrentLayers, "is an array of ", flags.size(), " values, expected ", layers,
                        static_cast<int64_t>(layers) == blocks ? "" : absl::StrCat(" or ", blocks), ", one a layer");
  }
  flags.resize(layers);
  return flags;
}

// Which layers keep a state: the file's list, or all but every interval-th.
absl::StatusOr<std::vector<bool>> ReadRecurrentLayers(const KeyReader& keys, size_t layers, int64_t blocks) {
  const GgufValue* value = keys.metadata().Find(keys.Key(kRecurrentLayers));
  if (value == nullptr) {
    ASSIGN_OR_RETURN(const int64_t interval, keys.Int(kInterval, 1, kMaxLayers, kUsualInterval));
    std::vector<bool> flags(layers);
    for (size_t i = 0; i < layers; ++i) flags[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
    return flags;
  }
  const GgufArray* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return keys.Invalid(kRecurrentLayers, "is no array, expected one value a layer");
  if (const auto* flags = std::get_if<std::vector<bool>>(&array->values)) {
    return FlagsOfLayers(keys, *flags, layers, blocks);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, keys.metadata().GetInts(keys.Key(kRecurrentLayers)));
  std::vector<bool> flags;
  for (const int64_t number : numbers) {
    if (number != 0 && number != 1) {
      return keys.Invalid(kRecurrentLayers, "is ", number, " in layer ", flags.size(), ", expected 0 or 1");
    }
    flags.push_back(number == 1);
  }
  return FlagsOfLayers(keys, std::move(flags), layers, blocks);
}

absl::StatusOr<DeltaNetSpec> ReadSizes(const KeyReader& keys, const Architecture& architecture) {
  DeltaNetSpec spec;
  ASSIGN_OR_RETURN(spec.conv_kernel, keys.Int("ssm.conv_kernel", kMinConvKernel, kMaxConvKernel));
  ASSIGN_OR_RETURN(spec.head_dim, keys.Int("ssm.state_size", 2, kMaxHeadDim));
  if (spec.head_dim % 2 != 0) {
    return keys.Invalid("ssm.state_size", "is ", spec.head_dim, ", expected an even number");
  }
  ASSIGN_OR_RETURN(spec.key_heads, keys.Int("ssm.group_count", 1, kMaxHeads));
  ASSIGN_OR_RETURN(spec.value_heads, keys.Int("ssm.time_step_rank", 1, kMaxHeads));
  if (spec.value_heads % spec.key_heads != 0) {
    return keys.Invalid("ssm.time_step_rank", "is ", spec.value_heads, ", expected a multiple of ssm.group_count ",
                        spec.key_heads);
  }
  const int64_t width = spec.conv_width() + spec.value_width();
  if (width > kMaxWidth) {
    return keys.Invalid("ssm.time_step_rank", "is ", spec.value_heads, ", whose heads are ", width,
                        " wide together with keys and gates, expected at most ", kMaxWidth);
  }
  ASSIGN_OR_RETURN(const int64_t inner, keys.Int("ssm.inner_size", 1, INT64_MAX, spec.value_width()));
  if (inner != spec.value_width()) {
    return keys.Invalid("ssm.inner_size", "is ", inner, ", expected ", spec.value_width(),
                        ", ssm.time_step_rank * ssm.state_size");
  }
  // Ollama's converter says whether it dealt the value heads out to the key heads in turn, as llama.cpp's always does
  // for qwen35.
  ASSIGN_OR_RETURN(const bool dealt, keys.Bool("ssm.v_head_reordered", !architecture.grouped_value_heads));
  spec.grouped = !dealt;
  return spec;
}

// Images have positions of time, height and width, which are dealt out to the rotated pairs in turn; text has three
// equal ones. A pair behind a section's end has a fourth position, which text leaves at 0.
absl::Status CheckSections(const KeyReader& keys, const RopeParameters& rope) {
  if (!keys.Has(kSections)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, keys.metadata().GetInts(keys.Key(kSections)));
  if (sections.size() != 3 && sections.size() != 4) {
    return keys.Invalid(kSections, "is an array of ", sections.size(), " values, expected 3 or 4");
  }
  const int64_t pairs = rope.dims / 2;
  bool whole = true;
  for (size_t i = 0; i < 3; ++i) whole = whole && sections[i] >= (pairs - static_cast<int64_t>(i) + 2) / 3;
  if (whole) return absl::OkStatus();
  return keys.Unsupported(kSections, "is [", absl::StrJoin(sections, ", "), "], expected sections of time, height ",
                          "and width that leave none of ", pairs, " rotated pairs to a fourth position");
}

}  // namespace

absl::Status ReadDeltaNets(const KeyReader& keys, const Architecture& architecture, int64_t blocks,
                           HyperParameters& hyper) {
  ASSIGN_OR_RETURN(const std::vector<bool> recurrent, ReadRecurrentLayers(keys, hyper.layers.size(), blocks));
  if (std::find(recurrent.begin(), recurrent.end(), false) == recurrent.end()) {
    const size_t layers = recurrent.size();
    if (keys.Has(kRecurrentLayers)) {
      return keys.Unsupported(kRecurrentLayers, "leaves no attention in ", layers, " layers, expected one at least");
    }
    return keys.Unsupported(kInterval, "leaves no attention in ", layers, " layers, expected at most ", layers,
                            ", or more layers");
  }
  RETURN_IF_ERROR(CheckSections(keys, hyper.layers[0].attention.rope));
  ASSIGN_OR_RETURN(const DeltaNetSpec spec, ReadSizes(keys, architecture));
  for (size_t i = 0; i < recurrent.size(); ++i) {
    LayerSpec& layer = hyper.layers[i];
    if (!recurrent[i]) continue;
    layer.mixer = MixerKind::kDeltaNet;
    layer.attention = {};
    layer.delta_net = spec;
    layer.block_group = kNoBlockGroup;
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
