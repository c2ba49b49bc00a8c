#ifndef STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_
#define STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_

// The memory that stages take, and the number of KV blocks and state slots that their pools can have. Pure.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/hyper_parameters.h"
#include "common/model/model_description.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// In bytes. Beside them a stage process holds what any does that has no model yet: code, libraries, MPI.
//
// Of these bytes are resident (in RAM) from the start: the weights. The pools are address space at first: a block's
// pages become resident when its first token is written, a slot's with its first state, and stay so. Scratch and frames
// become resident with the largest micro-batch so far. So resident is at most total(), and reaches it when the pool has
// been full once and a micro-batch had all the rows it may have; after `tokens` tokens of context it is fixed() and the
// touched blocks' share of `kv`, in whole pages.
struct StageMemory {
  uint64_t weights = 0;   // in the kernels' layout
  uint64_t kv = 0;        // the pools: every block of the layers with attention, and every slot of the others
  uint64_t states = 0;    // of kv, the slots
  uint64_t scratch = 0;   // buffers of computation
  uint64_t grammars = 0;  // of these, what is taken when requests have grammars
  uint64_t frames = 0;    // frames that come and go

  uint64_t buffers() const { return scratch + frames; }
  uint64_t fixed() const { return weights + buffers(); }
  uint64_t total() const { return fixed() + kv; }
};

// Of `stage`, whose assignment is complete but for its pools, when these have group_blocks[g] blocks of every block
// group and so many state slots. kInvalidArgument: an unknown choice, or a KV type that does not suit the model.
absl::StatusOr<StageMemory> StageMemoryOf(const ModelDescription& model, const pb::StageAssignment& stage,
                                          absl::Span<const int32_t> group_blocks, int32_t state_slots = 0);

// What a stage's pools are made of, in bytes.
struct PoolUnits {
  std::vector<uint64_t> blocks;  // [groups] one block of each of the stage's layers in the group
  uint64_t state = 0;            // one slot: the states of its recurrent layers
};
// kInvalidArgument: as above.
absl::StatusOr<PoolUnits> PoolUnitsOf(const ModelDescription& model, const pb::StageAssignment& stage);

// [groups] The window behind which each block group's blocks are freed; empty if no group has one. If all have one, the
// first keeps its blocks anyway: the prefix cache's entries need a group that does.
std::vector<int64_t> ReleaseWindows(const HyperParameters& hyper);

// With a prefix cache, at least so many slots beside those of the sequences that run.
inline constexpr int64_t kLeastSnapshots = 4;

// The pool sizes of a job. Pools without a window have equally many blocks, which define the job's room. A pool with a
// window (common/step/step.h) has as many, but at most what the sequences can use of it. A model with recurrent states
// has a slot for each of max_num_seqs sequences and each of `most_guesses`, and with a prefix cache snapshots that take
// as many bytes as the blocks, over all layers, or kLeastSnapshots.
class PoolSizes {
 public:
  // most_guesses: guessed rows of a sequence in flight at most.
  PoolSizes(const pb::ConfigureJob& job, const HyperParameters& hyper, int32_t most_guesses = 0);

  // [groups] where those without a window have `blocks`, which is as far as a pool can go at most.
  std::vector<int32_t> Blocks(uint64_t blocks) const;
  int32_t Slots(uint64_t blocks) const;                   // beside them; 0: the model has no states
  int32_t state_blocks() const { return state_blocks_; }  // that take as many bytes as a state, at least 1; or 0
  int32_t most_guesses() const { return most_guesses_; }
  // What all these take; at most 2^62.
  uint64_t Bytes(uint64_t blocks, const PoolUnits& units) const;
  // The most blocks whose Bytes are at most `bytes`, as far as a pool can have them.
  uint64_t Fitting(uint64_t bytes, const PoolUnits& units) const;

 private:
  std::vector<uint64_t> most_;  // [groups]
  int64_t sequences_;
  int32_t most_guesses_;
  bool snapshots_;
  int32_t state_blocks_ = 0;
};

// Blocks of the pools of block groups without a window, the same on every stage: the minimum over the
// hosts. `stages` are complete but for their pools, each for one of `hellos`, with `wanted_context` as their context.
//
// What the stages of one host hold comes out of one memory: weights, buffers of computation and frames, and the pools.
// Its size is the least that any of them sees of it. When job.kv_cache_bytes() is 0, the pools of a host get half of
// what weights and buffers leave, each stage in proportion to its layers; never more than max_num_seqs sequences of
// `wanted_context` tokens can use. What windows spare is blocks of the other groups. The other half stays for the page
// cache and for other programs; a relaunch takes up to seven eighths where job.min_kv_tokens() need them.
//
// kResourceExhausted: a host has not enough for weights and buffers, or for one block of each of its stages and the
// states of all sequences beside them; says what is there and what is needed. kInvalidArgument: a KV type that does not
// suit the model.
absl::StatusOr<int32_t> PlanBlocks(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                   const ModelDescription& model, const std::vector<pb::StageAssignment>& stages,
                                   int64_t wanted_context);

// The memory that PlanBlocks needs for a host's pools, if its stages' are of these units: one block, and on a relaunch
// job.min_kv_tokens(), with the states. At most 2^50. Only for job.kv_cache_bytes() == 0.
uint64_t LeastPoolBytes(const pb::ConfigureJob& job, const PoolSizes& pools, const PoolUnits& units);

// Blocks that max_num_seqs sequences of `context` tokens can use, as far as a pool can have them.
uint64_t MostBlocks(const pb::ConfigureJob& job, int64_t context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_
