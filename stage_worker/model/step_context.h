#ifndef STAGECOACH_STAGE_WORKER_MODEL_STEP_CONTEXT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STEP_CONTEXT_H_

// What the parts of the forward pass share while a step runs. All threads of the gang run the same code; between two
// barriers each works on its own rows, heads or output rows, and what one phase wrote the next may read.

#include <cstdint>
#include <vector>

#include "common/model/layer_spec.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kv/kv_pool.h"
#include "stage_worker/model/step_plan.h"
#include "stage_worker/model/step_scratch.h"

namespace stagecoach {

struct StepContext {
  int64_t hidden;  // D
  const Kernels& kernels;
  const StepPlan& plan;
  std::vector<KvPool>& pools;  // [block groups]
  StepScratch& scratch;

  KvPool& PoolOf(const LayerSpec& layer) const { return pools[static_cast<size_t>(layer.block_group)]; }
};

// One thread of the gang.
struct Worker {
  Gang& gang;
  int thread;

  int threads() const { return gang.threads(); }
  Gang::Part Share(int64_t count) const { return Gang::Share(count, thread, gang.threads()); }
  void Barrier() const { gang.Barrier(); }
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_CONTEXT_H_
