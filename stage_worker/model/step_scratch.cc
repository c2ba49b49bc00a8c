#include "stage_worker/model/step_scratch.h"

namespace stagecoach {
namespace {

AlignedBuffer Floats(int64_t rows, int64_t cols) {
  return AlignedBuffer(static_cast<size_t>(rows * cols) * sizeof(float));
}

}  // namespace

AttentionScratch::AttentionScratch(const AttentionSizes& sizes)
    : q(Floats(sizes.ColumnsPerWork(), sizes.head_dim)),
      state(Floats(sizes.ColumnsPerWork(), 2 + sizes.head_dim)),
      limits(static_cast<size_t>(sizes.ColumnsPerWork()) * sizeof(int32_t)) {}

AttentionPartials::AttentionPartials(const AttentionSizes& sizes)
    : states(Floats(sizes.PartialColumns(), 2 + sizes.head_dim)),
      finished(new std::atomic<int32_t>[static_cast<size_t>(sizes.MaxCuts())]()) {}

WorkerScratch::WorkerScratch(const LayerScratchSizes& sizes)
    : row(Floats(1, sizes.input_width)),
      input(sizes.forms, kFewRows, sizes.input_width),
      block(Floats(2, kBlockFloats)) {}

StepScratch::StepScratch(const LayerScratchSizes& sizes)
    : q_stride(sizes.q_stride),
      kv_stride(sizes.kv_stride),
      cos(Floats(sizes.attention.max_rows, sizes.head_dim / 2)),
      sin(Floats(sizes.attention.max_rows, sizes.head_dim / 2)),
      q(Floats(sizes.attention.max_rows, q_stride)),
      k(Floats(sizes.attention.max_rows, kv_stride)),
      v(Floats(sizes.attention.max_rows, kv_stride)),
      attended(Floats(sizes.attention.max_rows, q_stride)),
      input(sizes.forms, sizes.attention.max_rows, sizes.input_width),
      ffn_input(sizes.ffn_forms, sizes.attention.max_rows, sizes.ffn_width),
      partials(sizes.attention) {
  for (int thread = 0; thread < sizes.attention.threads; ++thread) {
    workers.emplace_back(sizes);
    attention.emplace_back(sizes.attention);
  }
}

}  // namespace stagecoach
