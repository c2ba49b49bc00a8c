#include "coordinator/sim/sim_step.h"

#include <algorithm>
#include <vector>

namespace stagecoach {

StepResult AnswerTo(const MicroBatch& batch) {
  StepResult result{.number = batch.number};
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.sample) {
      result.sampled.push_back(
          {.sequence = slice.sequence, .position = slice.start + slice.count, .token = kSimulatedToken});
    }
    if (!slice.targets.empty()) {
      result.targets.push_back(
          {slice.sequence, slice.start, std::vector<float>(slice.targets.size(), 0.0f), /*invalid_logits=*/false});
    }
  }
  return result;
}

StepLoad LoadOf(const MicroBatch& batch, int64_t window) {
  StepLoad load;
  for (const SequenceSlice& slice : batch.slices) {
    const StepLoad rows = StepLoad::Chunk(slice.count, slice.start, slice.sample, window);
    load.rows += rows.rows;
    load.sequences += 1;
    load.positions += rows.positions;
    load.kv_tokens += rows.kv_tokens;
    load.window_positions += rows.window_positions;
    load.window_kv_tokens += rows.window_kv_tokens;
    const auto targets =
        slice.targets.size() - static_cast<size_t>(std::count(slice.targets.begin(), slice.targets.end(), kNoToken));
    load.head_rows += std::max(rows.head_rows, static_cast<double>(targets));
  }
  return load;
}

StepCost::StepCost(const PipelineModel* pipeline) : pipeline_(pipeline) {
  for (const PipelineStage& stage : pipeline->stages) {
    std::vector<Alike>& groups = layers_.emplace_back();
    const ModelParts& parts = stage.costs->parts();
    for (int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      const auto alike = std::find_if(groups.begin(), groups.end(), [&](const Alike& group) {
        return parts.layers[static_cast<size_t>(group.layer)] == parts.layers[static_cast<size_t>(layer)];
      });
      if (alike == groups.end()) {
        groups.push_back({layer, 1});
      } else {
        ++alike->count;
      }
    }
  }
}

double StepCost::Seconds(int stage, const StepLoad& load, int active) const {
  if (load.rows <= 0) return 0;
  const StageCosts& costs = *pipeline_->stages[static_cast<size_t>(stage)].costs;
  double seconds = 0;
  for (const Alike& group : layers_[static_cast<size_t>(stage)]) {
    seconds += static_cast<double>(group.count) * costs.Layer(group.layer, load, active);
  }
  return stage + 1 == pipeline_->size() ? seconds + costs.Head(load, active) : seconds;
}

}  // namespace stagecoach
