#ifndef STAGECOACH_TESTS_UNIT_STAGE_MODEL_ATTENTION_RIG_H_
#define STAGECOACH_TESTS_UNIT_STAGE_MODEL_ATTENTION_RIG_H_

// One step of one layer's attention over a cache of random numbers, which depend on sequence and position alone.

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/hyper_parameters.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kv/kv_pool.h"
#include "stage_worker/kv/sequence_table.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach::testing {

// Rows [start, start + rows) of a sequence whose first `start` > 0 positions are in the cache.
struct CachedSlice {
  int32_t start = 0;
  int32_t rows = 1;
};
std::string Name(const std::vector<CachedSlice>& slices);

class AttentionRig {
 public:
  // sinks: of the heads, where the spec has some.
  AttentionRig(const AttentionSpec& spec, const std::vector<CachedSlice>& slices, int threads, KvType type,
               const std::vector<float>& sinks = {});

  // `layers` times, as the layers of a step do. The bits of all rows.
  std::vector<uint32_t> Run(int layers);
  // The same as numbers, for every row [heads * cached_value_dim].
  std::vector<std::vector<float>> Rows(int layers);

  // Takes the blocks that no row of the step sees away: places in the table that are nowhere in the pool.
  void ReleaseBlocksBeforeTheWindow();

  // What the rows should be, in double, from the numbers before they were stored.
  std::vector<std::vector<double>> NaiveRows() const;

  const StepPlan& plan() const { return plan_; }

 private:
  std::vector<float> Key(SequenceId sequence, int64_t position, int64_t kv_head) const;
  std::vector<float> Value(SequenceId sequence, int64_t position, int64_t kv_head) const;
  float Query(SequenceId sequence, int64_t position, int64_t index) const;
  void Fill(SequenceId sequence, int32_t positions);
  int64_t FirstVisible(int64_t position) const;

  const LayerSpec spec_;
  const std::vector<CachedSlice> slices_;
  LayerWeights weights_;
  const StageLayer layer_;
  const Kernels& kernels_;
  const LayerScratchSizes sizes_;
  std::vector<KvPool> pools_;
  SequenceTable table_;
  StepPlan plan_;
  StepScratch scratch_;
  Gang gang_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_STAGE_MODEL_ATTENTION_RIG_H_
