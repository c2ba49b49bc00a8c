#include "coordinator/sim/step_answer.h"

#include <utility>
#include <vector>

namespace stagecoach {

StepResult AnswerTo(const MicroBatch& batch) {
  StepResult result;
  result.number = batch.number;
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.sample) {
      SampledToken token;
      token.sequence = slice.sequence;
      token.position = slice.start + slice.count;
      token.token = kSimulatedToken;
      result.sampled.push_back(std::move(token));
    }
    if (!slice.targets.empty()) {
      result.targets.push_back(
          {slice.sequence, slice.start, std::vector<float>(slice.targets.size(), 0.0f), /*invalid_logits=*/false});
    }
  }
  return result;
}

}  // namespace stagecoach
