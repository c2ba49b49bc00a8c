// BF16 matrices times BF16 inputs with AVX-512 BF16: one instruction adds the products of 16 pairs.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// P panels times C columns, a pair of k a step. Prefetches kAhead bytes ahead, or the next tile.
template <int P, int C, int kAhead = 0>
void PairTile(const MatmulTile& tile) {
  constexpr int64_t kPairBytes = 2 * kPanelRows * 2;
  const int64_t stride = tile.all_cols;
  const uint16_t* x = tile.in->bf16 + tile.column * stride + tile.first;
  const uint8_t* panel = tile.panels;
  const int64_t panel_bytes = tile.panel_bytes;
  __m512 acc[P][C];
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < C; ++c) acc[p][c] = _mm512_setzero_ps();
  }
  for (int c = 0; tile.first != 0 && c < C; ++c) {
    for (int p = 0; p < P; ++p) acc[p][c] = _mm512_loadu_ps(tile.out + c * tile.out_stride + p * kPanelRows);
  }
  for (int64_t k = 0; k < tile.cols; k += 2, panel += kPairBytes, x += 2) {
    __m512i w[P];
    for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(panel + p * panel_bytes);
    for (int p = 0; p < P; ++p) {
      _mm_prefetch(panel + p * panel_bytes + (kAhead > 0 ? kAhead : P * panel_bytes), _MM_HINT_T0);
    }
    for (int c = 0; c < C; ++c) {
      int32_t pair;
      std::memcpy(&pair, x + c * stride, sizeof(pair));
      const __m512i both = _mm512_set1_epi32(pair);
      for (int p = 0; p < P; ++p) acc[p][c] = _mm512_dpbf16_ps(acc[p][c], (__m512bh)w[p], (__m512bh)both);
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(tile.out + c * tile.out_stride + p * kPanelRows, acc[p][c]);
  }
}

constexpr MatmulTiles kPairTiles = {
    6,
    {0, 4, 4, 4, 4, 4, 4},
    {nullptr, PairTile<4, 1>, PairTile<4, 2>, PairTile<4, 3>, PairTile<4, 4>, PairTile<4, 5>, PairTile<4, 6>},
    {nullptr, PairTile<1, 1>, PairTile<1, 2>, PairTile<1, 3>, PairTile<1, 4>, PairTile<1, 5>, PairTile<1, 6>}};

// Up to eight columns are bound by memory, which one panel after the other reads fastest.
constexpr int kStreamColumns = 8, kAhead = 8192;
template <int C>
constexpr MatmulTileFn kStreamTile = PairTile<1, C, kAhead>;
constexpr MatmulTiles kStreamTiles = {kStreamColumns,
                                      {0, 1, 1, 1, 1, 1, 1, 1, 1},
                                      {nullptr, kStreamTile<1>, kStreamTile<2>, kStreamTile<3>, kStreamTile<4>,
                                       kStreamTile<5>, kStreamTile<6>, kStreamTile<7>, kStreamTile<8>},
                                      {}};

}  // namespace

void Bf16MatmulAvx512Bf16(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  MatmulByTiles(columns <= kStreamColumns ? kStreamTiles : kPairTiles, weights, in, columns, out, out_stride);
}

double PeakBf16Avx512Bf16(int64_t rounds) {
  constexpr int kChains = 24;  // its latency is longer than that of the int8 dot
  __m512 sums[kChains] = {};
  const __m512i weights = _mm512_set1_epi16(0x3f80), inputs = weights;  // 1
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)inputs);
      asm volatile("" : "+v"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 64;
}

}  // namespace stagecoach
