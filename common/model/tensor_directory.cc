#include "common/model/tensor_directory.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/architectures.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

bool SameShape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  for (size_t d = 0; d < std::max(a.size(), b.size()); ++d) {
    if ((d < a.size() ? a[d] : 1) != (d < b.size() ? b[d] : 1)) return false;
  }
  return true;
}

}  // namespace

template <typename... Parts>
absl::Status TensorDirectory::Invalid(const Parts&... parts) const {
  return absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': ", parts...));
}

absl::Status TensorDirectory::Vector(const std::string& name, int64_t size, bool required, const GgufTensor*& out) {
  RETURN_IF_ERROR(Find(name, {size}, required, out));
  return CheckVectorType(name, out);
}

absl::Status TensorDirectory::Vectors(const std::string& name, int64_t count, int64_t size, bool required,
                                      const GgufTensor*& out) {
  RETURN_IF_ERROR(Find(name, {size, count}, required, out));
  return CheckVectorType(name, out);
}

absl::Status TensorDirectory::Matrix(const std::string& name, int64_t rows, int64_t cols, bool required,
                                     const GgufTensor*& out) {
  return Find(name, {cols, rows}, required, out);
}

absl::Status TensorDirectory::Matrices(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                       bool required, const GgufTensor*& out) {
  return Find(name, {cols, rows, count}, required, out);
}

absl::Status TensorDirectory::CheckVectorType(const std::string& name, const GgufTensor* tensor) const {
  if (tensor == nullptr) return absl::OkStatus();
  const auto type = static_cast<TensorType>(tensor->type_id);
  if (type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16) return absl::OkStatus();
  return Invalid("tensor '", name, "' has type ", FindTensorType(tensor->type_id)->name, ", expected F32, F16 or BF16");
}

absl::Status TensorDirectory::CheckAllKnown(const HyperParameters& hyper) const {
  // Factors of positions are in files of models that have no positions, too.
  const bool may_have_factors = FindArchitecture(hyper.architecture)->rope_factors;
  for (const GgufTensor& tensor : file_.tensors()) {
    const bool unused_by_design = absl::EndsWith(tensor.name, ".attn_rot_embd.weight") ||
                                  (may_have_factors && tensor.name == "rope_freqs.weight");
    if (unused_by_design || used_.contains(&tensor)) continue;
    const int64_t layer = LayerOfTensor(tensor.name);
    if (layer >= hyper.layer_count() && layer < hyper.layer_count() + hyper.skipped_layers) {
      if (file_.FindTensor(absl::StrCat("blk.", layer, ".nextn.eh_proj.weight")) != nullptr) continue;
      return Invalid("key '", hyper.architecture, ".nextn_predict_layers' is ", hyper.skipped_layers, ", so block ",
                     layer, " would draft only, but it has '", tensor.name, "' and no 'nextn.eh_proj.weight'");
    }
    return absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", tensor.name,
                                                 "' is not part of a supported ", hyper.architecture, " model of ",
                                                 hyper.layer_count(), " layers; computing without it would be wrong"));
  }
  return absl::OkStatus();
}

absl::Status TensorDirectory::Find(const std::string& name, const Shape& expected, bool required,
                                   const GgufTensor*& out) {
  out = file_.FindTensor(name);
  if (out == nullptr) {
    if (!required) return absl::OkStatus();
    return Invalid("tensor '", name, "' is missing, expected one of shape ", ShapeText(expected));
  }
  if (!SameShape(out->dims, expected)) {
    return Invalid("tensor '", name, "' has shape ", ShapeText(out->dims), ", expected ", ShapeText(expected));
  }
  const TensorTypeInfo* type = FindTensorType(out->type_id);
  if (!type->supported) {
    return absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", name, "' has type ", type->name,
                                                 "; supported types are ", SupportedTensorTypes()));
  }
  used_.insert(out);
  return absl::OkStatus();
}

}  // namespace stagecoach
