// Matrix tiles of the float types with NEON: four vectors are the 16 rows of a panel.

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/neon/neon.h"

namespace stagecoach {
namespace {

constexpr int kQuarters = 4;

// Four rows of a pair of columns: consecutive for F32, interleaved for F16 and BF16.
template <TensorType kType>
inline void LoadPair(const uint8_t* pair, int quarter, float32x4_t* even, float32x4_t* odd) {
  if constexpr (kType == TensorType::kF32) {
    *even = Load(pair + 16 * quarter);
    *odd = Load(pair + kVectorBytes + 16 * quarter);
  } else {
    const uint8x16_t both = vld1q_u8(pair + 16 * quarter);
    if constexpr (kType == TensorType::kBF16) {
      *even = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(both), 16));
      *odd = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(both), vdupq_n_u32(0xffff0000u)));
    } else {
      const uint32x4_t words = vreinterpretq_u32_u8(both);
      *even = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(words)));
      *odd = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(words, 16)));
    }
  }
}

// One panel times C columns, two k a step (F32 may have an odd last one).
template <TensorType kType, int C>
void FloatTile(const MatmulTile& tile) {
  constexpr bool kSingle = kType == TensorType::kF32;
  constexpr int64_t kPairBytes = kSingle ? 2 * kVectorBytes : kVectorBytes;
  const int64_t stride = tile.in->x_stride;
  const float* x = tile.in->x + tile.column * stride + tile.first;
  const uint8_t* panel = tile.panels;
  float32x4_t acc[C][kQuarters];
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) acc[c][r] = vdupq_n_f32(0.0f);
  }
  for (int c = 0; tile.first != 0 && c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) acc[c][r] = vld1q_f32(tile.out + c * tile.out_stride + 4 * r);
  }
  for (int64_t k = 0; k + 1 < tile.cols; k += 2, panel += kPairBytes, x += 2) {
    float32x4_t even[kQuarters], odd[kQuarters];
    for (int r = 0; r < kQuarters; ++r) LoadPair<kType>(panel, r, &even[r], &odd[r]);
    for (int c = 0; c < C; ++c) {
      const float32x2_t two = vld1_f32(x + c * stride);
      for (int r = 0; r < kQuarters; ++r) acc[c][r] = vfmaq_lane_f32(acc[c][r], even[r], two, 0);
      for (int r = 0; r < kQuarters; ++r) acc[c][r] = vfmaq_lane_f32(acc[c][r], odd[r], two, 1);
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) {
      if (kSingle && tile.cols % 2 != 0) {
        acc[c][r] = vfmaq_f32(acc[c][r], Load(panel + 16 * r), vdupq_n_f32(x[c * stride]));
      }
      vst1q_f32(tile.out + c * tile.out_stride + 4 * r, acc[c][r]);
    }
  }
}

template <TensorType kType>
constexpr MatmulTiles kTiles = {
    4,
    {0, 1, 1, 1, 1},
    {nullptr, FloatTile<kType, 1>, FloatTile<kType, 2>, FloatTile<kType, 3>, FloatTile<kType, 4>},
    {nullptr, FloatTile<kType, 1>, FloatTile<kType, 2>, FloatTile<kType, 3>, FloatTile<kType, 4>}};

constexpr FloatTiles kFloatTiles = {kTiles<TensorType::kF32>, kTiles<TensorType::kF16>, kTiles<TensorType::kBF16>};

}  // namespace

void FloatMatmulNeon(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  MatmulByTiles(kFloatTiles, weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
