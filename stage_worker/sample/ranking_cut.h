#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_RANKING_CUT_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_RANKING_CUT_H_

// Where a ranking of logits ends, found without sorting it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "stage_worker/kernels/sampling.h"

namespace stagecoach {

// Logits rank by value, higher first, and equal ones by index, lower first. The beginning of that ranking: every logit
// above `floor`, and of those that equal it the ones before `tie_end`.
struct RankingCut {
  float floor = -std::numeric_limits<float>::infinity();
  int64_t tie_end = std::numeric_limits<int64_t>::max();
};

// Finds cuts by partitioning around values drawn from the row: one pass over it and some over ever smaller parts of it,
// whatever the distribution. NaN belongs to no ranking. Keeps its memory between calls; for one thread.
class RankingCutter {
 public:
  // The first `count` >= 1 of n logits below +infinity; all, when there are not as many.
  RankingCut First(const SamplingKernels& kernels, const float* x, int64_t n, int64_t count);

  // The shortest beginning whose weights come to at least `share` of those of all n logits. weighing.best is the
  // largest of them, weighing.floor -infinity, share in (0, 1].
  RankingCut Heaviest(const SamplingKernels& kernels, const float* x, int64_t n, const Weighing& weighing, float share);

  static size_t MaxBytes(int64_t n);

  struct Memory {
    std::vector<int32_t> indices;
    std::vector<float> values;        // what a search has narrowed down to
    std::vector<uint64_t> sums;       // of its weights, by block
    std::vector<uint64_t> part_sums;  // of a part of them
  };

 private:
  Memory memory_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_RANKING_CUT_H_
