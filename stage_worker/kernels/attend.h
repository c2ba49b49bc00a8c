#ifndef STAGECOACH_STAGE_WORKER_KERNELS_ATTEND_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_ATTEND_H_

// What the attention units of this directory share, in the way of isa_tables.h: compiled once, for the baseline.

#include <cstdint>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// The attention functions of the tables.
StoreFn StoreKScalar, StoreVScalar, StoreKAvx2, StoreVAvx2, StoreKAvx512, StoreVAvx512;
AttendFn AttendScalar, AttendAvx2, AttendAvx512, AttendNeon;
MergeFn MergeAttentionScalar;

// Where the elements begin in a tile: behind the scales of Q8_0, kKvScaleBytes for each group of dimensions.
inline constexpr int64_t kKvScaleBytes = kTilePositions * 4;
static inline constexpr int64_t KvCodesOffset(KvType type, int64_t dims) {
  return type == KvType::kQ8_0 ? dims / kKvGroup * kKvScaleBytes : 0;
}

// One tile of attend: columns that see at least one position each.
inline constexpr int kMaxAttendColumns = 8;
struct AttendTile {
  const AttentionSpan* span;  // next_k_tiles is set
  const float* q[kMaxAttendColumns];
  int32_t begins[kMaxAttendColumns];  // each below its limit
  int32_t limits[kMaxAttendColumns];
  int32_t begin, limit;  // the smallest and the largest of them
  float* max[kMaxAttendColumns];
  float* sum[kMaxAttendColumns];
  float* acc[kMaxAttendColumns];
};
using AttendTileFn = void (*)(const AttendTile& tile);

// The tiles of one KV type, by number of columns 1 .. max_columns.
struct AttendTiles {
  int max_columns;
  AttendTileFn tile[kMaxAttendColumns + 1];
  // Of max_columns, for K and V that a tile before it has read: does not ask for them ahead. nullptr: the same.
  AttendTileFn again = nullptr;
};

// By type.
struct AttendTables {
  AttendTiles f32, f16, bf16, q8_0;
};

// An attend by tiles: leaves out the columns that see nothing.
void AttendByTiles(const AttendTables& tables, const AttentionSpan& span, const float* q, int64_t q_stride,
                   const int32_t* begins, const int32_t* limits, int columns, AttentionState state);

// Which positions the columns of a tile add up together, sharing the loads of V: [begin, end), those that all of them
// see. Before them each column adds what it sees before `begin`, and after them what it sees from `end` on, alone: no
// column multiplies what it does not see.
struct SharedPositions {
  int begin, end;
};
static inline SharedPositions SharedBy(const int* begins, const int* limits, int columns) {
  SharedPositions shared = {begins[0], limits[0]};
  for (int c = 1; c < columns; ++c) {
    shared.begin = begins[c] > shared.begin ? begins[c] : shared.begin;
    shared.end = limits[c] < shared.end ? limits[c] : shared.end;
  }
  shared.end = shared.end > shared.begin ? shared.end : shared.begin;
  return shared;
}

// The merge of a granule into a column's running state: sets *max and *sum, and gives the factors that acc takes
// (acc = fma(acc, old_factor, granule_acc * new_factor)).
struct MergeFactors {
  float old_factor, new_factor;
};
MergeFactors MergeGranule(float granule_max, float granule_sum, float* max, float* sum);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_ATTEND_H_
