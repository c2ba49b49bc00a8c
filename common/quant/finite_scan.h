#ifndef STAGECOACH_COMMON_QUANT_FINITE_SCAN_H_
#define STAGECOACH_COMMON_QUANT_FINITE_SCAN_H_

#include <cstdint>
#include <optional>

#include "common/quant/tensor_type.h"

namespace stagecoach {

// The first of `count` blocks whose scale or minimum is an infinity or NaN; of a plain float type the first such
// element. Codes are integers, so other blocks decode to finite values. Any supported type. Reads only the scales of
// blocks.
std::optional<int64_t> FindNonFinite(TensorType type, const uint8_t* blocks, int64_t count);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_FINITE_SCAN_H_
