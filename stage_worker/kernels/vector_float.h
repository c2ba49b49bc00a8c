#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_FLOAT_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_FLOAT_H_

// Matrix tiles of the float types, written with vector_math.h's vectors: kRowVectors are the 16 rows of a panel.
// Included by the float_*.cc units behind the header of their instruction set.

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// What the unit defines.
template <TensorType kType>
inline void SplitPair(const uint8_t* pair, Floats* even, Floats* odd);  // kLanes rows of a pair of F16 or BF16 columns

constexpr int kRowVectors = kPanelRows / kLanes;

// The sums of P panels times C columns: where the vector v of a panel's rows lies, and reading them.
inline float* SumAt(const MatmulTile& tile, int p, int c, int v) {
  return tile.out + c * tile.out_stride + p * kPanelRows + v * kLanes;
}
template <int P, int C>
[[gnu::always_inline]] inline void LoadSums(const MatmulTile& tile, Floats (&sums)[P][C][kRowVectors]) {
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < C; ++c) {
      for (int v = 0; v < kRowVectors; ++v) sums[p][c][v] = Set(0.0f);
    }
  }
  for (int c = 0; tile.first != 0 && c < C; ++c) {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kRowVectors; ++v) sums[p][c][v] = Load(SumAt(tile, p, c, v));
    }
  }
}
template <int P, int C>
[[gnu::always_inline]] inline void StoreSums(const MatmulTile& tile, const Floats (&sums)[P][C][kRowVectors]) {
  for (int c = 0; c < C; ++c) {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kRowVectors; ++v) Store(SumAt(tile, p, c, v), sums[p][c][v]);
    }
  }
}

// Asks for what is `ahead` bytes behind kBytes of a panel; 0: for nothing.
template <int64_t kBytes>
inline void FetchAhead(const uint8_t* panel, int64_t ahead) {
  for (int64_t i = 0; ahead != 0 && i < kBytes; i += 64) __builtin_prefetch(panel + ahead + i);
}

// P panels times C columns. kAhead: FetchAhead's, kNextTile for the tile behind this one.
constexpr int64_t kNextTile = -1;
template <TensorType kType, int P, int C, int64_t kAhead>
void FloatTile(const MatmulTile& tile) {
  constexpr bool kPairs = kType != TensorType::kF32;
  constexpr int kStep = kPairs ? 2 : 1;  // columns of a vector
  const int64_t stride = tile.in->x_stride, panel_bytes = tile.panel_bytes;
  int64_t ahead = kAhead == kNextTile ? P * panel_bytes : kAhead;
  // Behind a panel's end lies one of this tile; what is read next begins behind all of them.
  const int64_t turn = P > 1 && kAhead > 0 ? tile.cols - kAhead / kVectorBytes * kStep : tile.cols;
  const float* x = tile.in->x + tile.column * stride + tile.first;
  const uint8_t* panel = tile.panels;
  Floats sums[P][C][kRowVectors];
  LoadSums(tile, sums);
  for (int64_t k = 0; k < tile.cols; k += kStep, panel += kVectorBytes, x += kStep) {
    if (k == turn) ahead += (P - 1) * panel_bytes;
    for (int p = 0; p < P; ++p) FetchAhead<kVectorBytes>(panel + p * panel_bytes, kAhead == 0 ? 0 : ahead);
    Floats w[kStep][P][kRowVectors];
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kRowVectors; ++v) {
        const uint8_t* const vector = panel + p * panel_bytes + v * kLanes * 4;
        if constexpr (kPairs) {
          SplitPair<kType>(vector, &w[0][p][v], &w[1][p][v]);
        } else {
          w[0][p][v] = Load(vector);
        }
      }
    }
    for (int i = 0; i < kStep; ++i) {
      for (int c = 0; c < C; ++c) {
        const Floats value = Set(x[c * stride + i]);
        for (int p = 0; p < P; ++p) {
          for (int v = 0; v < kRowVectors; ++v) sums[p][c][v] = Fma(w[i][p][v], value, sums[p][c][v]);
        }
      }
    }
  }
  StoreSums(tile, sums);
}

constexpr int64_t kDecodeAhead = 8192;  // of the same panel: its next part is read next

// FloatTiles::to_floats of F16 and BF16.
template <TensorType kType>
void ToFloats(const uint8_t* panel, int64_t cols, float* out) {
  for (int64_t k = 0; k < cols; k += 2, panel += kVectorBytes, out += 2 * kPanelRows) {
    __builtin_prefetch(panel + kDecodeAhead);
    for (int v = 0; v < kRowVectors; ++v) {
      Floats even, odd;
      SplitPair<kType>(panel + v * kLanes * 4, &even, &odd);
      Store(out + v * kLanes, even);
      Store(out + kPanelRows + v * kLanes, odd);
    }
  }
}

// Up to four columns: kOne .. kFour panels at once for one to four columns.
template <TensorType kType, int64_t kAhead, int kOne, int kTwo, int kThree, int kFour>
constexpr MatmulTiles kStream = {4,
                                 {0, kOne, kTwo, kThree, kFour},
                                 {nullptr, FloatTile<kType, kOne, 1, kAhead>, FloatTile<kType, kTwo, 2, kAhead>,
                                  FloatTile<kType, kThree, 3, kAhead>, FloatTile<kType, kFour, 4, kAhead>},
                                 {nullptr, FloatTile<kType, 1, 1, kAhead>, FloatTile<kType, 1, 2, kAhead>,
                                  FloatTile<kType, 1, 3, kAhead>, FloatTile<kType, 1, 4, kAhead>}};

// More columns: loads limit as much as multiply-adds, so what is loaded is used more than once. Evenly cut, five
// columns or more make tiles of three or more.
template <TensorType kType, int P, int64_t kAhead = 0>
constexpr MatmulTiles kWide = {
    6,
    {0, P, P, P, P, P, P},
    {nullptr, nullptr, nullptr, FloatTile<kType, P, 3, kAhead>, FloatTile<kType, P, 4, kAhead>,
     FloatTile<kType, P, 5, kAhead>, FloatTile<kType, P, 6, kAhead>},
    {nullptr, nullptr, nullptr, FloatTile<kType, 1, 3, kAhead>, FloatTile<kType, 1, 4, kAhead>,
     FloatTile<kType, 1, 5, kAhead>, FloatTile<kType, 1, 6, kAhead>}};

// For sets of narrow vectors, which convert as long as they multiply. Decoding pays from kManyColumns on; `kDecoded`
// columns of a panel leave room in the first-level cache.
constexpr int kManyColumns = 32;
constexpr int64_t kDecoded = 384;
template <TensorType kType, int64_t kAhead, int... kStreamPanels>
constexpr FloatTiles kDecodedTiles = {kManyColumns - 1, kStream<kType, kAhead, kStreamPanels...>,
                                      kWide<TensorType::kF32, 1>, kType == TensorType::kF32 ? nullptr : ToFloats<kType>,
                                      kDecoded};
template <int64_t kAhead, int... kStreamPanels>
constexpr FloatTables kDecodedTables = {kDecodedTiles<TensorType::kF32, kAhead, kStreamPanels...>,
                                        kDecodedTiles<TensorType::kF16, kAhead, kStreamPanels...>,
                                        kDecodedTiles<TensorType::kBF16, kAhead, kStreamPanels...>};

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_FLOAT_H_
