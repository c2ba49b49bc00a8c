#include "stage_worker/model/output_head.h"

#include <algorithm>

#include "stage_worker/model/projection.h"

namespace stagecoach {

OutputHead::OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels, Gang* gang)
    : weights_(weights),
      hyper_(hyper),
      kernels_(kernels),
      gang_(gang),
      normed_(static_cast<size_t>(kTileRows * hyper.hidden) * sizeof(float)),
      logits_(static_cast<size_t>(kTileRows * weights.output.padded_rows()) * sizeof(float)),
      input_(kTileRows, hyper.hidden) {}

void OutputHead::ForEachRow(const float* hidden, absl::Span<const int32_t> rows, const Consumer& consume) {
  gang_->Run([&](int thread) {
    const Worker worker{*gang_, thread};
    for (size_t first = 0; first < rows.size(); first += kTileRows) {
      RunTile(hidden, rows.subspan(first, kTileRows), first, consume, worker);
      worker.Barrier();
    }
  });
}

void OutputHead::RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index,
                         const Consumer& consume, const Worker& worker) {
  const int64_t width = hyper_.hidden, stride = weights_.output.padded_rows();
  const int64_t count = static_cast<int64_t>(rows.size());
  float* normed = normed_.as<float>();
  const Gang::Part part = worker.Share(count);
  for (int64_t i = part.begin; i < part.end; ++i) {
    kernels_.rms_norm(hidden + rows[static_cast<size_t>(i)] * width, weights_.output_norm.data(), width, hyper_.rms_eps,
                      normed + i * width);
  }
  if (MatmulInput::WantsInt8(kernels_, {&weights_.output})) input_.Quantize(kernels_, normed, width, width, part);
  worker.Barrier();
  Project(kernels_, weights_.output, weights_.output_bias, input_.View(normed, width), count,
          worker.Share(weights_.output.panels()), logits_.as<float>(), stride);
  worker.Barrier();
  for (int64_t i = part.begin; i < part.end; ++i) {
    consume(worker.thread, first_index + static_cast<size_t>(i), logits_.as<float>() + i * stride);
  }
}

}  // namespace stagecoach
