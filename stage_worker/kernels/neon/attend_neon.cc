// Attention over one granule with NEON: scores of 16 positions in four vectors, values of 4 dimensions a vector.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

template <KvType kType>
inline Floats LoadStored(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return Load(p);
  if constexpr (kType == KvType::kF16) return LoadHalves(p);
  if constexpr (kType == KvType::kBF16) return LoadBf16(p);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(LoadFourBytes(p))))));
}

inline float Tree(const Floats* lanes) {
  float sums[kTilePositions];
  for (int i = 0; i < kTileVectors; ++i) Store(sums + i * kLanes, lanes[i]);
  return TreeSum(sums);
}

// 16 accumulators. No prefetching: these processors do it in hardware.
constexpr int ScoreTiles(int) { return 1; }
constexpr int ValueVectors(int columns) { return columns <= 2 ? 8 : 4; }

template <KvType kType>
constexpr AttendTiles kTiles = {
    4, {nullptr, Tile<kType, 1, false>, Tile<kType, 2, false>, Tile<kType, 3, false>, Tile<kType, 4, false>}};

}  // namespace

void AttendNeon(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                const int32_t* limits, int columns, AttentionState state) {
  static constexpr AttendTables kTables = {kTiles<KvType::kF32>, kTiles<KvType::kF16>, kTiles<KvType::kBF16>,
                                           kTiles<KvType::kQ8_0>};
  AttendByTiles(kTables, span, q, q_stride, begins, limits, columns, state);
}

}  // namespace stagecoach
