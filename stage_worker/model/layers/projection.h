#ifndef STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_

// The matrix products of a layer, their inputs, and the addition of outputs to the residual stream x [rows, D].
// Functions with a Worker run on all threads of the gang.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// The output columns of a run of panels, [begin, end), without padding rows.
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
                    const Activations& input, int64_t rows, Gang::Part panels, float* out, int64_t out_stride,
                    const uint8_t* next = nullptr) {
  Project(kernels, matrix, bias.empty() ? nullptr : bias.data(), input, rows, panels, out, out_stride, next);
}

inline const uint8_t* PanelsAt(const PackedMatrix& matrix, int64_t panel) {
  return matrix.Panels(panel, matrix.panels()).data;
}

// Outputs are used in blocks that stay in the second-level cache: of up to kBlockRows rows, and of enough panels to
// make the kernel's preparation of these rows cheap; an even number, so that a block is whole groups of the activations
// made of it.
inline constexpr int64_t kBlockRows = 128;
inline int64_t BlockPanels(int64_t rows) { return kBlockFloats / (std::min(rows, kBlockRows) * kPanelRows * 2) * 2; }

// How many units of `unit_panels` panels of a matrix a thread takes at a time for these rows: enough bytes to read them
// as a stream, and of many rows enough panels to make the kernel's preparation of their inputs cheap.
inline RunLength PanelRuns(const PackedMatrix& matrix, int64_t unit_panels, int64_t rows) {
  constexpr int64_t kStreamBytes = 64 << 10, kManyRows = 8, kManyRowsPanels = 24;
  const int64_t unit_bytes = static_cast<int64_t>(PanelBytes(matrix.type, matrix.cols)) * unit_panels;
  const int64_t streamed = (kStreamBytes + unit_bytes - 1) / unit_bytes;
  return {.least = rows > kManyRows ? std::max((kManyRowsPanels + unit_panels - 1) / unit_panels, streamed) : streamed};
}

// use(panels, next) for the runs of a matrix's panels that this thread gets; `next` as in PanelSpan.
template <typename Use>
void DividePanels(const PackedMatrix& matrix, int64_t rows, const Worker& worker, const Use& use) {
  worker.Divide(matrix.panels(), PanelRuns(matrix, 1, rows),
                [&](WorkRun run) { use(run.items, run.more ? PanelsAt(matrix, run.items.end) : nullptr); });
}

// use(panels, first row, rows) for all blocks, at most `step` panels each; blocks of the same panels are consecutive,
// so panels are read from memory once.
template <typename Use>
void ForEachBlock(Gang::Part panels, int64_t step, int64_t rows, const Use& use) {
  for (int64_t panel = panels.begin; panel < panels.end; panel += step) {
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      use(Gang::Part{panel, std::min(panel + step, panels.end)}, row, std::min(kBlockRows, rows - row));
    }
  }
}

// out [rows, stride] = matrix * input (+ bias), divided by panels; the barrier after it is the caller's. `part`: of the
// step's account, here and below.
void ProjectPanels(StepPart part, const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, const AlignedBuffer& out, int64_t stride);

// x [rows, matrix rows] += matrix * input + bias, divided by panels; the barrier after it is the caller's.
void AddProjection(StepPart part, const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, float* x);

// An input in these forms, valid until the next call. `row_of` gives a row of floats [cols], valid until its next call.
// Of few rows (kFewRows) each thread prepares all itself, which costs less than a barrier; otherwise the threads share
// the rows and meet at a barrier.
Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         absl::FunctionRef<const float*(int64_t row)> row_of);

// RMSNorm(x) for x [rows, D], with the layer's epsilon; x itself in a layer without pre_norms.
Activations Normalized(const StageLayer& layer, const std::vector<float>& norm, const float* x, const InputForms& forms,
                       const StepContext& step, const Worker& worker);

// Where half a layer adds its output: x, or scratch.delta, which is 0 before and after, if
// LayerSpec::completes_outputs.
float* OutputTarget(const StageLayer& layer, const StepContext& step, float* x);

// x += residual_scale * RMSNorm(delta), the norm only with post_norms; then ends with a barrier. Nothing for layers
// that add directly. Runs on all threads, after the barrier behind the half.
void AddCompleted(const StageLayer& layer, const std::vector<float>& post_norm, const StepContext& step,
                  const Worker& worker, float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LAYERS_PROJECTION_H_
