#ifndef STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_IMPL_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_IMPL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/model/footprint.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kv/kv_pool.h"
#include "stage_worker/kv/sequence_table.h"
#include "stage_worker/model/output_head.h"
#include "stage_worker/model/rope_table.h"
#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/stage_model.h"
#include "stage_worker/model/step_plan.h"
#include "stage_worker/model/step_scratch.h"
#include "stage_worker/sample/sampler.h"
#include "stage_worker/sample/token_history.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

class StageModelImpl final : public StageModel {
 public:
  static absl::StatusOr<std::unique_ptr<StageModelImpl>> Create(std::shared_ptr<const ModelDescription> model,
                                                                const StageConfig& config, StageCounters* counters);

  absl::Status Begin(const MicroBatch& batch) override;
  void Forward(const MicroBatch& batch, float* hidden) override;
  absl::Span<const uint32_t> layer_checksums() const override { return checksums_; }
  void Finish(const MicroBatch& batch, const float* hidden, StepResult* result) override;

  uint64_t weight_bytes() const override { return weights_.bytes(); }
  uint64_t kv_bytes() const override;
  uint64_t scratch_bytes() const override { return scratch_sizes_.bytes(); }
  const char* isa() const override { return kernels_.isa; }

  // For tests, on a stage with the head: raw logits [V] of one hidden row [D].
  void ComputeLogits(const float* hidden_row, float* logits);

 private:
  // A row that needs logits.
  struct HeadRow {
    const SequenceSlice* slice = nullptr;
    int32_t offset = 0;                   // in the slice
    SampledToken* sampled = nullptr;      // nullptr: not sampled
    float* target_logprob = nullptr;      // nullptr: no target
    absl::Span<TokenLogprob> target_top;  // the most probable beside the target
    bool* target_invalid = nullptr;  // of its target list, which rows of other threads share: set when all are done
    bool invalid = false;            // its logits, when it has a target
  };

  StageModelImpl(std::shared_ptr<const ModelDescription> model, const StageConfig& config, StageCounters* counters,
                 const Kernels& kernels, std::unique_ptr<Gang> gang, StageWeights weights, std::vector<KvPool> pools);

  absl::Status CheckSize(const MicroBatch& batch) const;
  absl::Status CheckTokens(const MicroBatch& batch) const;                     // stage with the embedding
  absl::Status CheckHeadWork(const MicroBatch& batch) const;                   // stage with the head
  void AddChecksums(size_t layer, const float* hidden, const Worker& worker);  // of this worker's share of the rows
  void ListHeadRows(const MicroBatch& batch, StepResult* result);
  void FinishRow(int thread, HeadRow& row, const float* logits);
  void FindTop(int thread, const float* logits, float log_sum, absl::Span<TokenLogprob> top);

  const std::shared_ptr<const ModelDescription> model_;
  const HyperParameters& hyper_;
  const StageConfig config_;
  StageCounters* const counters_;
  const Kernels& kernels_;
  const StageWeights weights_;
  const StageScratchSizes scratch_sizes_;
  const std::vector<StageLayer> layers_;
  std::vector<RopeTable> ropes_;  // [scratch_sizes_.layers.ropes]

  std::vector<KvPool> pools_;  // [block groups]; empty where no layer of this stage is in the group
  SequenceTable table_;
  const std::unique_ptr<Gang> gang_;
  StepPlan plan_;
  StepScratch scratch_;
  std::vector<uint32_t> checksums_;  // [layers][rows] of the last Forward, where they are asked for

  // Stage with the head only.
  std::unique_ptr<OutputHead> head_;
  absl::flat_hash_map<SequenceId, TokenHistory> histories_;
  std::vector<Sampler> samplers_;  // [threads]
  std::vector<HeadRow> head_rows_;
  std::vector<int32_t> head_row_indices_;  // of head_rows_, in the batch
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_IMPL_H_
