#include "tests/testing/reference/file_reader.h"

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/quant/tensor_type.h"

namespace stagecoach::testing::reference {

FileReader::FileReader(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
  const auto architecture = file_->metadata().GetString("general.architecture");
  if (!architecture.ok()) Fail(architecture.status().ToString());
  architecture_ = *architecture;
}

void FileReader::Fail(const std::string& what) const {
  std::fprintf(stderr, "reference: '%s': %s\n", file_->path().c_str(), what.c_str());
  std::abort();
}

bool FileReader::HasKey(const std::string& name) const { return file_->metadata().Has(architecture_ + "." + name); }

int64_t FileReader::Int(const std::string& name, std::optional<int64_t> fallback) const {
  if (!HasKey(name) && fallback.has_value()) return *fallback;
  const auto value = file_->metadata().GetInt(architecture_ + "." + name);
  if (!value.ok()) Fail(value.status().ToString());
  return *value;
}

double FileReader::Float(const std::string& name, std::optional<double> fallback) const {
  if (!HasKey(name) && fallback.has_value()) return *fallback;
  const auto value = file_->metadata().GetFloat(architecture_ + "." + name);
  if (!value.ok()) Fail(value.status().ToString());
  return *value;
}

bool FileReader::Bool(const std::string& name, bool fallback) const {
  const auto value = file_->metadata().GetBoolOr(architecture_ + "." + name, fallback);
  if (!value.ok()) Fail(value.status().ToString());
  return *value;
}

std::string FileReader::String(const std::string& name, const std::string& fallback) const {
  const auto value = file_->metadata().GetStringOr(architecture_ + "." + name, fallback);
  if (!value.ok()) Fail(value.status().ToString());
  return *value;
}

int64_t FileReader::IntOfLayer(const std::string& name, int64_t layer, std::optional<int64_t> fallback) const {
  const std::vector<int64_t> values = Array(name);
  if (values.empty()) return Int(name, fallback);
  if (static_cast<size_t>(layer) >= values.size()) Fail(absl::StrCat("key '", name, "' has no value of layer ", layer));
  return values[static_cast<size_t>(layer)];
}

std::vector<int64_t> FileReader::Array(const std::string& name) const {
  const GgufValue* value = file_->metadata().Find(architecture_ + "." + name);
  if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) return {};
  std::vector<int64_t> array;
  std::visit(
      [&](const auto& elements) {
        for (size_t i = 0; i < elements.size(); ++i) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(elements)>, std::vector<std::string>>)
            array.push_back(static_cast<int64_t>(elements[i]));
        }
      },
      std::get<GgufArray>(*value).values);
  return array;
}

bool FileReader::HasTensor(const std::string& name) const { return file_->FindTensor(name) != nullptr; }

const GgufTensor& FileReader::Find(const std::string& name, size_t dims) const {
  const GgufTensor* tensor = file_->FindTensor(name);
  if (tensor == nullptr) Fail(absl::StrCat("no tensor '", name, "'"));
  if (tensor->dims.size() != dims)
    Fail(absl::StrCat("tensor '", name, "' has ", tensor->dims.size(), " dimensions, not ", dims));
  return *tensor;
}

Vector FileReader::Values(const GgufTensor& tensor) const {
  std::vector<uint8_t> raw(tensor.bytes);
  CHECK(file_->Read(tensor, 0, absl::MakeSpan(raw)).ok());
  const TensorType type = static_cast<TensorType>(tensor.type_id);
  const size_t row_bytes = RowBytes(type, tensor.cols());
  std::vector<float> row(static_cast<size_t>(tensor.cols()));
  Vector values;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    DequantizeRow(type, raw.data() + static_cast<size_t>(r) * row_bytes, tensor.cols(), row.data());
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

Vector FileReader::ReadVector(const std::string& name) const {
  return HasTensor(name) ? Values(Find(name, 1)) : Vector();
}

Matrix FileReader::ReadMatrix(const std::string& name) const {
  const GgufTensor& tensor = Find(name, 2);
  return {.rows = tensor.dims[1], .cols = tensor.dims[0], .values = Values(tensor)};
}

std::vector<Matrix> FileReader::ReadStack(const std::string& name) const {
  const GgufTensor& tensor = Find(name, 3);
  const Matrix all = {.rows = tensor.rows(), .cols = tensor.dims[0], .values = Values(tensor)};
  std::vector<Matrix> stack;
  for (int64_t i = 0; i < tensor.dims[2]; ++i) stack.push_back(Rows(all, i * tensor.dims[1], tensor.dims[1]));
  return stack;
}

Linear FileReader::ReadLinear(const std::string& name) const {
  return {.weight = ReadMatrix(name + ".weight"), .bias = ReadVector(name + ".bias")};
}

Matrix Rows(const Matrix& matrix, int64_t begin, int64_t count) {
  CHECK_LE(begin + count, matrix.rows);
  const auto first = matrix.values.begin() + begin * matrix.cols;
  return {.rows = count, .cols = matrix.cols, .values = Vector(first, first + count * matrix.cols)};
}

}  // namespace stagecoach::testing::reference
