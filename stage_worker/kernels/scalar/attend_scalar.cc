// The scalar twins of the attention kernels, and what their vectorised units share.

#include <cmath>
#include <cstring>
#include <limits>

#include "common/quant/tensor_type.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float LoadFloat(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void StoreElement(KvType type, float value, int64_t index, uint8_t* tile) {
  if (type == KvType::kF32) {
    std::memcpy(tile + index * 4, &value, 4);
  } else {
    const uint16_t bits = type == KvType::kF16 ? FloatToHalf(value) : FloatToBf16(value);
    std::memcpy(tile + index * 2, &bits, 2);
  }
}

// Of Q8_0: the code.
float LoadElement(KvType type, const uint8_t* elements, int64_t index) {
  if (type == KvType::kF32) return LoadFloat(elements + index * 4);
  if (type == KvType::kQ8_0) return static_cast<float>(static_cast<int8_t>(elements[index]));
  uint16_t bits;
  std::memcpy(&bits, elements + index * 2, sizeof(bits));
  return type == KvType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

// The scale of a Q8_0 tile for a dimension and a position.
float LoadScale(const uint8_t* tile, int d, int lane) {
  return LoadFloat(tile + d / kKvGroup * kKvScaleBytes + lane * 4);
}

float Score(const AttentionSpan& span, const float* q, int position) {
  const uint8_t* tile = span.k_tiles[position / kTilePositions];
  const uint8_t* elements = tile + KvCodesOffset(span.type, span.head_dim);
  const int lane = position % kTilePositions;
  const int step = span.type == KvType::kQ8_0 ? kKvGroup : span.head_dim;
  float score = 0.0f;
  for (int begin = 0; begin < span.head_dim; begin += step) {
    float part = 0.0f;
    for (int d = begin; d < begin + step; ++d) {
      part = std::fma(LoadElement(span.type, elements, d * kTilePositions + lane), q[d], part);
    }
    score = span.type == KvType::kQ8_0 ? std::fma(LoadScale(tile, begin, lane), part, score) : part;
  }
  if (span.score_cap > 0.0f) kScalarKernels.soft_cap(span.score_cap, 1, &score);
  return score;
}

// The weighted sum of dimension d over the positions [begin, limit).
float Value(const AttentionSpan& span, const float* p, int begin, int limit, int d) {
  float acc = 0.0f;
  for (int j = begin; j < limit; ++j) {
    const uint8_t* tile = span.v_tiles[j / kTilePositions];
    const uint8_t* elements = tile + KvCodesOffset(span.type, span.value_dim);
    const int lane = j % kTilePositions;
    const float weight = span.type == KvType::kQ8_0 ? p[j] * LoadScale(tile, d, lane) : p[j];
    acc = std::fma(weight, LoadElement(span.type, elements, int64_t{lane} * span.value_dim + d), acc);
  }
  // No negative zero: merged into a state that started from nothing it would become a positive one.
  return acc + 0.0f;
}

void AttendColumn(const AttentionSpan& span, const float* q, int begin, int limit, float* max, float* sum, float* acc) {
  float p[kAttentionGranule];
  float granule_max = kMinusInfinity;
  for (int j = begin; j < limit; ++j) {
    p[j] = Score(span, q, j);
    granule_max = p[j] > granule_max ? p[j] : granule_max;
  }
  if (granule_max == kMinusInfinity) return;
  granule_max += 0.0f;  // makes a negative zero positive: which zero is the maximum depends on the order
  float lanes[kTilePositions] = {};
  for (int j = begin; j < limit; ++j) {
    p[j] = FixedExp(p[j] - granule_max);
    lanes[j % kTilePositions] += p[j];
  }
  const MergeFactors factors = MergeGranule(granule_max, TreeSum(lanes), max, sum);
  for (int d = 0; d < span.value_dim; ++d) {
    acc[d] = std::fma(acc[d], factors.old_factor, Value(span, p, begin, limit, d) * factors.new_factor);
  }
}

// Groups of 32 dimensions to codes and scales; place(d, codes) takes the codes of the group from d on.
template <typename Place>
void StoreQuantized(const float* x, int head_dim, int lane, uint8_t* tile, Place place) {
  for (int d = 0; d < head_dim; d += kKvGroup) {
    int8_t codes[kKvGroup];
    float scale;
    int32_t start, half_starts[2];
    kScalarKernels.quantize_row(x + d, kKvGroup, codes, &scale, &start, half_starts);
    std::memcpy(tile + d / kKvGroup * kKvScaleBytes + lane * 4, &scale, sizeof(scale));
    place(d, codes);
  }
}

}  // namespace

MergeFactors MergeGranule(float granule_max, float granule_sum, float* max, float* sum) {
  const float merged = *max > granule_max ? *max : granule_max;
  const MergeFactors factors = {FixedExp(*max - merged), FixedExp(granule_max - merged)};
  *sum = std::fma(*sum, factors.old_factor, granule_sum * factors.new_factor);
  *max = merged;
  return factors;
}

void StoreKScalar(KvType type, const float* k, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) {
    uint8_t* elements = tile + KvCodesOffset(type, head_dim);
    return StoreQuantized(k, head_dim, lane, tile, [&](int d, const int8_t* codes) {
      for (int i = 0; i < kKvGroup; ++i) elements[(d + i) * kTilePositions + lane] = static_cast<uint8_t>(codes[i]);
    });
  }
  for (int d = 0; d < head_dim; ++d) StoreElement(type, k[d], d * kTilePositions + lane, tile);
}

void StoreVScalar(KvType type, const float* v, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) {
    uint8_t* elements = tile + KvCodesOffset(type, head_dim) + int64_t{lane} * head_dim;
    return StoreQuantized(v, head_dim, lane, tile,
                          [&](int d, const int8_t* codes) { std::memcpy(elements + d, codes, kKvGroup); });
  }
  for (int d = 0; d < head_dim; ++d) StoreElement(type, v[d], int64_t{lane} * head_dim + d, tile);
}

void AttendScalar(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                  const int32_t* limits, int columns, AttentionState state) {
  for (int c = 0; c < columns; ++c) {
    const int begin = begins == nullptr ? 0 : begins[c];
    if (limits[c] <= begin) continue;
    AttendColumn(span, q + c * q_stride, begin, limits[c], state.max + c, state.sum + c,
                 state.acc + int64_t{c} * span.value_dim);
  }
}

void MergeAttentionScalar(const AttentionState& granule, int columns, int value_dim, AttentionState state) {
  for (int c = 0; c < columns; ++c) {
    if (granule.max[c] == kMinusInfinity) continue;
    const MergeFactors factors = MergeGranule(granule.max[c], granule.sum[c], state.max + c, state.sum + c);
    for (int64_t d = int64_t{c} * value_dim; d < int64_t{c + 1} * value_dim; ++d) {
      state.acc[d] = std::fma(state.acc[d], factors.old_factor, granule.acc[d] * factors.new_factor);
    }
  }
}

void AttendByTiles(const AttendTables& tables, const AttentionSpan& span, const float* q, int64_t q_stride,
                   const int32_t* begins, const int32_t* limits, int columns, AttentionState state) {
  const AttendTiles& tiles = span.type == KvType::kF32    ? tables.f32
                             : span.type == KvType::kF16  ? tables.f16
                             : span.type == KvType::kBF16 ? tables.bf16
                                                          : tables.q8_0;
  AttentionSpan filled = span;
  if (span.next_k_tiles == nullptr) filled.next_k_tiles = span.k_tiles;
  AttendTile tile = {.span = &filled};
  int count = 0;
  bool read = false;
  for (int c = 0; c < columns; ++c) {
    const int32_t begin = begins == nullptr ? 0 : begins[c], limit = limits[c];
    if (limit > begin) {
      tile.q[count] = q + c * q_stride;
      tile.begins[count] = begin;
      tile.limits[count] = limit;
      tile.begin = count == 0 || begin < tile.begin ? begin : tile.begin;
      tile.limit = count == 0 || limit > tile.limit ? limit : tile.limit;
      tile.max[count] = state.max + c;
      tile.sum[count] = state.sum + c;
      tile.acc[count] = state.acc + static_cast<int64_t>(c) * span.value_dim;
      ++count;
    }
    if (count == tiles.max_columns || (count > 0 && c + 1 == columns)) {
      const bool again = read && count == tiles.max_columns;
      (again ? tiles.again : tiles.tile[count])(tile);
      read = true;
      count = 0;
    }
  }
}

}  // namespace stagecoach
