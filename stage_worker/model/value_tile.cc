#include "stage_worker/model/value_tile.h"

#include <cstddef>
#include <cstring>
#include <utility>

namespace stagecoach {
namespace {

// A square of elements to its transpose, in vectors of 16 bytes, which every machine of ours has.
template <typename T>
class Square {
 public:
  static constexpr size_t kSize = 16 / sizeof(T);

  static void Transpose(const uint8_t* in, size_t in_stride, uint8_t* out, size_t out_stride) {
    Row a[kSize], b[kSize];
    for (size_t i = 0; i < kSize; ++i) std::memcpy(&a[i], in + i * in_stride, sizeof(Row));
    // Each time the rows of one half come between those of the other, element by element.
    for (size_t done = 1; done < kSize; done *= 2) {
      for (size_t i = 0; i < kSize / 2; ++i) {
        b[2 * i] = Zip<0>(a[i], a[i + kSize / 2], std::make_index_sequence<kSize>());
        b[2 * i + 1] = Zip<kSize / 2>(a[i], a[i + kSize / 2], std::make_index_sequence<kSize>());
      }
      for (size_t i = 0; i < kSize; ++i) a[i] = b[i];
    }
    for (size_t i = 0; i < kSize; ++i) std::memcpy(out + i * out_stride, &a[i], sizeof(Row));
  }

 private:
  typedef T Row __attribute__((vector_size(16)));

  // a[first], b[first], a[first + 1], ...
  template <size_t kFirst, size_t... kAt>
  static Row Zip(Row a, Row b, std::index_sequence<kAt...>) {
    return __builtin_shufflevector(a, b, (kFirst + kAt / 2 + kAt % 2 * kSize)...);
  }
};

// [dims][16 positions] elements to [16 positions][dims].
template <typename T>
void Transpose(const uint8_t* in, int64_t dims, uint8_t* out) {
  constexpr int64_t kSize = Square<T>::kSize;
  constexpr size_t kInStride = kTilePositions * sizeof(T);
  static_assert(kTilePositions % kSize == 0);
  const size_t out_stride = static_cast<size_t>(dims) * sizeof(T);
  const auto in_at = [&](int64_t d, int64_t lane) {
    return in + static_cast<size_t>(d * kTilePositions + lane) * sizeof(T);
  };
  const auto out_at = [&](int64_t d, int64_t lane) { return out + static_cast<size_t>(lane * dims + d) * sizeof(T); };
  int64_t d = 0;
  for (; d + kSize <= dims; d += kSize) {
    for (int64_t lane = 0; lane < kTilePositions; lane += kSize) {
      Square<T>::Transpose(in_at(d, lane), kInStride, out_at(d, lane), out_stride);
    }
  }
  for (; d < dims; ++d) {
    for (int64_t lane = 0; lane < kTilePositions; ++lane) std::memcpy(out_at(d, lane), in_at(d, lane), sizeof(T));
  }
}

}  // namespace

void LayOutValues(KvType type, const uint8_t* k_tile, int64_t key_dim, int64_t value_dim, uint8_t* v_tile) {
  switch (type) {
    case KvType::kF32: return Transpose<uint32_t>(k_tile, value_dim, v_tile);
    case KvType::kF16:
    case KvType::kBF16: return Transpose<uint16_t>(k_tile, value_dim, v_tile);
    case KvType::kQ8_0: {
      const auto scales_bytes = [](int64_t dims) {
        return static_cast<size_t>(dims / kKvGroup) * kTilePositions * sizeof(float);
      };
      std::memcpy(v_tile, k_tile, scales_bytes(value_dim));
      return Transpose<uint8_t>(k_tile + scales_bytes(key_dim), value_dim, v_tile + scales_bytes(value_dim));
    }
  }
}

}  // namespace stagecoach
