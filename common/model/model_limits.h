#ifndef STAGECOACH_COMMON_MODEL_MODEL_LIMITS_H_
#define STAGECOACH_COMMON_MODEL_MODEL_LIMITS_H_

#include <cstdint>

namespace stagecoach {

// Bounds far above any model; they keep products of sizes far from overflow.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxContext = int64_t{1} << 30;
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = 1024;              // of a query, key or value
inline constexpr int64_t kMaxExperts = int64_t{1} << 12;  // what routing a row takes grows with its square

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_MODEL_LIMITS_H_
