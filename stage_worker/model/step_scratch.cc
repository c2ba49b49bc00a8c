#include "stage_worker/model/step_scratch.h"

#include <algorithm>

#include "stage_worker/model/projection.h"

namespace stagecoach {
namespace {

int64_t PanelStride(int64_t width) { return static_cast<int64_t>(RoundUp(static_cast<size_t>(width), kPanelRows)); }

AlignedBuffer Floats(int64_t rows, int64_t cols) {
  return AlignedBuffer(static_cast<size_t>(rows * cols) * sizeof(float));
}

}  // namespace

AttentionScratch::AttentionScratch(int64_t columns, int64_t head_dim)
    : q(Floats(columns, head_dim)), state(Floats(columns, 2 + head_dim)), limits(static_cast<size_t>(columns)) {}

size_t AttentionScratch::bytes() const { return q.size() + state.size() + limits.size() * sizeof(int32_t); }

AttentionPartials::AttentionPartials(const AttentionSizes& sizes)
    : states(Floats(sizes.PartialColumns(), 2 + sizes.head_dim)),
      finished(new std::atomic<int32_t>[static_cast<size_t>(sizes.MaxCuts())]()) {}

size_t AttentionPartials::bytes() const { return states.size(); }

WorkerScratch::WorkerScratch(const InputForms& forms, int64_t width)
    : row(Floats(1, width)), input(forms, kFewRows, width), block(Floats(2, kBlockFloats)) {}

size_t WorkerScratch::bytes() const { return row.size() + input.bytes() + block.size(); }

StepScratch::StepScratch(int64_t hidden, const AttentionSpec& spec, int64_t ffn, const InputForms& forms,
                         const InputForms& ffn_forms, const AttentionSizes& sizes)
    : q_stride(PanelStride(spec.q_width())),
      kv_stride(PanelStride(spec.kv_width())),
      cos(Floats(sizes.max_rows, spec.head_dim / 2)),
      sin(Floats(sizes.max_rows, spec.head_dim / 2)),
      q(Floats(sizes.max_rows, q_stride)),
      k(Floats(sizes.max_rows, kv_stride)),
      v(Floats(sizes.max_rows, kv_stride)),
      attended(Floats(sizes.max_rows, q_stride)),
      input(forms, sizes.max_rows, std::max(hidden, spec.q_width())),
      ffn_input(ffn_forms, sizes.max_rows, ffn),
      partials(sizes) {
  for (int thread = 0; thread < sizes.threads; ++thread) {
    workers.emplace_back(forms, std::max(hidden, spec.q_width()));
    attention.emplace_back(sizes.ColumnsPerWork(), spec.head_dim);
  }
}

size_t StepScratch::bytes() const {
  size_t bytes = input.bytes() + ffn_input.bytes() + partials.bytes();
  for (const AlignedBuffer* buffer : {&cos, &sin, &q, &k, &v, &attended}) bytes += buffer->size();
  for (const WorkerScratch& scratch : workers) bytes += scratch.bytes();
  for (const AttentionScratch& scratch : attention) bytes += scratch.bytes();
  return bytes;
}

}  // namespace stagecoach
