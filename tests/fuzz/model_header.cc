#include "tests/fuzz/model_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_parser.h"
#include "common/gguf/gguf_value_type.h"
#include "common/model/architectures.h"
#include "common/model/hyper_parameters.h"
#include "common/model/model_description.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

constexpr int kAttempts = 64;

// Keys below an architecture's name that a description looks at.
constexpr const char* kNames[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "nextn_predict_layers",
    "leading_dense_block_count",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "final_logit_softcapping",
    "attn_logit_softcapping",
    "attention.causal",
    "attention.scale",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "attention.recurrent_layers",
    "full_attention_interval",
    "rope.dimension_sections",
    "ssm.conv_kernel",
    "ssm.state_size",
    "ssm.group_count",
    "ssm.time_step_rank",
    "ssm.inner_size",
    "ssm.v_head_reordered",
};

constexpr double kNumbers[] = {0,
                               -0.0,
                               1,
                               -1,
                               0.5,
                               1e-30,
                               1e30,
                               1e-45,
                               3e38,
                               1e300,
                               1000,
                               1e-5,
                               std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::denorm_min()};

class HeaderBytes : public ByteSource {
 public:
  explicit HeaderBytes(absl::string_view header) : header_(header) {}

  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    constexpr uint64_t kReadable = HeaderReader::kChunkBytes;  // of the beginning, and of every tensor's
    if (out.size() > kReadable) return absl::DataLossError("that much is not there");
    const size_t begin = std::min<uint64_t>(offset, header_.size());
    const size_t bytes = std::min(header_.size() - begin, out.size());
    std::memcpy(out.data(), header_.data() + begin, bytes);
    std::memset(out.data() + bytes, 0, out.size() - bytes);
    return absl::OkStatus();
  }

 private:
  const absl::string_view header_;
};

// Ends a header that goes on after what can be read at once.
class ShortHeader : public HeaderBytes {
 public:
  using HeaderBytes::HeaderBytes;

  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    if (offset > 0) return absl::DataLossError("that much is not there");
    return HeaderBytes::Read(offset, out);
  }
};

size_t Below(size_t end, std::minstd_rand* random) { return (*random)() % end; }

void AppendText(absl::string_view text, std::string* out) {
  AppendNumber(uint64_t{text.size()}, out);
  out->append(text.data(), text.size());
}

// As values of the type are stored.
template <typename T>
void AppendValue(GgufValueType type, const T& value, std::string* out) {
  if constexpr (std::is_same_v<T, std::string>) {
    AppendText(value, out);
  } else if constexpr (std::is_same_v<T, bool>) {
    AppendNumber(static_cast<uint8_t>(value), out);
  } else {
    GgufTypes::VisitNumber(type, [&](auto number) { AppendNumber(static_cast<decltype(number)>(value), out); });
  }
}

// With its type in front.
struct ValueBytes {
  std::string* out;

  template <typename T>
  void operator()(const T& value) const {
    GgufValueType type = kGgufTypeOf<T>;
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value <= std::numeric_limits<uint32_t>::max()) type = GgufValueType::kU32;
    }
    AppendNumber(static_cast<uint32_t>(type), out);
    AppendValue(type, value, out);
  }
  void operator()(const GgufArray& array) const {
    AppendNumber(static_cast<uint32_t>(GgufValueType::kArray), out);
    AppendNumber(array.element_type, out);
    AppendNumber(uint64_t{array.size()}, out);
    const auto append = [&](const auto& values) {
      using Element = typename std::decay_t<decltype(values)>::value_type;
      for (size_t i = 0; i < values.size(); ++i) {
        AppendValue(static_cast<GgufValueType>(array.element_type), static_cast<const Element&>(values[i]), out);
      }
    };
    std::visit(append, array.values);
  }
};

// What a tensor takes in a file that is long enough for any; 0 of what no file can hold.
uint64_t BytesOf(const GgufTensor& tensor) {
  const TensorTypeInfo* type = FindTensorType(tensor.type_id);
  if (type == nullptr) return 0;
  uint64_t bytes = type->block_bytes;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    const auto size = static_cast<uint64_t>(tensor.dims[d]);
    if (__builtin_mul_overflow(bytes, d == 0 ? size / type->block_elements : size, &bytes)) return 0;
  }
  return bytes <= kLongestFile ? bytes : 0;
}

// The text between two others; empty where they are not there.
absl::string_view Between(absl::string_view text, absl::string_view before, absl::string_view after) {
  const size_t begin = text.find(before);
  if (begin == absl::string_view::npos) return {};
  const absl::string_view rest = text.substr(begin + before.size());
  return rest.substr(0, rest.find(after));
}

// "54, 8"; empty of what is none.
std::vector<int64_t> Shape(absl::string_view text) {
  std::vector<int64_t> dims;
  for (const absl::string_view part : absl::StrSplit(text, ", ")) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) return {};
    dims.push_back(size);
  }
  return dims;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufFile>> OpenHeader(absl::string_view header, uint64_t file_bytes) {
  ASSIGN_OR_RETURN(const GgufHeader parsed, ParseGgufHeader(ShortHeader(header), "header", file_bytes));
  std::vector<GgufSource> sources(1);
  sources[0].path = "header";
  sources[0].fingerprint = {.size_bytes = file_bytes, .header_hash = parsed.header_hash};
  sources[0].bytes = std::make_unique<HeaderBytes>(header);
  return GgufFile::OpenSources(std::move(sources));
}

absl::StatusOr<ModelHeader> ModelHeader::Read(absl::string_view bytes) {
  ASSIGN_OR_RETURN(GgufHeader parsed, ParseGgufHeader(ShortHeader(bytes), "header", kLongestFile));
  ModelHeader header;
  header.keys_ = parsed.metadata.entries();
  header.tensors_ = std::move(parsed.tensors);
  return header;
}

std::string ModelHeader::Bytes() const {
  std::string out;
  AppendNumber(kGgufMagic, &out);
  AppendNumber(uint32_t{3}, &out);
  AppendNumber(uint64_t{tensors_.size()}, &out);
  AppendNumber(uint64_t{keys_.size()}, &out);
  for (const auto& [key, value] : keys_) {
    AppendText(key, &out);
    std::visit(ValueBytes{&out}, value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors_) {
    AppendText(tensor.name, &out);
    AppendNumber(static_cast<uint32_t>(tensor.dims.size()), &out);
    for (const int64_t size : tensor.dims) AppendNumber(size, &out);
    AppendNumber(tensor.type_id, &out);
    AppendNumber(offset, &out);
    constexpr uint64_t kAlignment = 4096;  // a multiple of most that a header may ask for
    offset += (BytesOf(tensor) + kAlignment - 1) / kAlignment * kAlignment;
    if (offset > kLongestFile) offset = 0;
  }
  return out;
}

std::string ModelHeader::Architecture() const {
  for (const auto& [key, value] : keys_) {
    const auto* name = std::get_if<std::string>(&value);
    if (key == "general.architecture" && name != nullptr) return *name;
  }
  return "llama";
}

// Limits, powers of two and other keys' values, or one beside them.
int64_t ModelHeader::IntegerValue(std::minstd_rand* random) const {
  constexpr int64_t kLimits[] = {kMaxLayers, kMaxContext, kMaxWidth, kMaxHeads, kMaxHeadDim, kMaxExperts};
  const auto beside = static_cast<int64_t>(Below(3, random)) - 1;
  switch (Below(4, random)) {
    case 0: return kLimits[Below(std::size(kLimits), random)] + beside;
    case 1: return (int64_t{1} << Below(62, random)) + beside;
    case 2:
      if (!keys_.empty()) {
        const auto* other = std::get_if<uint64_t>(&keys_[Below(keys_.size(), random)].second);
        if (other != nullptr && *other <= uint64_t{kMaxContext}) return static_cast<int64_t>(*other) + beside;
      }
      break;
    default: break;
  }
  return static_cast<int64_t>(Below(64, random));
}

GgufValue ModelHeader::Value(std::minstd_rand* random) const {
  const int64_t integer = IntegerValue(random);
  switch (Below(12, random)) {
    case 0: return integer - static_cast<int64_t>(Below(100, random));
    case 1: return kNumbers[Below(std::size(kNumbers), random)];
    case 2: return Below(2, random) == 0;
    case 3: return std::string(Below(2, random) == 0 ? "yarn" : "linear");
    case 4: {
      GgufArray array;
      array.element_type = static_cast<uint32_t>(GgufValueType::kU32);
      array.values = std::vector<uint64_t>(Below(5, random), static_cast<uint64_t>(integer) & 0xffffffff);
      return array;
    }
    case 5: {
      GgufArray array;
      array.element_type = static_cast<uint32_t>(GgufValueType::kBool);
      array.values = std::vector<bool>(Below(5, random), Below(2, random) == 0);
      return array;
    }
    default: return static_cast<uint64_t>(integer);
  }
}

void ModelHeader::Change(std::minstd_rand* random) {
  switch (Below(8, random)) {
    case 0: return ChangeArchitecture(random);
    case 1:
    case 2: return ChangeTensor(random);
    default: return ChangeKey(random);
  }
}

void ModelHeader::ChangeKey(std::minstd_rand* random) {
  if (keys_.empty() || Below(4, random) == 0) {
    const std::string key = absl::StrCat(Architecture(), ".", kNames[Below(std::size(kNames), random)]);
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
    keys_.emplace_back(key, Value(random));
    return;
  }
  const size_t chosen = Below(keys_.size(), random);
  if (Below(8, random) == 0) {
    keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(chosen));
    return;
  }
  GgufValue& value = keys_[chosen].second;
  const bool keeps_type = Below(4, random) != 0;
  if (keeps_type && std::holds_alternative<uint64_t>(value)) {
    value = static_cast<uint64_t>(IntegerValue(random));
  } else if (keeps_type && std::holds_alternative<double>(value)) {
    value = kNumbers[Below(std::size(kNumbers), random)];
  } else {
    value = Value(random);
  }
}

void ModelHeader::ChangeTensor(std::minstd_rand* random) {
  if (tensors_.empty()) return;
  const size_t chosen = Below(tensors_.size(), random);
  GgufTensor& tensor = tensors_[chosen];
  const absl::Span<const TensorType> types = SupportedTypes();
  switch (Below(4, random)) {
    case 0: tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(chosen)); break;
    case 1: tensor.type_id = static_cast<uint32_t>(types[Below(types.size(), random)]) & 0xffff; break;
    case 2: {
      const size_t d = Below(tensor.dims.size(), random);
      tensor.dims[d] = std::max<int64_t>(1, IntegerValue(random));
      break;
    }
    default: {
      GgufTensor more = tensor;
      more.name = absl::StrCat("blk.", Below(4, random), ".", Between(absl::StrCat(tensor.name, "#"), "blk.0.", "#"));
      tensors_.push_back(std::move(more));
    }
  }
}

void ModelHeader::ChangeArchitecture(std::minstd_rand* random) {
  const std::string names = SupportedArchitectures(), before = Architecture() + ".";
  const std::vector<std::string> all = absl::StrSplit(names, ", ");
  const std::string& name = all[Below(all.size(), random)];
  for (auto& [key, value] : keys_) {
    if (key == "general.architecture") value = name;
    if (absl::StartsWith(key, before)) key = absl::StrCat(name, ".", key.substr(before.size()));
  }
}

bool ModelHeader::Heed(absl::string_view refusal, std::minstd_rand* random) {
  const std::string name(Between(refusal, "tensor '", "'"));
  if (name.empty()) return false;
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const GgufTensor& tensor) { return tensor.name == name; });
  if (absl::StrContains(refusal, "is not part of") && found != tensors_.end()) {
    tensors_.erase(found);
    return true;
  }
  std::vector<int64_t> dims = Shape(Between(refusal, "expected one of shape [", "]"));
  if (dims.empty()) dims = Shape(Between(refusal, "expected [", "]"));
  if (dims.empty()) return false;
  GgufTensor& tensor = found != tensors_.end() ? *found : tensors_.emplace_back();
  tensor.name = name;
  tensor.dims = dims;
  const absl::Span<const TensorType> types = SupportedTypes();
  const TensorType type = types[Below(types.size(), random)];
  const bool plain = dims.size() == 1 || Below(2, random) == 0 || absl::EndsWith(name, ".bias") ||
                     dims[0] % GetTensorType(type).block_elements != 0;
  tensor.type_id = plain ? static_cast<uint32_t>(TensorType::kF32) : static_cast<uint32_t>(type) & 0xffff;
  return true;
}

void ModelHeader::Repair(std::minstd_rand* random) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string bytes = Bytes();
    absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenHeader(bytes, kLongestFile);
    if (!file.ok()) return;
    const auto model = DescribeModel(std::shared_ptr<const GgufFile>(*std::move(file)));
    if (model.ok() || !Heed(model.status().message(), random)) return;
  }
}

}  // namespace stagecoach
