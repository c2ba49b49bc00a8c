#ifndef STAGECOACH_COMMON_JOB_KV_TYPE_H_
#define STAGECOACH_COMMON_JOB_KV_TYPE_H_

// The types of the KV cache; their names are in job_choices.h. Read by every unit of kernels, so it includes little.

#include <cstdint>

namespace stagecoach {

// How keys and values are stored.
enum class KvType { kF32, kF16, kBF16, kQ8_0 };

inline constexpr int kKvGroup = 32;  // dimensions of a Q8_0 K or V that share a scale, a float
// Bytes of `values` stored keys or values; of Q8_0 a multiple of kKvGroup.
constexpr int64_t KvBytes(KvType type, int64_t values) {
  if (type == KvType::kQ8_0) return values / kKvGroup * (int64_t{sizeof(float)} + kKvGroup);
  return values * (type == KvType::kF32 ? 4 : 2);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_KV_TYPE_H_
