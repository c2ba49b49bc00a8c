#include "common/gguf/dummy_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/gguf/gguf_value_type.h"
#include "common/gguf/model_shapes.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kScheme = "dummy://";
constexpr absl::string_view kLayersKey = ":layers=";
constexpr absl::string_view kMixedType = "q4_k_m";
constexpr size_t kBankBytes = size_t{2} << 20;  // stays in a cache, and holds thousands of different rows

uint64_t HashOf(absl::string_view text) {
  return HashBytes(kHashStart, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// What the weights are stored as.
struct WeightType {
  TensorType type = TensorType::kF32;
  bool mixed = false;  // Q4_K_M
};

// What quantisers write instead of a type whose blocks a row does not fill.
TensorType Fallback(WeightType weights, TensorType type) {
  if (!weights.mixed) return TensorType::kQ8_0;
  return type == TensorType::kQ4_K   ? TensorType::kQ5_0
         : type == TensorType::kQ5_K ? TensorType::kQ5_1
                                     : TensorType::kQ8_0;
}

// general.file_type, where there is a number for it.
struct FileType {
  TensorType type;
  uint32_t number;
};
constexpr uint32_t kMixedFileType = 15, kMxfp4ExpertsFileType = 38;
constexpr FileType kFileTypes[] = {
    {TensorType::kF32, 0},     {TensorType::kF16, 1},     {TensorType::kQ4_0, 2},  {TensorType::kQ4_1, 3},
    {TensorType::kQ8_0, 7},    {TensorType::kQ5_0, 8},    {TensorType::kQ5_1, 9},  {TensorType::kQ2_K, 10},
    {TensorType::kQ3_K, 12},   {TensorType::kQ4_K, 14},   {TensorType::kQ5_K, 17}, {TensorType::kQ6_K, 18},
    {TensorType::kIQ4_NL, 25}, {TensorType::kIQ4_XS, 30}, {TensorType::kBF16, 32}, {TensorType::kTQ1_0, 36},
    {TensorType::kTQ2_0, 37},  {TensorType::kQ1_0, 40},   {TensorType::kQ2_0, 41},
};

// The number behind kLayersKey, digits alone.
absl::StatusOr<int64_t> ParseLayers(absl::string_view text) {
  constexpr IntegerRange kRange = {1, kMostDummyLayers};
  int64_t layers = 0;
  const bool digits = text.find_first_not_of("0123456789") == absl::string_view::npos;
  if (digits && absl::SimpleAtoi(text, &layers) && Contains(kRange, layers)) return layers;
  return absl::InvalidArgumentError(absl::StrCat("the number of layers is '", text, "', ", Expected(kRange)));
}

// `given`: a shape's name, and kLayersKey and a number behind it for other layers than it has.
absl::StatusOr<ModelShape> FindShape(absl::string_view given) {
  const std::vector<absl::string_view> parts = absl::StrSplit(given, absl::MaxSplits(absl::ByString(kLayersKey), 1));
  const absl::string_view name = parts[0];
  for (ModelShape shape : ModelShapes()) {
    if (name != shape.name) continue;
    if (parts.size() > 1) {
      ASSIGN_OR_RETURN(shape.layers, ParseLayers(parts[1]));
      shape.nextn = 0;  // who cuts a model wants its layers
    }
    return shape;
  }
  return absl::InvalidArgumentError(absl::StrCat("no shape is called '", name, "'; shapes are ", DummyModelShapes(),
                                                 "; types are ", DummyModelTypes()));
}

absl::StatusOr<WeightType> FindType(absl::string_view name) {
  if (name == kMixedType) return WeightType{TensorType::kQ4_K, true};
  const absl::StatusOr<TensorType> type = ParseTensorType(name);
  if (type.ok()) return WeightType{*type, false};
  return absl::InvalidArgumentError(absl::StrCat("no type is called '", name, "'; types are ", DummyModelTypes(),
                                                 "; shapes are ", DummyModelShapes()));
}

bool IsBias(const GgufTensor& tensor) { return absl::EndsWith(tensor.name, ".bias"); }

// The range of tensors that are neither matrices nor norms: large enough to show in what a model computes, too small to
// drown the rest. A selection bias is small beside the differences of the experts' scores, so every expert is chosen. A
// gate of one row has the size of a matrix's rows.
float AmplitudeOf(const GgufTensor& tensor) {
  if (absl::EndsWith(tensor.name, "exp_probs_b.bias")) return 0.01f;
  if (absl::EndsWith(tensor.name, "_shexp.weight")) return std::sqrt(3.0f / static_cast<float>(tensor.cols()));
  return IsBias(tensor) ? 0.1f : 1.0f;
}

// The layers whose attn_v and ffn_down llama.cpp's Q4_K_M stores in Q6_K: outer eighths, every third between.
bool HasMoreBits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

}  // namespace

bool IsDummyModelPath(absl::string_view path) { return absl::StartsWith(path, kScheme); }

std::string DummyModelPath(absl::string_view shape, absl::string_view type) {
  return absl::AsciiStrToLower(absl::StrCat(kScheme, shape, "/", type));
}

std::string DummyModelCutTo(absl::string_view shape, int64_t layers) { return absl::StrCat(shape, kLayersKey, layers); }

std::string DummyModelShapes() {
  std::string names;
  for (const ModelShape& shape : ModelShapes()) {
    absl::StrAppend(&names, shape.name, ", ");
  }
  return absl::StrCat(names, "or any of them as NAME", kLayersKey, "N");
}

std::string DummyModelTypes() {
  std::string names;
  for (TensorType type : SupportedTypes()) {
    absl::StrAppend(&names, absl::AsciiStrToLower(GetTensorType(type).name), ", ");
  }
  return absl::StrCat(names, kMixedType);
}

// Random blocks: any run of whole blocks is a valid row.
struct DummyModel::Bank {
  Bank(TensorType type, int64_t cols) : type(type), cols(cols), row_bytes(RowBytes(type, cols)) {}

  const std::vector<uint8_t>& Bytes() const {
    std::call_once(made, [this] {
      const TensorTypeInfo& info = GetTensorType(type);
      const int64_t blocks = static_cast<int64_t>(std::max(kBankBytes, 8 * row_bytes) / info.block_bytes);
      bytes.resize(static_cast<size_t>(blocks) * info.block_bytes);
      FillRandomRow(type, blocks * info.block_elements, MixBits(static_cast<uint64_t>(cols)),
                    1.0f / std::sqrt(static_cast<float>(cols)), bytes.data());
    });
    return bytes;
  }

  const TensorType type;
  const int64_t cols;
  const size_t row_bytes;
  mutable std::once_flag made;
  mutable std::vector<uint8_t> bytes;  // made by the first reader
};

// Writes the header of a shape's file.
class DummyModel::Builder {
 public:
  // `name`: of the shape, with its number of layers where that is not its own.
  Builder(const ModelShape& shape, absl::string_view name, WeightType type, DummyModel* model)
      : shape_(shape), name_(name), type_(type), model_(*model), header_(model->header_) {}

  void Build() {
    header_.version = 3;
    header_.header_hash = HashOf(model_.path_);
    header_.metadata.path_ = model_.path_;
    AddMetadata();
    for (ShapeTensor& tensor : ShapeTensors(shape_)) Add(std::move(tensor));
  }

 private:
  void Set(const std::string& key, GgufValue value) {
    header_.metadata.index_.emplace(key, header_.metadata.entries_.size());
    header_.metadata.entries_.emplace_back(key, std::move(value));
  }

  void AddMetadata() {
    for (auto& [key, value] : ShapeKeys(shape_)) Set(key, std::move(value));
    Set("general.name", absl::StrCat(name_, " (random weights)"));
    if (type_.mixed) {
      Set("general.file_type", uint64_t{kMixedFileType});
    } else if (HasMxfp4Experts()) {
      Set("general.file_type", uint64_t{kMxfp4ExpertsFileType});
    } else {
      for (const FileType& file_type : kFileTypes) {
        if (file_type.type == type_.type) Set("general.file_type", uint64_t{file_type.number});
      }
    }
    Set("tokenizer.ggml.model", std::string("no_vocab"));
  }

  // Only experts are published in MXFP4; what is around them has more bits.
  bool HasMxfp4Experts() const { return type_.type == TensorType::kMXFP4 && shape_.experts.count > 0; }

  TensorType TypeOf(const ShapeTensor& tensor) const {
    if (tensor.kind == ShapeTensorKind::kFloats) return TensorType::kF32;
    if (HasMxfp4Experts() && !tensor.experts) return TensorType::kQ8_0;
    if (!type_.mixed) return type_.type;
    switch (tensor.kind) {
      case ShapeTensorKind::kHead: return TensorType::kQ6_K;
      case ShapeTensorKind::kFusedQkv: return TensorType::kQ5_K;
      case ShapeTensorKind::kMoreBits:
        return HasMoreBits(tensor.layer, shape_.blocks()) ? TensorType::kQ6_K : type_.type;
      default: return type_.type;
    }
  }

  void Add(ShapeTensor shape_tensor) {
    const int64_t cols = shape_tensor.dims[0];
    TensorType type = TypeOf(shape_tensor);
    if (cols % GetTensorType(type).block_elements != 0) type = Fallback(type_, type);
    GgufTensor tensor;
    tensor.name = std::move(shape_tensor.name);
    tensor.dims = std::move(shape_tensor.dims);
    tensor.type_id = static_cast<uint32_t>(type);
    tensor.bytes = RowBytes(type, tensor.cols()) * static_cast<uint64_t>(tensor.rows());
    tensor.file_offset = next_offset_;
    next_offset_ += RoundUp(tensor.bytes, kGgufDefaultAlignment);
    if (tensor.dims.size() > 1 && !IsBias(tensor) && model_.BankOf(tensor) == nullptr) {
      model_.banks_.push_back(std::make_unique<Bank>(type, cols));
    }
    header_.tensors.push_back(std::move(tensor));
  }

  const ModelShape& shape_;
  const absl::string_view name_;
  const WeightType type_;
  DummyModel& model_;
  GgufHeader& header_;
  uint64_t next_offset_ = 0;
};

DummyModel::DummyModel() = default;
DummyModel::~DummyModel() = default;

absl::StatusOr<std::unique_ptr<DummyModel>> DummyModel::Create(const std::string& path) {
  CHECK(IsDummyModelPath(path));
  std::unique_ptr<DummyModel> model(new DummyModel);
  model->path_ = absl::AsciiStrToLower(path);
  const std::vector<absl::string_view> parts = absl::StrSplit(absl::StripPrefix(model->path_, kScheme), '/');
  if (parts.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': expected ", kScheme, "<shape>/<type>; shapes are ",
                                                   DummyModelShapes(), "; types are ", DummyModelTypes()));
  }
  const absl::StatusOr<ModelShape> shape = FindShape(parts[0]);
  const absl::StatusOr<WeightType> type = FindType(parts[1]);
  for (const absl::Status& status : {shape.status(), type.status()}) {
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("'", path, "': ", status.message()));
  }
  Builder(*shape, parts[0], *type, model.get()).Build();
  return model;
}

FileFingerprint DummyModel::fingerprint() const {
  FileFingerprint fingerprint;
  for (const GgufTensor& tensor : header_.tensors) fingerprint.size_bytes += tensor.bytes;
  fingerprint.header_hash = header_.header_hash;
  return fingerprint;
}

const DummyModel::Bank* DummyModel::BankOf(const GgufTensor& tensor) const {
  for (const auto& bank : banks_) {
    if (static_cast<uint32_t>(bank->type) == tensor.type_id && bank->cols == tensor.cols()) return bank.get();
  }
  return nullptr;
}

void DummyModel::ReadFloats(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const {
  const bool norm = absl::EndsWith(tensor.name, "norm.weight");
  const bool decay = absl::EndsWith(tensor.name, ".ssm_a");  // what a state forgets: none may grow
  const float amplitude = AmplitudeOf(tensor);
  const uint64_t seed = HashOf(tensor.name);
  for (size_t done = 0; done < out.size();) {
    const uint64_t element = (offset + done) / sizeof(float);
    const size_t within = (offset + done) % sizeof(float);
    float value = norm ? 1.0f : amplitude * static_cast<float>(2 * UniformAt(seed, element) - 1);
    if (decay) value = -std::max(0.01f, std::fabs(value));
    uint8_t bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    const size_t part = std::min(sizeof(value) - within, out.size() - done);
    std::memcpy(out.data() + done, bytes + within, part);
    done += part;
  }
}

void DummyModel::Read(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const {
  if (tensor.dims.size() == 1 || IsBias(tensor)) return ReadFloats(tensor, offset, out);
  const Bank* found = BankOf(tensor);
  CHECK(found != nullptr);
  const Bank& bank = *found;
  const std::vector<uint8_t>& bytes = bank.Bytes();
  const size_t block_bytes = GetTensorType(bank.type).block_bytes;
  const uint64_t starts = (bytes.size() - bank.row_bytes) / block_bytes + 1;
  const uint64_t seed = HashOf(tensor.name);
  for (size_t done = 0; done < out.size();) {
    const uint64_t row = (offset + done) / bank.row_bytes;
    const size_t within = (offset + done) % bank.row_bytes;
    const size_t part = std::min(bank.row_bytes - within, out.size() - done);
    const size_t start = MixBits(seed + row * 0x9e3779b97f4a7c15ull) % starts * block_bytes;
    std::memcpy(out.data() + done, bytes.data() + start + within, part);
    done += part;
  }
}

}  // namespace stagecoach
