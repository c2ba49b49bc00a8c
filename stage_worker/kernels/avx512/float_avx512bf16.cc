// BF16 matrices times BF16 inputs with AVX-512 BF16: one instruction adds the products of 16 pairs.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_float.h"

namespace stagecoach {
namespace {

// P panels times C columns, a pair of k a step. kAhead: of FloatTile.
template <int P, int C, int64_t kAhead>
void PairTile(const MatmulTile& tile) {
  const int64_t stride = tile.all_cols, panel_bytes = tile.panel_bytes;
  const int64_t ahead = kAhead == kNextTile ? P * panel_bytes : kAhead;
  const uint16_t* x = tile.in->bf16 + tile.column * stride + tile.first;
  const uint8_t* panel = tile.panels;
  Floats sums[P][C][kRowVectors];
  LoadSums(tile, sums);
  for (int64_t k = 0; k < tile.cols; k += 2, panel += kVectorBytes, x += 2) {
    __m512i w[P];
    for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(panel + p * panel_bytes);
    for (int p = 0; p < P; ++p) FetchAhead<kVectorBytes>(panel + p * panel_bytes, ahead);
    for (int c = 0; c < C; ++c) {
      int32_t pair;
      std::memcpy(&pair, x + c * stride, sizeof(pair));
      const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
      for (int p = 0; p < P; ++p) sums[p][c][0] = _mm512_dpbf16_ps(sums[p][c][0], (__m512bh)w[p], both);
    }
  }
  StoreSums(tile, sums);
}

// Up to eight columns are bound by memory, which one panel after the other reads fastest.
constexpr int64_t kAheadBytes = 8192;
template <int C>
constexpr MatmulTileFn kOne = PairTile<1, C, kAheadBytes>;
template <int P, int C>
constexpr MatmulTileFn kMany = PairTile<P, C, kNextTile>;

}  // namespace

constexpr FloatTiles kBf16TilesAvx512Bf16 = {
    8,
    {8,
     {0, 1, 1, 1, 1, 1, 1, 1, 1},
     {nullptr, kOne<1>, kOne<2>, kOne<3>, kOne<4>, kOne<5>, kOne<6>, kOne<7>, kOne<8>},
     {}},
    {6,
     {0, 4, 4, 4, 4, 4, 4},
     {nullptr, nullptr, nullptr, nullptr, kMany<4, 4>, kMany<4, 5>, kMany<4, 6>},
     {nullptr, nullptr, nullptr, nullptr, kMany<1, 4>, kMany<1, 5>, kMany<1, 6>}}};

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
