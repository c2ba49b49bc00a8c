#include "common/quant/supported_types.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr TensorType kSupportedTypes[] = {
    TensorType::kF32,   TensorType::kF16,    TensorType::kBF16,   TensorType::kQ8_0,     TensorType::kQ6_K,
    TensorType::kQ5_0,  TensorType::kQ5_1,   TensorType::kQ5_K,   TensorType::kQ4_0,     TensorType::kQ4_1,
    TensorType::kQ4_K,  TensorType::kIQ4_NL, TensorType::kIQ4_XS, TensorType::kMXFP4,    TensorType::kQ3_K,
    TensorType::kQ2_K,  TensorType::kQ2_0,   TensorType::kPQ2_0,  TensorType::kQ2_0_Oxi, TensorType::kTQ2_0,
    TensorType::kTQ1_0, TensorType::kQ1_0,
};

}  // namespace

absl::Span<const TensorType> SupportedTypes() { return kSupportedTypes; }

std::string SupportedTensorTypes() {
  std::string names;
  for (TensorType type : SupportedTypes()) absl::StrAppend(&names, names.empty() ? "" : ", ", GetTensorType(type).name);
  return names;
}

absl::StatusOr<TensorType> ParseTensorType(absl::string_view name) {
  for (TensorType type : SupportedTypes()) {
    if (absl::EqualsIgnoreCase(name, GetTensorType(type).name)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown tensor type '", name, "', expected one of ", SupportedTensorTypes()));
}

}  // namespace stagecoach
