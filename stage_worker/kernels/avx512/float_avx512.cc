// Matrix tiles of the float types with AVX-512: one vector is the 16 rows of a panel.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// The two rows of a pair of F16 or BF16 columns.
template <TensorType kType>
inline void SplitPair(const uint8_t* pair, __m512* even, __m512* odd) {
  const __m512i both = _mm512_loadu_si512(pair);
  if constexpr (kType == TensorType::kBF16) {
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    *even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    *odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }
}

constexpr int kFewPanels = 2, kManyPanels = 3;  // of a tile

// P panels times C columns. Prefetches the next tile, except for F32 with many columns, whose panels would evict the
// inputs from the cache.
template <TensorType kType, int P, int C>
void FloatTile(const MatmulTile& tile) {
  constexpr bool kSingle = kType == TensorType::kF32;
  constexpr int kStep = kSingle ? 1 : 2;  // k of one vector
  constexpr bool kFetch = !kSingle || P < kManyPanels;
  const int64_t stride = tile.in->x_stride;
  const float* x = tile.in->x + tile.column * stride + tile.first;
  const uint8_t* panel = tile.panels;
  const int64_t panel_bytes = tile.panel_bytes;
  __m512 acc[P][C];
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < C; ++c) acc[p][c] = _mm512_setzero_ps();
  }
  for (int c = 0; tile.first != 0 && c < C; ++c) {
    for (int p = 0; p < P; ++p) acc[p][c] = _mm512_loadu_ps(tile.out + c * tile.out_stride + p * kPanelRows);
  }
  for (int64_t k = 0; k < tile.cols; k += kStep, panel += kVectorBytes, x += kStep) {
    __m512 w[2][P];
    for (int p = 0; p < P; ++p) {
      if constexpr (kFetch) _mm_prefetch(panel + (P + p) * panel_bytes, _MM_HINT_T0);
      if constexpr (kSingle) {
        w[0][p] = _mm512_loadu_ps(panel + p * panel_bytes);
      } else {
        SplitPair<kType>(panel + p * panel_bytes, &w[0][p], &w[1][p]);
      }
    }
    for (int i = 0; i < kStep; ++i) {
      for (int c = 0; c < C; ++c) {
        for (int p = 0; p < P; ++p) acc[p][c] = _mm512_fmadd_ps(w[i][p], _mm512_set1_ps(x[c * stride + i]), acc[p][c]);
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(tile.out + c * tile.out_stride + p * kPanelRows, acc[p][c]);
  }
}

// Few columns are bound by memory: two panels at once hide the latency, and few streams are read fastest.
constexpr int kStreamColumns = 4;

template <TensorType kType, int P = kFewPanels>
constexpr MatmulTiles kStream = {
    kStreamColumns,
    {0, P, P, P, P},
    {nullptr, FloatTile<kType, P, 1>, FloatTile<kType, P, 2>, FloatTile<kType, P, 3>, FloatTile<kType, P, 4>},
    {nullptr, FloatTile<kType, 1, 1>, FloatTile<kType, 1, 2>, FloatTile<kType, 1, 3>, FloatTile<kType, 1, 4>}};

// More columns: loads limit as much as multiply-adds, so each broadcast input is used more than once. The best shape
// measured among those that fit in 32 registers. Evenly cut, five columns or more make tiles of three or more.
template <TensorType kType, int P = kManyPanels>
constexpr MatmulTiles kWide = {6,
                               {0, P, P, P, P, P, P},
                               {nullptr, nullptr, nullptr, FloatTile<kType, P, 3>, FloatTile<kType, P, 4>,
                                FloatTile<kType, P, 5>, FloatTile<kType, P, 6>},
                               {nullptr, nullptr, nullptr, FloatTile<kType, 1, 3>, FloatTile<kType, 1, 4>,
                                FloatTile<kType, 1, 5>, FloatTile<kType, 1, 6>}};

constexpr FloatTiles kStreamTiles = {kStream<TensorType::kF32>, kStream<TensorType::kF16>, kStream<TensorType::kBF16>};
constexpr FloatTiles kWideTiles = {kWide<TensorType::kF32>, kWide<TensorType::kF16>, kWide<TensorType::kBF16>};

}  // namespace

void FloatMatmulAvx512(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  MatmulByTiles(columns <= kStreamColumns ? kStreamTiles : kWideTiles, weights, in, columns, out, out_stride);
}

void RoundRowAvx512(const float* x, int64_t cols, uint16_t* out) {
  for (int64_t i = 0; i < cols; i += kLanes) {
    const Mask mask = FirstLanes(cols - i);
    _mm256_mask_storeu_epi16(out + i, mask, ToBf16(_mm512_maskz_loadu_ps(mask, x + i)));
  }
}

}  // namespace stagecoach
