#ifndef STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/model/footprint.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/matmul_input.h"
#include "stage_worker/model/step_plan.h"

namespace stagecoach {

// One thread's working memory for attention.
struct AttentionScratch {
  explicit AttentionScratch(const AttentionSizes& sizes);

  AlignedBuffer q;       // float [columns, H]
  AlignedBuffer state;   // float [columns, 2 + H]: maxima, sums, weighted values
  AlignedBuffer limits;  // int32 [columns]
  const uint8_t* k_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* v_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* next_k_tiles[kAttentionGranule / kTilePositions];
};

// What the threads that share walks hand to each other: the partial states of StepPlan's cuts.
struct AttentionPartials {
  explicit AttentionPartials(const AttentionSizes& sizes);

  AlignedBuffer states;                              // float [columns, 2 + H], as in AttentionScratch for each partial
  std::unique_ptr<std::atomic<int32_t>[]> finished;  // [cuts]: pieces; all 0 when no thread is in Attend
};

// One thread's working memory outside of attention.
struct WorkerScratch {
  explicit WorkerScratch(const LayerScratchSizes& sizes);

  AlignedBuffer row;    // float [width]: a row on its way into an input
  MatmulInput input;    // [kFewRows, width]
  AlignedBuffer block;  // float [2, kBlockFloats]: outputs of one or two matrices
};

// The buffers of a step, made once for the largest one: LayerScratchSizes::bytes() of aligned memory. A stride is a
// width rounded up to whole panels, because the matrix kernel writes whole panels.
struct StepScratch {
  explicit StepScratch(const LayerScratchSizes& sizes);

  const int64_t q_stride, kv_stride;
  AlignedBuffer cos, sin;                   // float [rows, H/2]
  AlignedBuffer q;                          // float [rows, q_stride]
  AlignedBuffer k, v;                       // float [rows, kv_stride]
  AlignedBuffer attended;                   // float [rows, q_stride]
  MatmulInput input;                        // [rows, D or Nq*H], of steps with more than kFewRows
  MatmulInput ffn_input;                    // [rows, F]
  std::vector<WorkerScratch> workers;       // [threads]
  std::vector<AttentionScratch> attention;  // [threads]
  AttentionPartials partials;
  std::atomic<int64_t> next_attention_work{0};  // 0 when no thread is in Attend
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_
