#include "stage_worker/model/step_scratch.h"

#include <algorithm>

namespace stagecoach {
namespace {

int64_t PanelStride(int64_t width) { return static_cast<int64_t>(RoundUp(static_cast<size_t>(width), kPanelRows)); }

AlignedBuffer Floats(int64_t rows, int64_t cols) {
  return AlignedBuffer(static_cast<size_t>(rows * cols) * sizeof(float));
}

}  // namespace

AttentionScratch::AttentionScratch(int64_t columns, int64_t head_dim)
    : q(Floats(columns, head_dim)),
      acc(Floats(columns, head_dim)),
      max(static_cast<size_t>(columns)),
      sum(static_cast<size_t>(columns)),
      limits(static_cast<size_t>(columns)) {}

size_t AttentionScratch::bytes() const {
  return q.size() + acc.size() + (max.size() + sum.size()) * sizeof(float) + limits.size() * sizeof(int32_t);
}

StepScratch::StepScratch(const HyperParameters& hyper, int32_t max_rows, int threads, int64_t attention_columns)
    : hidden_stride(PanelStride(hyper.hidden)),
      q_stride(PanelStride(hyper.q_width())),
      kv_stride(PanelStride(hyper.kv_width())),
      ffn_stride(PanelStride(hyper.ffn)),
      cos(Floats(max_rows, hyper.head_dim / 2)),
      sin(Floats(max_rows, hyper.head_dim / 2)),
      normed(Floats(max_rows, hidden_stride)),
      q(Floats(max_rows, q_stride)),
      k(Floats(max_rows, kv_stride)),
      v(Floats(max_rows, kv_stride)),
      attended(Floats(max_rows, q_stride)),
      gate(Floats(max_rows, ffn_stride)),
      up(Floats(max_rows, ffn_stride)),
      delta(Floats(max_rows, hidden_stride)),
      input(max_rows, std::max({hyper.hidden, hyper.q_width(), hyper.ffn})) {
  for (int thread = 0; thread < threads; ++thread) attention.emplace_back(attention_columns, hyper.head_dim);
}

size_t StepScratch::bytes() const {
  size_t bytes = input.bytes();
  for (const AlignedBuffer* buffer : {&cos, &sin, &normed, &q, &k, &v, &attended, &gate, &up, &delta})
    bytes += buffer->size();
  for (const AttentionScratch& scratch : attention) bytes += scratch.bytes();
  return bytes;
}

}  // namespace stagecoach
