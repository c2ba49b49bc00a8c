#include "tests/testing/engine/instant_pipeline.h"

#include <utility>

namespace stagecoach {

absl::Status InstantPipeline::Submit(const MicroBatch& batch) {
  ++submitted_;
  last_number_ = batch.number;
  StepResult result;
  result.number = batch.number;
  for (const SequenceSlice& slice : batch.slices) {
    if (!slice.sample) continue;
    const int32_t position = slice.start + slice.count;
    SampledToken token = {slice.sequence, position, position % 100, -1, {}};
    for (int i = 0; i < top_; ++i) token.top.push_back({i, static_cast<float>(-i)});
    result.sampled.push_back(std::move(token));
  }
  result.times.push_back({.stage = 0, .end_us = 10});
  results_.push_back(std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StepResult>> InstantPipeline::Poll() {
  if (results_.empty()) return std::optional<StepResult>();
  std::optional<StepResult> result = std::move(results_.front());
  results_.pop_front();
  return result;
}

SchedulerOptions RoomFor(int sequences) {
  SchedulerOptions options;
  options.max_num_seqs = sequences;
  options.policy = Policy::kInterleaved;
  options.prefix_caching = false;
  options.group_blocks = {sequences * 32};
  options.context = 1024;
  options.max_open_tokens = 1024;
  return options;
}

}  // namespace stagecoach
