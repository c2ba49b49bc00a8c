// Matrix tiles of the float types with AVX2 and FMA: two vectors are the 16 rows of a panel.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// Eight rows of a pair of F16 or BF16 columns.
template <TensorType kType>
inline void SplitPair(const uint8_t* pair, __m256* even, __m256* odd) {
  const __m256i both = Load256(pair);
  if constexpr (kType == TensorType::kBF16) {
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12,
                                           13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(both, order), 0xd8);
    *even = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    *odd = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
  }
}

// P panels times C columns, two k a step (F32 may have an odd last one).
template <TensorType kType, int P, int C>
void FloatTile(const MatmulTile& tile) {
  constexpr bool kSingle = kType == TensorType::kF32;
  constexpr int64_t kPairBytes = kSingle ? 2 * kPanelRows * 4 : 2 * kPanelRows * 2;
  const int64_t stride = tile.in->x_stride;
  const float* x = tile.in->x + tile.column * stride + tile.first;
  const uint8_t* panels = tile.panels;
  __m256 acc[P][C][2];
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < C; ++c) acc[p][c][0] = acc[p][c][1] = _mm256_setzero_ps();
  }
  for (int c = 0; tile.first != 0 && c < C; ++c) {
    const float* out = tile.out + c * tile.out_stride;
    for (int p = 0; p < P; ++p) {
      for (int half = 0; half < 2; ++half) acc[p][c][half] = _mm256_loadu_ps(out + p * kPanelRows + 8 * half);
    }
  }
  for (int64_t k = 0; k + 1 < tile.cols; k += 2, panels += kPairBytes, x += 2) {
    for (int p = 0; p < P; ++p) {
      const uint8_t* panel = panels + p * tile.panel_bytes;
      for (int64_t i = 0; i < kPairBytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(panel + kPrefetchBytes + i), _MM_HINT_T0);
      }
      __m256 even[2], odd[2];
      for (int half = 0; half < 2; ++half) {
        if constexpr (kSingle) {
          even[half] = Load(panel + 32 * half);
          odd[half] = Load(panel + 64 + 32 * half);
        } else {
          SplitPair<kType>(panel + 32 * half, &even[half], &odd[half]);
        }
      }
      for (int c = 0; c < C; ++c) {
        const __m256 value = _mm256_set1_ps(x[c * stride]);
        for (int half = 0; half < 2; ++half) acc[p][c][half] = _mm256_fmadd_ps(even[half], value, acc[p][c][half]);
      }
      for (int c = 0; c < C; ++c) {
        const __m256 value = _mm256_set1_ps(x[c * stride + 1]);
        for (int half = 0; half < 2; ++half) acc[p][c][half] = _mm256_fmadd_ps(odd[half], value, acc[p][c][half]);
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < C; ++c) {
      for (int half = 0; half < 2; ++half) {
        if (kSingle && tile.cols % 2 != 0) {
          const __m256 w = Load(panels + p * tile.panel_bytes + 32 * half);
          acc[p][c][half] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[c * stride]), acc[p][c][half]);
        }
        _mm256_storeu_ps(tile.out + c * tile.out_stride + p * kPanelRows + 8 * half, acc[p][c][half]);
      }
    }
  }
}

// Up to 8 accumulators and what they need in 16 registers.
template <TensorType kType>
constexpr MatmulTiles kTiles = {
    4,
    {0, 2, 2, 1, 1},
    {nullptr, FloatTile<kType, 2, 1>, FloatTile<kType, 2, 2>, FloatTile<kType, 1, 3>, FloatTile<kType, 1, 4>},
    {nullptr, FloatTile<kType, 1, 1>, FloatTile<kType, 1, 2>, FloatTile<kType, 1, 3>, FloatTile<kType, 1, 4>}};

constexpr FloatTiles kFloatTiles = {kTiles<TensorType::kF32>, kTiles<TensorType::kF16>, kTiles<TensorType::kBF16>};

}  // namespace

void FloatMatmulAvx2(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  MatmulByTiles(kFloatTiles, weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
