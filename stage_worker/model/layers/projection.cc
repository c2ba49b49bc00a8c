#include "stage_worker/model/layers/projection.h"

#include <algorithm>

namespace stagecoach {

void ProjectPanels(StepPart part, const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, const AlignedBuffer& out, int64_t stride) {
  worker.Enter(part);
  worker.AllRead(matrix.bytes());
  const int64_t rows = step.plan.row_count();
  DividePanels(matrix, rows, worker, [&](Gang::Part panels, const uint8_t* next) {
    Project(step.kernels, matrix, bias, input, rows, panels, out.as<float>() + panels.begin * kPanelRows, stride, next);
  });
}

void AddProjection(StepPart part, const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, float* x) {
  worker.Enter(part);
  worker.AllRead(matrix.bytes());
  const int64_t rows = step.plan.row_count();
  float* const delta = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  DividePanels(matrix, rows, worker, [&](Gang::Part panels, const uint8_t* next) {
    ForEachBlock(panels, BlockPanels(rows), rows, [&](Gang::Part block, int64_t first, int64_t count) {
      const int64_t stride = (block.end - block.begin) * kPanelRows;
      Project(step.kernels, matrix, bias, RowsFrom(input, matrix.cols, first), count, block, delta, stride,
              block.end < panels.end ? PanelsAt(matrix, block.end) : next);
      const Gang::Part columns = OutputColumns(matrix, block);
      for (int64_t row = 0; row < count; ++row) {
        step.kernels.add(delta + row * stride, columns.end - columns.begin,
                         x + (first + row) * matrix.rows + columns.begin);
      }
    });
  });
}

Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         absl::FunctionRef<const float*(int64_t row)> row_of) {
  worker.Enter(StepPart::kInput);
  const int64_t rows = step.plan.row_count();
  const bool few = rows <= kFewRows;
  MatmulInput& input = few ? step.scratch.workers[static_cast<size_t>(worker.thread)].input : step.scratch.input;
  const Gang::Part part = few ? Gang::Part{0, rows} : worker.Share(rows);
  for (int64_t row = part.begin; row < part.end; ++row) {
    input.Set(step.kernels, forms, row, cols, 0, row_of(row), cols);
  }
  if (!few) worker.Barrier();
  return input.View(cols);
}

Activations Normalized(const StageLayer& layer, const std::vector<float>& norm, const float* x, const InputForms& forms,
                       const StepContext& step, const Worker& worker) {
  float* const normed = step.scratch.workers[static_cast<size_t>(worker.thread)].row.as<float>();
  return PrepareInput(forms, step.hidden, step, worker, [&](int64_t row) {
    const float* const in = x + row * step.hidden;
    if (!layer.spec.pre_norms) return in;
    step.kernels.rms_norm(in, norm.data(), step.hidden, layer.spec.norm_eps, normed);
    return static_cast<const float*>(normed);
  });
}

float* OutputTarget(const StageLayer& layer, const StepContext& step, float* x) {
  return layer.spec.completes_outputs() ? step.scratch.delta.as<float>() : x;
}

void AddCompleted(const StageLayer& layer, const std::vector<float>& post_norm, const StepContext& step,
                  const Worker& worker, float* x) {
  if (!layer.spec.completes_outputs()) return;
  worker.Enter(StepPart::kInput);
  const Gang::Part part = worker.Share(step.plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    float* const delta = step.scratch.delta.as<float>() + row * step.hidden;
    if (layer.spec.post_norms) {
      step.kernels.rms_norm(delta, post_norm.data(), step.hidden, layer.spec.norm_eps, delta);
    }
    step.kernels.add_scaled(delta, layer.spec.residual_scale, step.hidden, x + row * step.hidden);
    std::fill_n(delta, step.hidden, 0.0f);
  }
  worker.Barrier();
}

}  // namespace stagecoach
