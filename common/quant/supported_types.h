#ifndef STAGECOACH_COMMON_QUANT_SUPPORTED_TYPES_H_
#define STAGECOACH_COMMON_QUANT_SUPPORTED_TYPES_H_

// The tensor types that kernels exist for, and their names.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

// Every supported type, in the order people know: floats first, then by bits.
absl::Span<const TensorType> SupportedTypes();

// "F32, F16, BF16, Q8_0, ...": for messages.
std::string SupportedTensorTypes();

// The supported type of this name, in any case ("q4_k"). kInvalidArgument with the list for another name.
absl::StatusOr<TensorType> ParseTensorType(absl::string_view name);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_SUPPORTED_TYPES_H_
