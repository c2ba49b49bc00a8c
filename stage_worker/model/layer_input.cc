#include "stage_worker/model/layer_input.h"

#include "stage_worker/model/latent.h"

namespace stagecoach {

Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         absl::FunctionRef<const float*(int64_t row)> row_of) {
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

Activations Attended(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  if (layer.spec.attention.latent()) return LatentOutput(layer, step, worker);
  return PrepareInput(layer.forms.output, layer.spec.attention.output_width(), step, worker, [&](int64_t row) {
    return step.scratch.attended.as<float>() + row * step.scratch.attended_stride;
  });
}

}  // namespace stagecoach
