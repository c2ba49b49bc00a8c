// Attention over one granule with NEON: scores of 16 positions in four vectors, values of 4 dimensions a vector.

#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/neon.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 4;
constexpr int kTileVectors = kTilePositions / kLanes;

template <KvType kType>
inline constexpr int64_t kBytes = kType == KvType::kF32    ? 4
                                  : kType == KvType::kQ8_0 ? 1
                                                           : 2;

// Four elements of the stored type as float; of Q8_0, the codes.
template <KvType kType>
inline float32x4_t Load4(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return LoadFloats(p);
  if constexpr (kType == KvType::kF16) return LoadHalves(p);
  if constexpr (kType == KvType::kBF16) return LoadBf16(p);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(LoadFourBytes(p))))));
}

// The first `count` of four elements; the memory of the others is not touched.
template <KvType kType>
inline float32x4_t LoadPart(const uint8_t* p, int count) {
  uint8_t bytes[kLanes * 4] = {};
  std::memcpy(bytes, p, count * kBytes<kType>);
  return Load4<kType>(bytes);
}

// Scores of one tile of 16 positions for C columns.
template <KvType kType, int C>
void Scores(const AttendTile& tile, int t, float (*p)[kAttentionGranule]) {
  const int head_dim = tile.span->head_dim;
  const uint8_t* scales = tile.span->k_tiles[t];
  const uint8_t* codes = scales + KvCodesOffset(kType, head_dim);
  float32x4_t score[C][kTileVectors];
  for (int c = 0; c < C; ++c) {
    for (auto& four : score[c]) four = vdupq_n_f32(0.0f);
  }
  const int step = kType == KvType::kQ8_0 ? kKvGroup : head_dim;
  for (int begin = 0; begin < head_dim; begin += step) {
    float32x4_t part[C][kTileVectors];
    for (int c = 0; c < C; ++c) {
      for (auto& four : part[c]) four = vdupq_n_f32(0.0f);
    }
    for (int d = begin; d < begin + step; ++d) {
      float32x4_t k[kTileVectors];
      for (int i = 0; i < kTileVectors; ++i) {
        k[i] = Load4<kType>(codes + (d * kTilePositions + i * kLanes) * kBytes<kType>);
      }
      for (int c = 0; c < C; ++c) {
        const float32x4_t query = vdupq_n_f32(tile.q[c][d]);
        for (int i = 0; i < kTileVectors; ++i) part[c][i] = vfmaq_f32(part[c][i], k[i], query);
      }
    }
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < kTileVectors; ++i) {
        if constexpr (kType == KvType::kQ8_0) {
          const float32x4_t scale = LoadFloats(scales + begin / kKvGroup * kKvScaleBytes + i * kLanes * 4);
          score[c][i] = vfmaq_f32(score[c][i], scale, part[c][i]);
        } else {
          score[c][i] = part[c][i];
        }
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < kTileVectors; ++i) vst1q_f32(p[c] + t * kTilePositions + i * kLanes, score[c][i]);
  }
}

// Scores of one column to weights in place, from the tile of `begin` on. What the column does not see of the first and
// the last tile becomes -inf first: those places may hold anything. Returns the maximum, never a negative zero, and the
// sum of the weights; -inf and nothing else when every score is -inf.
float Softmax(float* p, int begin, int limit, float* sum) {
  const int first = begin / kTilePositions * kTilePositions;
  const int end = (limit + kTilePositions - 1) / kTilePositions * kTilePositions;
  for (int j = first; j < begin; ++j) p[j] = -__builtin_inff();
  for (int j = limit; j < end; ++j) p[j] = -__builtin_inff();
  float32x4_t largest = vdupq_n_f32(-__builtin_inff());
  for (int j = first; j < end; j += kLanes) largest = vmaxq_f32(largest, vld1q_f32(p + j));
  const float max = vmaxvq_f32(largest) + 0.0f;
  if (max == -__builtin_inff()) return max;
  float32x4_t lanes[kTileVectors];
  for (auto& four : lanes) four = vdupq_n_f32(0.0f);
  for (int j = first; j < end; j += kTilePositions) {
    for (int i = 0; i < kTileVectors; ++i) {
      const float32x4_t weights = Exp(vsubq_f32(vld1q_f32(p + j + i * kLanes), vdupq_n_f32(max)));
      vst1q_f32(p + j + i * kLanes, weights);
      lanes[i] = vaddq_f32(lanes[i], weights);
    }
  }
  float sums[kTilePositions];
  for (int i = 0; i < kTileVectors; ++i) vst1q_f32(sums + i * kLanes, lanes[i]);
  *sum = TreeSum(sums);
  return max;
}

// What the values of a tile need.
template <int C>
struct Weights {
  float p[C][kAttentionGranule];
  MergeFactors factors[C];
  int begins[C], limits[C];  // both 0 for a column whose scores are all -inf: its state does not change
  SharedPositions shared;
};

// Adds the positions [begin, end) to D vectors of dimensions from d on, of N columns. part: how many dimensions the
// only vector has, 0 for all.
template <KvType kType, int N, int D, bool kPart>
inline void AddValues(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int begin, int end,
                      int64_t d, int part, float32x4_t (*acc)[D]) {
  for (int j = begin; j < end; ++j) {
    const uint8_t* tile = span.v_tiles[j / kTilePositions];
    const int lane = j % kTilePositions;
    const uint8_t* row =
        tile + KvCodesOffset(kType, span.value_dim) + (lane * static_cast<int64_t>(span.value_dim) + d) * kBytes<kType>;
    float32x4_t v[D];
    for (int i = 0; i < D; ++i) {
      v[i] = kPart ? LoadPart<kType>(row, part) : Load4<kType>(row + i * kLanes * kBytes<kType>);
    }
    float scale = 0.0f;
    if constexpr (kType == KvType::kQ8_0) {
      static_assert(kKvGroup % (D * kLanes) == 0);
      std::memcpy(&scale, tile + d / kKvGroup * kKvScaleBytes + lane * 4, sizeof(scale));
    }
    for (int c = 0; c < N; ++c) {
      const float32x4_t weight = vdupq_n_f32(kType == KvType::kQ8_0 ? weights[c][j] * scale : weights[c][j]);
      for (int i = 0; i < D; ++i) acc[c][i] = vfmaq_f32(acc[c][i], weight, v[i]);
    }
  }
}

// Merges a vector of a granule's weighted values into the state. No negative zero, so that a granule gives the same
// bits when it is merged later.
inline float32x4_t Merge(float32x4_t old, float32x4_t granule, MergeFactors factors) {
  granule = vmulq_f32(vaddq_f32(granule, vdupq_n_f32(0.0f)), vdupq_n_f32(factors.new_factor));
  return vfmaq_f32(granule, old, vdupq_n_f32(factors.old_factor));
}

// The sums of the positions [begin, end) of one column alone. Out of line: few tiles of a window have such positions.
template <KvType kType, int D, bool kPart>
[[gnu::noinline]] void AddAlone(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int begin,
                                int end, int64_t d, int part, float* sums) {
  float32x4_t acc[1][D];
  for (auto& four : acc[0]) four = vdupq_n_f32(0.0f);
  AddValues<kType, 1, D, kPart>(span, weights, begin, end, d, part, acc);
  for (int i = 0; i < D; ++i) vst1q_f32(sums + i * kLanes, acc[0][i]);
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others are added column by column.
template <KvType kType, int C, int D, bool kPart>
void Values(const AttendTile& tile, const Weights<C>& w, int64_t d, int part) {
  const SharedPositions shared = w.shared;
  float32x4_t acc[C][D];
  for (int c = 0; c < C; ++c) {
    for (auto& four : acc[c]) four = vdupq_n_f32(0.0f);
  }
  if (shared.begin > tile.begin) {
    float sums[C][D * kLanes];
    for (int c = 0; c < C; ++c) {
      const int end = w.limits[c] < shared.begin ? w.limits[c] : shared.begin;
      AddAlone<kType, D, kPart>(*tile.span, w.p + c, w.begins[c], end, d, part, sums[c]);
    }
    // A loop of its own: one with calls in it is not unrolled, and the sums would begin in memory.
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < D; ++i) acc[c][i] = vld1q_f32(sums[c] + i * kLanes);
    }
  }
  AddValues<kType, C, D, kPart>(*tile.span, w.p, shared.begin, shared.end, d, part, acc);
  for (int c = 0; c < C; ++c) {
    if (w.limits[c] == 0) continue;
    AddValues<kType, 1, D, kPart>(*tile.span, w.p + c, shared.end, w.limits[c], d, part, acc + c);
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      if constexpr (kPart) {
        float four[kLanes] = {};
        std::memcpy(four, out, part * sizeof(float));
        vst1q_f32(four, Merge(vld1q_f32(four), acc[c][i], w.factors[c]));
        std::memcpy(out, four, part * sizeof(float));
      } else {
        vst1q_f32(out, Merge(vld1q_f32(out), acc[c][i], w.factors[c]));
      }
    }
  }
}

// The scores that a tile's columns see to capped ones; also what lies beside them in a vector, which Softmax leaves
// out.
template <int C>
void CapScores(const AttendTile& tile, float (*scores)[kAttentionGranule]) {
  const float32x4_t cap = vdupq_n_f32(tile.span->score_cap);
  for (int c = 0; c < C; ++c) {
    for (int j = tile.begins[c] / kLanes * kLanes; j < tile.limits[c]; j += kLanes) {
      vst1q_f32(scores[c] + j, SoftCap(vld1q_f32(scores[c] + j), cap));
    }
  }
}

template <KvType kType, int C>
void Tile(const AttendTile& tile) {
  constexpr int kValueVectors = C <= 2 ? 8 : 4;  // 16 accumulators
  Weights<C> w;
  for (int t = tile.begin / kTilePositions; t * kTilePositions < tile.limit; ++t) Scores<kType, C>(tile, t, w.p);
  if (tile.span->score_cap > 0.0f) CapScores<C>(tile, w.p);
  for (int c = 0; c < C; ++c) {
    float sum = 0.0f;
    const float max = Softmax(w.p[c], tile.begins[c], tile.limits[c], &sum);
    w.begins[c] = max == -__builtin_inff() ? 0 : tile.begins[c];
    w.limits[c] = max == -__builtin_inff() ? 0 : tile.limits[c];
    if (w.limits[c] > 0) w.factors[c] = MergeGranule(max, sum, tile.max[c], tile.sum[c]);
  }
  w.shared = SharedBy(w.begins, w.limits, C);
  const int value_dim = tile.span->value_dim;
  int d = 0;
  for (; d + kValueVectors * kLanes <= value_dim; d += kValueVectors * kLanes) {
    Values<kType, C, kValueVectors, false>(tile, w, d, 0);
  }
  if constexpr (kType != KvType::kQ8_0) {
    for (; d + kLanes <= value_dim; d += kLanes) Values<kType, C, 1, false>(tile, w, d, 0);
    if (d < value_dim) Values<kType, C, 1, true>(tile, w, d, value_dim - d);
  }
}

template <KvType kType>
constexpr AttendTiles kTiles = {4, {nullptr, Tile<kType, 1>, Tile<kType, 2>, Tile<kType, 3>, Tile<kType, 4>}};

}  // namespace

void AttendNeon(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                const int32_t* limits, int columns, AttentionState state) {
  switch (span.type) {
    case KvType::kF32: return AttendByTiles(kTiles<KvType::kF32>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kF16: return AttendByTiles(kTiles<KvType::kF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kBF16: return AttendByTiles(kTiles<KvType::kBF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kQ8_0: return AttendByTiles(kTiles<KvType::kQ8_0>, span, q, q_stride, begins, limits, columns, state);
  }
}

}  // namespace stagecoach
