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
#include "stage_worker/model/expert_scratch.h"
#include "stage_worker/model/matmul_input.h"
#include "stage_worker/model/step_plan.h"

namespace stagecoach {

// One thread's working memory for attention.
struct AttentionScratch {
  explicit AttentionScratch(const WalkMemory& memory);

  AlignedBuffer q;       // float [columns, key_dim]
  AlignedBuffer state;   // float [columns, 2 + value_dim]: maxima, sums, weighted values
  AlignedBuffer limits;  // int32 [columns]
  AlignedBuffer begins;  // int32 [columns]
  AlignedBuffer values;  // V tiles of a granule, of latent attention
  const uint8_t* k_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* v_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* next_k_tiles[kAttentionGranule / kTilePositions];
};

// What the threads that share walks hand to each other: the partial states of StepPlan's cuts.
struct AttentionPartials {
  explicit AttentionPartials(const WalkMemory& memory);

  AlignedBuffer states;                              // float [columns, 2 + value_dim], as in AttentionScratch for each
  std::unique_ptr<std::atomic<int32_t>[]> finished;  // [cuts]: pieces; all 0 when no thread is in Attend
};

// One thread's working memory outside of attention.
struct WorkerScratch {
  explicit WorkerScratch(const LayerScratchSizes& sizes);

  AlignedBuffer row;    // float [width]: a row on its way into an input
  MatmulInput input;    // [kFewRows, width]
  AlignedBuffer block;  // float [2, kBlockFloats]: outputs of one or two matrices
};

// Latent attention around its walks; empty without it.
struct LatentScratch {
  LatentScratch(const LatentScratchSizes& sizes, int64_t rows, int threads);

  // One thread's part of a head: an input of its own matrix, and the outputs.
  struct Head {
    MatmulInput input;     // [kLatentRows, head_width]
    AlignedBuffer output;  // float [kLatentRows, head_outputs]
  };

  const LatentScratchSizes sizes;
  AlignedBuffer q_a;        // float [rows, q_a_stride]
  AlignedBuffer q;          // float [rows, q_stride]: not absorbed
  AlignedBuffer row;        // float [rows, row_stride]: what the cache keeps
  AlignedBuffer output;     // float [rows, output_stride]
  std::vector<Head> heads;  // [threads]
};

// The angles of one RopeTable for all rows.
struct StepAngles {
  explicit StepAngles(int64_t rows, int64_t pairs);

  int64_t pairs;           // of a row
  AlignedBuffer cos, sin;  // float [rows, pairs]
};

// The buffers of a step, made once for the largest one: LayerScratchSizes::bytes() of aligned memory. A stride is a
// width rounded up to whole panels, because the matrix kernel writes whole panels.
struct StepScratch {
  explicit StepScratch(const LayerScratchSizes& sizes);

  const int64_t q_stride, kv_stride, attended_stride;
  std::vector<StepAngles> angles;  // [LayerScratchSizes::ropes]
  AlignedBuffer q;                 // float [rows, q_stride]; of latent attention absorbed, [heads, key_dim]
  AlignedBuffer k, v;              // float [rows, kv_stride]
  AlignedBuffer attended;          // float [rows, attended_stride]; of latent attention [heads, kv_rank]
  MatmulInput input;               // [rows, D or attn_output's], of steps with more than kFewRows
  MatmulInput ffn_input;           // [rows, F] of dense and shared units
  AlignedBuffer delta;             // float [rows, D]: an output that is completed; 0 between the halves
  ExpertScratch experts;
  LatentScratch latent;
  std::vector<WorkerScratch> workers;       // [threads]
  std::vector<AttentionScratch> attention;  // [threads]
  AttentionPartials partials;
  std::atomic<int64_t> next_attention_work{0};  // 0 when no thread is in Attend
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_SCRATCH_H_
