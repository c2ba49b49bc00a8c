#include "stage_worker/model/value_tile.h"

#include <cstddef>
#include <cstring>

namespace stagecoach {
namespace {

static_assert(kTilePositions == 16);

// Sixteen rows of one 16x16 matrix to those of its transpose, in vectors of the compiler's.
template <typename T>
void Transpose16(const uint8_t* in, uint8_t* out, size_t out_stride) {
  typedef T Row __attribute__((vector_size(16 * sizeof(T))));
  Row a[16], b[16];
  for (size_t i = 0; i < 16; ++i) std::memcpy(&a[i], in + i * sizeof(Row), sizeof(Row));
  // Four times: the rows of one half between those of the other, element by element.
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      b[2 * i + 1] =
          __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(a, b, sizeof(a));
  }
  for (size_t i = 0; i < 16; ++i) std::memcpy(out + i * out_stride, &a[i], sizeof(Row));
}

// [dims][16] elements to [16][dims].
template <typename T>
void Transpose(const uint8_t* in, int64_t dims, uint8_t* out) {
  const size_t stride = static_cast<size_t>(dims) * sizeof(T);
  int64_t d = 0;
  for (; d + 16 <= dims; d += 16) {
    Transpose16<T>(in + static_cast<size_t>(d) * 16 * sizeof(T), out + static_cast<size_t>(d) * sizeof(T), stride);
  }
  for (; d < dims; ++d) {
    for (size_t lane = 0; lane < 16; ++lane) {
      std::memcpy(out + lane * stride + static_cast<size_t>(d) * sizeof(T),
                  in + (static_cast<size_t>(d) * 16 + lane) * sizeof(T), sizeof(T));
    }
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
