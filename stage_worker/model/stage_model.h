#ifndef STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_

// One stage's share of the model: its layers, the KV pools of their block groups, and at the ends the embedding and the
// head with the sampler.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_choices.h"
#include "common/model/model_description.h"
#include "common/step/step.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

struct StageConfig {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // exclusive
  bool owns_embedding = false;
  bool owns_head = false;
  int32_t block_tokens = 32;           // a multiple of 16
  std::vector<int32_t> group_blocks;   // [groups] of each block group's pool; as many groups as the model has
  std::vector<int64_t> group_windows;  // [groups] behind which blocks are released, 0: never; empty: of no group
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

// Moved by the loading and the computing threads, read by the communication thread.
struct StageCounters {
  std::atomic<uint64_t> bytes_to_load{0};
  std::atomic<uint64_t> bytes_touched{0};  // of the memory for the weights, before they are loaded into it
  std::atomic<uint64_t> bytes_loaded{0};
  std::atomic<uint64_t> layers_done{0};
};

// Used by one thread at a time.
class StageModel {
 public:
  // Reads this stage's tensors (and no other bytes), packs them, and makes the pool. `counters` outlives the model.
  static absl::StatusOr<std::unique_ptr<StageModel>> Load(std::shared_ptr<const ModelDescription> model,
                                                          const StageConfig& config, StageCounters* counters);
  virtual ~StageModel() = default;

  // Takes in a micro-batch's frees, opens and block-table deltas. Checks them against what this stage knows: unknown or
  // doubly opened sequences, rows that do not follow the last one, blocks in use by another sequence. On an error
  // (kInvalidArgument, a bug or a corrupted frame) nothing has changed.
  virtual absl::Status Begin(const MicroBatch& batch) = 0;

  // Runs the rows of the batch that Begin took in through this stage's layers. hidden: [rows, D] float, in place; a
  // stage that owns the embedding fills it from the slices' tokens first.
  virtual void Forward(const MicroBatch& batch, float* hidden) = 0;

  // [layers of this stage][rows] of the last Forward: CRC-32C of the row's hidden state behind the layer. Empty where
  // the config does not ask for them.
  virtual absl::Span<const uint32_t> layer_checksums() const = 0;

  // Stage with the head: final norm, logits of the rows that need them (in row tiles, so that scratch stays bounded),
  // sampled tokens and target log-probabilities. Fills result->sampled and result->targets.
  virtual void Finish(const MicroBatch& batch, const float* hidden, StepResult* result) = 0;

  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t kv_bytes() const = 0;
  virtual uint64_t scratch_bytes() const = 0;
  virtual const char* isa() const = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STAGE_MODEL_H_
