// Matrix tiles of the float types with AVX-512: one vector is the 16 rows of a panel.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_float.h"

namespace stagecoach {
namespace {

template <TensorType kType>
inline void SplitPair(const uint8_t* pair, Floats* even, Floats* odd) {
  const __m512i both = _mm512_loadu_si512(pair);
  if constexpr (kType == TensorType::kBF16) {
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    *even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    *odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }
}

// Two panels at once hide the latency of the memory, and few streams are read fastest. Wide tiles: the best shape
// measured among those that fit in 32 registers; converting hides behind their multiply-adds (decoding once for all
// columns was slower), and those of F32 do not prefetch, because their panels would evict the inputs from the cache.
template <TensorType kType>
constexpr FloatTiles kTiles = {4, kStream<kType, kNextTile, 2, 2, 2, 2>,
                               kWide<kType, 3, kType == TensorType::kF32 ? 0 : kNextTile>};

}  // namespace

constexpr FloatTables kFloatTilesAvx512 = {kTiles<TensorType::kF32>, kTiles<TensorType::kF16>,
                                           kTiles<TensorType::kBF16>};

}  // namespace stagecoach
