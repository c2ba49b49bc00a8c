#ifndef STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_

// The matrix products of a layer: their inputs, the products, and how their outputs join the residual stream
// x [rows, D]. What takes a Worker runs on all threads of the gang.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"
#include "stage_worker/weights/packed_matrix.h"

namespace stagecoach {

// The columns of the output that a run of panels gives: [begin, end), without the padding rows.
inline Gang::Part OutputColumns(const PackedMatrix& matrix, Gang::Part panels) {
  return {std::min(panels.begin * kPanelRows, matrix.rows), std::min(panels.end * kPanelRows, matrix.rows)};
}

// out[row, o] = dot(matrix row 16 panels.begin + o, input row) (+ bias): `panels` only, whose first output is column 0.
// out: [rows, out_stride], with room for whole panels. bias: nullptr or [matrix.rows]. next: as in PanelSpan.
inline void Project(const Kernels& kernels, const PackedMatrix& matrix, const float* bias, const Activations& input,
                    int64_t rows, Gang::Part panels, float* out, int64_t out_stride, const uint8_t* next = nullptr) {
  if (panels.begin == panels.end) return;
  PanelSpan span = matrix.Panels(panels.begin, panels.end);
  span.next = next;
  kernels.matmul(span, input, static_cast<int>(rows), out, out_stride);
  if (bias == nullptr) return;
  const Gang::Part columns = OutputColumns(matrix, panels);
  for (int64_t row = 0; row < rows; ++row) {
    kernels.add(bias + columns.begin, columns.end - columns.begin, out + row * out_stride);
  }
}
inline void Project(const Kernels& kernels, const PackedMatrix& matrix, const std::vector<float>& bias,
                    const Activations& input, int64_t rows, Gang::Part panels, float* out, int64_t out_stride) {
  Project(kernels, matrix, bias.empty() ? nullptr : bias.data(), input, rows, panels, out, out_stride);
}

// A product's outputs are used in blocks, so that they are still in the second-level cache: of up to kBlockRows rows,
// and of so many panels that the kernel's preparation of these rows is small beside its work; an even number, so that a
// block of outputs is whole groups of the activations that it becomes.
inline constexpr int64_t kBlockRows = 128;
inline int64_t BlockPanels(int64_t rows) { return kBlockFloats / (std::min(rows, kBlockRows) * kPanelRows * 2) * 2; }

// use(panels, first row, rows) for all blocks; those of the same panels follow each other, so that the panels are read
// from memory once. `step`: most panels of a block.
template <typename Use>
void ForEachBlock(Gang::Part panels, int64_t step, int64_t rows, const Use& use) {
  for (int64_t panel = panels.begin; panel < panels.end; panel += step) {
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      use(Gang::Part{panel, std::min(panel + step, panels.end)}, row, std::min(kBlockRows, rows - row));
    }
  }
}

// x [rows, matrix rows] += matrix * input + bias, shared by panels; the barrier after it is the caller's.
void AddProjection(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, float* x);

// An input in the forms that its readers want, valid until the next one: rows that `row_of` gives as floats [cols],
// valid until it is called again. With few rows (kFewRows) each thread prepares them all for itself, which costs less
// than a barrier; otherwise the threads share the rows and meet at a barrier.
Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         absl::FunctionRef<const float*(int64_t row)> row_of);

// RMSNorm(x) for x [rows, D], with the layer's epsilon; x itself in a layer without pre_norms.
Activations Normalized(const StageLayer& layer, const std::vector<float>& norm, const float* x, const InputForms& forms,
                       const StepContext& step, const Worker& worker);

// What half a layer adds its output to: x, or where the layer normalises or scales outputs
// (LayerSpec::completes_outputs) scratch.delta, which is 0 before and after.
float* OutputTarget(const StageLayer& layer, const StepContext& step, float* x);

// x += residual_scale * RMSNorm(delta), the norm where the layer has post_norms. On all threads of the gang, after the
// barrier behind the half; nothing for layers that add at once. Otherwise ends with a barrier.
void AddCompleted(const StageLayer& layer, const std::vector<float>& post_norm, const StepContext& step,
                  const Worker& worker, float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_
