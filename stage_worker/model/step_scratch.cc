#include "stage_worker/model/step_scratch.h"

#include <algorithm>

namespace stagecoach {
namespace {

AlignedBuffer Floats(int64_t rows, int64_t cols) {
  return AlignedBuffer(static_cast<size_t>(rows * cols) * sizeof(float));
}

}  // namespace

AttentionScratch::AttentionScratch(const WalkMemory& memory)
    : q(Floats(1, memory.query_floats)),
      state(Floats(1, memory.state_floats)),
      limits(static_cast<size_t>(memory.limits) * sizeof(int32_t)),
      begins(static_cast<size_t>(memory.begins) * sizeof(int32_t)),
      values(Floats(1, memory.value_floats)) {}

AttentionPartials::AttentionPartials(const WalkMemory& memory)
    : states(Floats(1, memory.partial_floats)),
      finished(new std::atomic<int32_t>[static_cast<size_t>(memory.cuts)]()) {}

StepAngles::StepAngles(int64_t rows, int64_t row_pairs)
    : pairs(row_pairs), cos(Floats(rows, row_pairs)), sin(Floats(rows, row_pairs)) {}

WorkerScratch::WorkerScratch(const LayerScratchSizes& sizes)
    : row(Floats(1, sizes.input_width)),
      input(sizes.forms, kFewRows, sizes.input_width),
      block(Floats(2, kBlockFloats)) {}

LatentScratch::LatentScratch(const LatentScratchSizes& sizes, int64_t rows, int threads)
    : sizes(sizes),
      q_a(Floats(rows, sizes.q_a_stride)),
      q(Floats(rows, sizes.q_stride)),
      row(Floats(rows, sizes.row_stride)),
      output(Floats(rows, sizes.output_stride)) {
  for (int thread = 0; sizes.row_stride > 0 && thread < threads; ++thread) {
    heads.push_back(
        {MatmulInput(sizes.head_forms, kLatentRows, sizes.head_width), Floats(kLatentRows, sizes.head_outputs)});
  }
}

StepScratch::StepScratch(const LayerScratchSizes& sizes)
    : q_stride(sizes.q_stride),
      kv_stride(sizes.kv_stride),
      attended_stride(sizes.attended_stride),
      q(Floats(sizes.limits.max_rows, q_stride)),
      k(Floats(sizes.limits.max_rows, kv_stride)),
      v(Floats(sizes.limits.max_rows, kv_stride)),
      attended(Floats(sizes.limits.max_rows, attended_stride)),
      input(sizes.forms, sizes.limits.max_rows, sizes.input_width),
      ffn_input(sizes.ffn_forms, sizes.limits.max_rows, sizes.ffn_width),
      delta(Floats(sizes.limits.max_rows, sizes.delta_width)),
      experts(sizes.experts),
      latent(sizes.latent, sizes.limits.max_rows, sizes.limits.threads),
      partials(sizes.walk_memory()) {
  std::fill_n(delta.as<float>(), sizes.limits.max_rows * sizes.delta_width, 0.0f);
  for (const RopeParameters& rope : sizes.ropes) angles.emplace_back(sizes.limits.max_rows, rope.dims / 2);
  for (int thread = 0; thread < sizes.limits.threads; ++thread) {
    workers.emplace_back(sizes);
    attention.emplace_back(sizes.walk_memory());
  }
}

}  // namespace stagecoach
