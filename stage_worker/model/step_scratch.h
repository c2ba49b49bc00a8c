#ifndef STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/model/hyper_parameters.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/matmul_input.h"

namespace stagecoach {

// One thread's working memory for attention.
struct AttentionScratch {
  AttentionScratch(int64_t columns, int64_t head_dim);
  size_t bytes() const;

  AlignedBuffer q;              // float [columns, H]
  AlignedBuffer acc;            // float [columns, H]
  std::vector<float> max, sum;  // [columns]
  std::vector<int32_t> limits;  // [columns]
  const uint8_t* k_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* v_tiles[kAttentionGranule / kTilePositions];
};

// The buffers of a step, made once for the largest one. A stride is a width rounded up to whole panels, because the
// matrix kernel writes whole panels.
struct StepScratch {
  StepScratch(const HyperParameters& hyper, int32_t max_rows, int threads, int64_t attention_columns);
  size_t bytes() const;

  const int64_t hidden_stride, q_stride, kv_stride, ffn_stride;
  AlignedBuffer cos, sin;  // float [rows, H/2]
  AlignedBuffer normed;    // float [rows, hidden_stride]
  AlignedBuffer q;         // float [rows, q_stride]
  AlignedBuffer k, v;      // float [rows, kv_stride]
  AlignedBuffer attended;  // float [rows, q_stride]
  AlignedBuffer gate, up;  // float [rows, ffn_stride]
  AlignedBuffer delta;     // float [rows, hidden_stride]: what a block adds to the residual stream
  MatmulInput input;
  std::vector<AttentionScratch> attention;  // [threads]
  std::atomic<int64_t> next_attention_work{0};
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_
