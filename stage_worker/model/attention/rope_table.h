#ifndef STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ROPE_TABLE_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ROPE_TABLE_H_

#include <cstdint>
#include <vector>

#include "common/model/hyper_parameters.h"

namespace stagecoach {

// The angles of rotary position embedding (RoFormer, Su et al. 2021), with linear, YaRN (Peng et al. 2023) and Llama 3
// scaling. All in double from arithmetic of our own, rounded to float at the end, so that every machine has the same
// bits. Immutable.
class RopeTable {
 public:
  // rope_freqs: rope.dims / 2 divisors of the frequencies where rope.factors says that there are some.
  RopeTable(const RopeParameters& rope, const std::vector<float>& rope_freqs);

  // cos and sin [rope.dims / 2] of one position, to be applied to every head. With YaRN both carry the magnitude.
  void Angles(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;  // [rope.dims / 2] radians per position
  double magnitude_ = 1;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ROPE_TABLE_H_
