#ifndef STAGECOACH_STAGE_WORKER_MODEL_EXPERT_SCRATCH_H_
#define STAGECOACH_STAGE_WORKER_MODEL_EXPERT_SCRATCH_H_

// The buffers of layers of experts, made once for the largest step: ExpertScratchSizes::bytes() of aligned memory. A
// pair is a row and one of the experts that it chose.

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/model/footprint.h"
#include "stage_worker/model/matmul_input.h"

namespace stagecoach {

// One thread's.
struct ExpertWorkerScratch {
  explicit ExpertWorkerScratch(const ExpertScratchSizes& sizes);

  AlignedBuffer routing;          // float: what Route works in
  AlignedBuffer chosen, weights;  // int32 and float [kFewRows, k]: of steps with so few rows
  AlignedBuffer begins, active;   // int32 [E + 1], [E]: see ExpertPlan
  AlignedBuffer rows, places;     // int32 [pairs], [pairs]
  MatmulInput gathered;           // [kExpertGatherRows, D]
  AlignedBuffer outputs;          // float: what all units give for some columns of D
};

struct ExpertScratch {
  explicit ExpertScratch(const ExpertScratchSizes& sizes);

  const int64_t rows, output_floats;         // ExpertScratchSizes' rows and outputs
  AlignedBuffer logits;                      // float [rows, E in whole panels]
  AlignedBuffer chosen, weights;             // int32 and float [rows, k]
  MatmulInput activated;                     // [pairs, F], pairs by expert
  std::vector<ExpertWorkerScratch> workers;  // [threads]
  // The next piece of work of either phase that nobody has taken; 0 when no thread is in that phase.
  std::atomic<int64_t> next_activation{0}, next_output{0};
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_EXPERT_SCRATCH_H_
