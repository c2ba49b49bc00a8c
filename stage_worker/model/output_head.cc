#include "stage_worker/model/output_head.h"

#include "common/base/check.h"
#include "stage_worker/model/layers/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {

OutputHead::OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels,
                       const HeadScratchSizes& sizes, Gang* gang)
    : weights_(weights),
      hyper_(hyper),
      kernels_(kernels),
      gang_(gang),
      tile_rows_(sizes.tile_rows),
      forms_(sizes.forms),
      normed_(static_cast<size_t>(sizes.threads * sizes.hidden) * sizeof(float)),
      logits_(static_cast<size_t>(tile_rows_ * sizes.logits_stride) * sizeof(float)),
      input_(forms_, tile_rows_, sizes.hidden) {
  CHECK_EQ(sizes.logits_stride, weights.output.padded_rows());
}

void OutputHead::ForEachRow(const float* hidden, absl::Span<const int32_t> rows, Consumer consume) {
  gang_->Run([&](int thread) {
    const Worker worker{*gang_, thread};
    for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(tile_rows_)) {
      RunTile(hidden, rows.subspan(first, static_cast<size_t>(tile_rows_)), first, consume, worker);
      worker.Barrier();
    }
  });
}

void OutputHead::RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index, Consumer consume,
                         const Worker& worker) {
  const PackedMatrix& matrix = weights_.output;
  const int64_t width = hyper_.hidden, stride = matrix.padded_rows();
  const int64_t count = static_cast<int64_t>(rows.size());
  float* const normed = normed_.as<float>() + worker.thread * width;
  const Gang::Part part = worker.Share(count);
  for (int64_t i = part.begin; i < part.end; ++i) {
    kernels_.rms_norm(hidden + rows[static_cast<size_t>(i)] * width, weights_.output_norm.data(), width, hyper_.rms_eps,
                      normed);
    input_.Set(kernels_, forms_, i, width, 0, normed, width);
  }
  worker.Barrier();
  const Gang::Part panels = SharePanels(matrix, worker.thread, worker.threads());
  Project(kernels_, matrix, weights_.output_bias, input_.View(width), count, panels,
          logits_.as<float>() + panels.begin * kPanelRows, stride);
  const Gang::Part columns = OutputColumns(matrix, panels);
  for (int64_t i = 0; i < count; ++i) {
    ScaleAndCap(logits_.as<float>() + i * stride + columns.begin, columns.end - columns.begin);
  }
  worker.Barrier();
  for (int64_t i = part.begin; i < part.end; ++i) {
    consume(worker.thread, first_index + static_cast<size_t>(i), logits_.as<float>() + i * stride);
  }
}

void OutputHead::ScaleAndCap(float* logits, int64_t count) const {
  const float scale = hyper_.logit_scale, cap = hyper_.logit_cap;
  if (scale != 1) {
    for (int64_t i = 0; i < count; ++i) logits[i] *= scale;
  }
  if (cap > 0) kernels_.soft_cap(cap, count, logits);
}

}  // namespace stagecoach
