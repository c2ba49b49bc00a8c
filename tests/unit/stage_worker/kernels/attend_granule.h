#ifndef STAGECOACH_TESTS_UNIT_KERNELS_ATTEND_GRANULE_H_
#define STAGECOACH_TESTS_UNIT_KERNELS_ATTEND_GRANULE_H_

// What the tests of attention attend to, and what comes of it.

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/job/job_choices.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {

inline constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};

// Whether heads of this size can be stored as this type.
inline bool Fits(KvType type, int head_dim) { return type != KvType::kQ8_0 || head_dim % kKvGroup == 0; }

// One granule of a cache: positions [first, written) with random K and V, NaN in all other places. The tiles that lie
// wholly before `first` are nowhere.
struct Granule {
  KvType type;
  int head_dim, value_dim;
  std::vector<float> k, v;  // [written, head_dim] and [written, value_dim] as given to store_k and store_v
  AlignedBuffer k_bytes, v_bytes;
  std::vector<const uint8_t*> k_tiles, v_tiles;
  int written;

  Granule(const Kernels& kernels, KvType t, int h, int w, uint64_t seed, double range = 2.0)
      : Granule(kernels, t, h, h, 0, w, seed, range) {}
  Granule(const Kernels& kernels, KvType t, int h, int value, int first, int w, uint64_t seed, double range = 2.0)
      : type(t),
        head_dim(h),
        value_dim(value),
        k(RandomFloats(seed, w * h, range)),
        v(RandomFloats(seed + 1, w * value, range)),
        k_bytes(kTilePositions * KvTileBytes(t, h)),
        v_bytes(kTilePositions * KvTileBytes(t, value)),
        written(w) {
    std::memset(k_bytes.data(), 0xff, k_bytes.size());
    std::memset(v_bytes.data(), 0xff, v_bytes.size());
    for (int position = 0; position < written; position += kTilePositions) {
      const bool somewhere = position + kTilePositions > first;
      k_tiles.push_back(somewhere ? KTile(position) : nullptr);
      v_tiles.push_back(somewhere ? VTile(position) : nullptr);
    }
    for (int j = first; j < written; ++j) Store(kernels, j, &k[j * head_dim], &v[j * value_dim]);
  }
  void Store(const Kernels& kernels, int position, const float* one_k, const float* one_v) {
    kernels.store_k(type, one_k, head_dim, position % kTilePositions, KTile(position));
    kernels.store_v(type, one_v, value_dim, position % kTilePositions, VTile(position));
  }
  uint8_t* KTile(int position) { return k_bytes.data() + position / kTilePositions * KvTileBytes(type, head_dim); }
  uint8_t* VTile(int position) { return v_bytes.data() + position / kTilePositions * KvTileBytes(type, value_dim); }
  AttentionSpan span() const { return {type, head_dim, value_dim, k_tiles.data(), v_tiles.data(), written}; }
};

struct State {
  std::vector<float> max, sum, acc;
  State(int columns, int value_dim)
      : max(columns, -std::numeric_limits<float>::infinity()), sum(columns, 0.0f), acc(columns * value_dim, 0.0f) {}
  AttentionState view() { return {max.data(), sum.data(), acc.data()}; }
};

inline std::string Difference(const State& a, const State& b) {
  return FirstDifference(a.max, b.max) + FirstDifference(a.sum, b.sum) + FirstDifference(a.acc, b.acc);
}

// Values as they are read back. Q8_0: groups of 32 in steps of a 127th of the largest magnitude.
inline std::vector<float> Stored(KvType type, std::vector<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == KvType::kF16) values[i] = HalfToFloat(FloatToHalf(values[i]));
    if (type == KvType::kBF16) values[i] = Bf16ToFloat(FloatToBf16(values[i]));
    if (type != KvType::kQ8_0 || i % kKvGroup != 0) continue;
    float largest = 0;
    for (size_t j = i; j < i + kKvGroup; ++j) largest = std::max(largest, std::fabs(values[j]));
    const float scale = largest / 127.0f;
    for (size_t j = i; j < i + kKvGroup; ++j) values[j] = std::nearbyint(values[j] / scale) * scale;
  }
  return values;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_KERNELS_ATTEND_GRANULE_H_
