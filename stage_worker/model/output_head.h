#ifndef STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_
#define STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/model/hyper_parameters.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/matmul_input.h"
#include "stage_worker/model/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// Final norm and logits, in tiles of a few rows so that the logits of a large vocabulary stay small. Used by one
// thread, which leads the gang.
class OutputHead {
 public:
  // Called on any thread of the gang with the index into `rows` and that row's raw logits [V].
  using Consumer = std::function<void(int thread, size_t index, const float* logits)>;

  // All arguments outlive the head.
  OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels, Gang* gang);

  // logits = Wout RMSNorm(hidden row) (+ bias) of these rows of hidden [.., D], each handed to `consume` once.
  void ForEachRow(const float* hidden, absl::Span<const int32_t> rows, const Consumer& consume);

  static constexpr int64_t kTileRows = 8;
  size_t scratch_bytes() const { return normed_.size() + logits_.size() + input_.bytes(); }

 private:
  void RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index, const Consumer& consume,
               const Worker& worker);

  const StageWeights& weights_;
  const HyperParameters& hyper_;
  const Kernels& kernels_;
  Gang* const gang_;
  AlignedBuffer normed_;  // float [kTileRows, D]
  AlignedBuffer logits_;  // float [kTileRows, V rounded up to panels]
  MatmulInput input_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_
