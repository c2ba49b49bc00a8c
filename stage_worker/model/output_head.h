#ifndef STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_
#define STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/model/footprint.h"
#include "common/model/hyper_parameters.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// Final norm and logits, in tiles of rows so that the logits of a large vocabulary stay small. Used by one thread,
// which leads the gang.
class OutputHead {
 public:
  // Called on any thread of the gang with the index into `rows` and that row's raw logits [V].
  using Consumer = absl::FunctionRef<void(int thread, size_t index, const float* logits)>;

  // All arguments but the sizes outlive the head, which takes sizes.head_bytes() of aligned memory.
  OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels,
             const HeadScratchSizes& sizes, Gang* gang);

  // logits = Wout RMSNorm(hidden row) (+ bias), times logit_scale and then capped where the model says so, of these
  // rows of hidden [.., D], each handed to `consume` once.
  void ForEachRow(const float* hidden, absl::Span<const int32_t> rows, Consumer consume);

 private:
  void RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index, Consumer consume,
               const Worker& worker);
  void ScaleAndCap(float* logits, int64_t count) const;

  const StageWeights& weights_;
  const HyperParameters& hyper_;
  const Kernels& kernels_;
  Gang* const gang_;
  const int64_t tile_rows_;
  const InputForms forms_;
  AlignedBuffer normed_;  // float [threads, D]: a row on its way into the input
  AlignedBuffer logits_;  // float [tile_rows, V rounded up to panels]
  MatmulInput input_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_OUTPUT_HEAD_H_
