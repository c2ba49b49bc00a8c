#ifndef STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_

// One stage's share of the model: layers, KV pools of their block groups, and at the ends the embedding, and the head
// with the sampler.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/job/job_choices.h"
#include "common/model/footprint.h"
#include "common/step/step.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kv/slot_table.h"
#include "stage_worker/kv/state_pool.h"
#include "stage_worker/model/attention/attention.h"
#include "stage_worker/model/layers/step_context.h"
#include "stage_worker/sample/sampler.h"
#include "stage_worker/sample/sampling_tails.h"

namespace stagecoach {

// Final norm and logits, in tiles of rows, which bound the memory for logits. Used by the thread that leads the gang.
class OutputHead {
 public:
  // Called on any thread of the gang with the index into `rows` and that row's raw logits [V].
  using Consumer = absl::FunctionRef<void(int thread, size_t index, const float* logits)>;

  // All arguments but the sizes outlive the head, which takes sizes.head_bytes() of aligned memory.
  OutputHead(const StageWeights& weights, const HyperParameters& hyper, const Kernels& kernels,
             const HeadScratchSizes& sizes, Gang* gang);

  // Calls `consume` once for each of these rows of hidden [.., D] with logits = Wout RMSNorm(row) (+ bias), times
  // logit_scale, then capped, where the model says so.
  void ForEachRow(const float* hidden, absl::Span<const int32_t> rows, Consumer consume);

 private:
  void RunTile(const float* hidden, absl::Span<const int32_t> rows, size_t first_index, Consumer consume,
               const Worker& worker);

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

struct StageConfig {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // exclusive
  bool owns_embedding = false;
  bool owns_head = false;
  int32_t block_tokens = 32;           // a multiple of 16
  std::vector<int32_t> group_blocks;   // [groups] of each block group's pool; as many groups as the model has
  int32_t state_slots = 0;             // of recurrent states; 0 if and only if no layer of the model has one
  std::vector<int64_t> group_windows;  // [groups] behind which blocks are released, 0: never; empty: of no group
  int32_t most_guesses = 0;            // of a sequence in flight; 0: none are sent
  bool cuts_history = false;           // of a draft, which is one stage: see StageModel::Begin
  KvType kv_type = KvType::kF16;
  int32_t threads = 1;
  std::vector<int> cpus;
  bool contended = false;  // others compute on these CPUs too
  int64_t context = 0;
  int32_t max_rows = 0;
  int32_t max_slices = 0;
  std::optional<InstructionSet> isa;  // absent: the best of this machine
  bool layer_checksums = false;       // see StageModel::layer_checksums
  bool allow_damaged = false;         // damaged weights are loaded all the same
};

// Written by the loading and the computing threads, read by the communication thread.
struct StageCounters {
  std::atomic<uint64_t> bytes_to_load{0};
  std::atomic<uint64_t> bytes_touched{0};  // of the memory for the weights, before they are loaded into it
  std::atomic<uint64_t> bytes_loaded{0};
  std::atomic<uint64_t> layers_done{0};
  MaskCounters masks;
};

// Used by one thread at a time.
class StageModel {
 public:
  // Reads this stage's tensors (and no other bytes), packs them, and makes the pools. `counters` outlives the model.
  static absl::StatusOr<std::unique_ptr<StageModel>> Load(std::shared_ptr<const ModelDescription> model,
                                                          const StageConfig& config, StageCounters* counters);

  // Applies a micro-batch's frees, grammars, opens and block-table changes, and what its slices do to state slots.
  // kInvalidArgument, with nothing changed: what SequenceTable and SlotTable refuse, and on the stage with the head bad
  // grammars (SamplingTails), rows sampled for another position than that behind the sequence's tokens, and guesses
  // without their token.
  // With cuts_history the slices say what the sequence's tokens are, and rows that were sampled one by one count as
  // guesses: a slice may go back over them, and what was sampled there is taken back (SamplingTail::Follow).
  absl::Status Begin(const MicroBatch& batch);

  // Runs the rows of that batch through this stage's layers. hidden: [rows, D] float, in place; a stage with the
  // embedding fills it from the tokens first.
  void Forward(const MicroBatch& batch, float* hidden);

  // [layers of this stage][rows] of the last Forward: CRC-32C of each row's hidden state after each layer. Empty unless
  // the config asks for them.
  absl::Span<const uint32_t> layer_checksums() const { return checksums_; }

  // Stage with the head: fills result->sampled and result->targets from the logits of the rows that need them. Guessed
  // rows are judged (GuessHolds); of those that do not hold nothing is sampled or appended, and no mask is made.
  void Finish(const MicroBatch& batch, const float* hidden, StepResult* result);

  // While there is nothing to do: finds out what a grammar allows a sequence next, so that its next row need not wait
  // for that. False: no more is to be found out.
  bool MakeAnyMask() { return tails_.MakeAnyMask(); }

  uint64_t weight_bytes() const { return weights_.bytes(); }
  uint64_t kv_bytes() const;  // of K and V, and of state slots
  uint64_t scratch_bytes() const { return scratch_sizes_.bytes(); }
  const char* isa() const { return kernels_.isa; }

  // Of the parts of a step, since the last call or loading.
  StepAccount TakeAccount() { return gang_->TakeAccount(); }

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

  StageModel(std::shared_ptr<const ModelDescription> model, const StageConfig& config, StageCounters* counters,
             const Kernels& kernels, std::unique_ptr<Gang> gang, StageWeights weights, std::vector<KvPool> pools,
             StatePool states);

  absl::Status CheckSize(const MicroBatch& batch) const;
  absl::Status CheckTokens(const MicroBatch& batch) const;      // stage with the embedding
  absl::Status CheckHeadWork(const MicroBatch& batch) const;    // stage with the head
  absl::Status CheckTargets(const SequenceSlice& slice) const;  // "
  absl::Status CheckPosition(const SequenceSlice& slice, int64_t known, int64_t opened) const;  // "
  void AddChecksums(size_t layer, const float* hidden, const Worker& worker);  // of this worker's share of the rows
  bool IsVoid(const SequenceSlice& slice) const;                               // stage with the head
  void ListHeadRows(const MicroBatch& batch, StepResult* result);
  void MakeMasks();  // that the head rows lack
  void FinishRow(int thread, HeadRow& row, const float* logits);

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
  const StatePool states_;     // empty without recurrent layers
  SequenceTable table_;
  SlotTable slots_;
  const std::unique_ptr<Gang> gang_;
  StepPlan plan_;
  StepScratch scratch_;
  std::vector<uint32_t> checksums_;  // [layers][rows] of the last Forward, where they are asked for

  // Stage with the head only.
  std::unique_ptr<OutputHead> head_;
  SamplingTails tails_;
  std::vector<Sampler> samplers_;  // [threads]
  std::vector<HeadRow> head_rows_;
  std::vector<int32_t> head_row_indices_;  // of head_rows_, in the batch
  std::vector<SamplingTail*> masks_to_make_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_
