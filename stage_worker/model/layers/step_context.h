#ifndef STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_CONTEXT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_CONTEXT_H_

// What the parts of the forward pass share during a step: its rows, its attention cut into pieces of work, its buffers,
// and the layers. All threads of the gang run the same code. Between two barriers each works on its own rows, heads or
// output rows, and may read what the phase before wrote.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/ids.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "common/step/step.h"
#include "common/step/step_part.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kv/kv_pool.h"
#include "stage_worker/kv/sequence_table.h"
#include "stage_worker/kv/state_pool.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// Granules [begin_granule, end_granule) of a walk: consecutive rows of a sequence attend together, for one group of
// heads.
struct AttentionWork {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t head_group = 0;
  int32_t begin_granule = 0;
  int32_t end_granule = 0;
  int32_t cut = -1;  // which AttentionCut this is a piece of; -1: the whole walk
};

// A walk shared by threads. The first piece folds its granules into one partial state; every later granule has its own.
// Partial states are stored in ascending order.
struct AttentionCut {
  int32_t pieces = 0;
  int32_t folded_end = 0;  // the granule behind those of the first piece
  int32_t partials = 0;
  int32_t columns = 0;       // of each partial
  int64_t first_column = 0;  // of the first partial, in the memory of all partials
};

// The work of layers of one kind.
class WalkPlan {
 public:
  // Memory is reserved for the largest step.
  explicit WalkPlan(const AttentionSizes& sizes);

  // For the rows of a batch, by slice. Cuts depend on the number of threads, and change no result.
  void Build(const MicroBatch& batch);

  const AttentionSizes& sizes() const { return sizes_; }
  const std::vector<AttentionWork>& work() const { return work_; }
  const std::vector<AttentionCut>& cuts() const { return cuts_; }

 private:
  int64_t Cost(const AttentionWork& walk) const;
  void AddWalk(const AttentionWork& walk, int64_t total_cost);

  const AttentionSizes sizes_;
  std::vector<AttentionWork> walks_;
  std::vector<AttentionWork> work_;
  std::vector<AttentionCut> cuts_;
  int64_t partial_columns_ = 0;  // in use by cuts_
};

struct StepRow {
  int64_t position = 0;                          // in its sequence
  TokenId token = kNoToken;                      // on the stage with the embedding
  const std::vector<BlockId>* tables = nullptr;  // [groups] the sequence's block tables
};

// Consecutive rows of a sequence, from row first_row of the step on, and the slots of the states before and behind
// them.
struct StepSlice {
  int32_t first_row = 0;
  int32_t rows = 0;
  SlotId state_read = kNoSlot, state_write = kNoSlot;
};

class StepPlan {
 public:
  // Memory is reserved for the largest step.
  explicit StepPlan(const LayerScratchSizes& sizes);

  // Lays out a batch that `table` has applied; valid until the table changes.
  void Build(const MicroBatch& batch, const SequenceTable& table);

  const std::vector<StepRow>& rows() const { return rows_; }
  const std::vector<StepSlice>& slices() const { return slices_; }
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }
  const WalkPlan& walks(size_t kind) const { return walks_[kind]; }

 private:
  std::vector<StepRow> rows_;
  std::vector<StepSlice> slices_;
  std::vector<WalkPlan> walks_;  // [kinds]
};

// The same input from row `first` on; `cols` wide.
Activations RowsFrom(const Activations& input, int64_t cols, int64_t first);

// The right-hand side of matrix products: rows of activations in every wanted form. Reused for inputs of several
// widths.
class MatmulInput {
 public:
  // Has memory for rows [max_rows, max_cols] in these forms: InputForms::Bytes of it.
  MatmulInput(const InputForms& forms, int64_t max_rows, int64_t max_cols);

  // Sets columns [begin, begin + count) of a row of an input that is `cols` wide, in these forms. int8: begin and count
  // are multiples of 32. Threads may set different parts.
  void Set(const Kernels& kernels, const InputForms& forms, int64_t row, int64_t cols, int64_t begin, const float* x,
           int64_t count);

  // Sets a whole row to the first one of `from`, which is as wide and has these forms.
  void Copy(const InputForms& forms, int64_t row, int64_t cols, const Activations& from);

  // All rows of an input that is `cols` wide; only forms that were set are valid.
  Activations View(int64_t cols) const;

 private:
  AlignedBuffer x_;            // float [rows, cols]
  AlignedBuffer q_;            // int8 [rows, cols]
  AlignedBuffer scales_;       // float [rows, cols / 32]
  AlignedBuffer starts_;       // int32 [rows, cols / 32]
  AlignedBuffer half_starts_;  // int32 [rows, cols / 16]
  AlignedBuffer bf16_;         // uint16 [rows, cols]
};

// One thread's part of ExpertScratch.
struct ExpertWorkerScratch {
  explicit ExpertWorkerScratch(const ExpertScratchSizes& sizes);

  AlignedBuffer routing;          // float: what Route works in
  AlignedBuffer chosen, weights;  // int32 and float [kFewRows, k]: of steps with so few rows
  AlignedBuffer begins, active;   // int32 [E + 1], [E]: see ExpertPlan
  AlignedBuffer rows, places;     // int32 [pairs], [pairs]
  MatmulInput gathered;           // [kExpertGatherRows, D]
  AlignedBuffer outputs;          // float: what all units give for some columns of D
};

// For layers of experts: ExpertScratchSizes::bytes() of aligned memory. A pair is a row and an expert that it chose.
struct ExpertScratch {
  explicit ExpertScratch(const ExpertScratchSizes& sizes);

  const int64_t rows, output_floats;         // ExpertScratchSizes' rows and outputs
  AlignedBuffer logits;                      // float [rows, E in whole panels]
  AlignedBuffer gates;                       // float [rows], of the shared unit's outputs; or none
  AlignedBuffer chosen, weights;             // int32 and float [rows, k]
  MatmulInput activated;                     // [pairs, F], pairs by expert
  std::vector<ExpertWorkerScratch> workers;  // [threads]
};

// One thread's working memory for attention.
struct AttentionScratch {
  explicit AttentionScratch(const WalkMemory& memory);

  AlignedBuffer q;       // float [columns, key_dim]
  AlignedBuffer state;   // float [columns, 2 + value_dim]: maxima, sums, weighted values
  AlignedBuffer limits;  // int32 [columns]
  AlignedBuffer begins;  // int32 [columns]
  AlignedBuffer values;  // V tiles of a granule, of latent attention
  const uint8_t* k_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* v_tiles[kAttentionGranule / kTilePositions];
  const uint8_t* next_k_tiles[kAttentionGranule / kTilePositions];
};

// Partial states of StepPlan's cuts, shared by the threads.
struct AttentionPartials {
  explicit AttentionPartials(const WalkMemory& memory);

  AlignedBuffer states;                              // float [columns, 2 + value_dim], as in AttentionScratch for each
  std::unique_ptr<std::atomic<int32_t>[]> finished;  // [cuts]: pieces; all 0 when no thread is in Attend
};

// One thread's working memory outside of attention.
struct WorkerScratch {
  explicit WorkerScratch(const LayerScratchSizes& sizes);

  AlignedBuffer row;    // float [width]: a row on its way into an input
  MatmulInput input;    // [kFewRows, width]
  AlignedBuffer block;  // float [2, kBlockFloats]: outputs of one or two matrices
};

// Latent attention around its walks; empty without it.
struct LatentScratch {
  LatentScratch(const LatentScratchSizes& sizes, int64_t rows, int threads);

  // One thread's part of a head: an input of its own matrix, and the outputs.
  struct Head {
    MatmulInput input;     // [kLatentRows, head_width]
    AlignedBuffer output;  // float [kLatentRows, head_outputs]
  };

  const LatentScratchSizes sizes;
  AlignedBuffer q_a;        // float [rows, q_a_stride]
  AlignedBuffer q;          // float [rows, q_stride]: not absorbed
  AlignedBuffer row;        // float [rows, row_stride]: what the cache keeps
  AlignedBuffer output;     // float [rows, output_stride]
  std::vector<Head> heads;  // [threads]
};

// What delta nets make of the normalised rows; empty without them.
struct DeltaNetScratch {
  DeltaNetScratch(const DeltaNetScratchSizes& sizes, int64_t rows);

  const DeltaNetScratchSizes sizes;
  AlignedBuffer mixed;        // float [rows, mixed_stride]: u, before the convolution
  AlignedBuffer z;            // float [rows, z_stride]
  AlignedBuffer beta, decay;  // float [rows, gate_stride]: b and a, then sigmoid(b) and e^g
  AlignedBuffer heads;        // float [heads of q, k and v][rows of the step][d], ready for the delta rule
};

// The angles of one RopeTable for all rows.
struct StepAngles {
  explicit StepAngles(int64_t rows, int64_t pairs);

  int64_t pairs;           // of a row
  AlignedBuffer cos, sin;  // float [rows, pairs]
};

// The buffers of a step, allocated once for the largest: LayerScratchSizes::bytes() of aligned memory. Strides are
// whole panels, because the matrix kernel writes whole panels.
struct StepScratch {
  explicit StepScratch(const LayerScratchSizes& sizes);

  const int64_t q_stride, kv_stride, gate_stride, attended_stride;
  std::vector<StepAngles> angles;  // [LayerScratchSizes::ropes]
  AlignedBuffer q;                 // float [rows, q_stride]; of latent attention absorbed, [heads, key_dim]
  AlignedBuffer k, v;              // float [rows, kv_stride]
  AlignedBuffer gates;             // float [rows, gate_stride]: of gated attention, one for each element of `attended`
  AlignedBuffer attended;          // float [rows, attended_stride]; of latent attention [heads, kv_rank]
  MatmulInput input;               // [rows, D or attn_output's], of steps with more than kFewRows
  MatmulInput ffn_input;           // [rows, F] of dense and shared units
  AlignedBuffer delta;             // float [rows, D]: an output that is completed; 0 between the halves
  ExpertScratch experts;
  LatentScratch latent;
  DeltaNetScratch delta_net;
  std::vector<WorkerScratch> workers;       // [threads]
  std::vector<AttentionScratch> attention;  // [threads]
  AttentionPartials partials;
};

// One layer as the steps run it: all that no step changes.
struct StageLayer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  int64_t pool_layer = 0;  // its place among the layers of this stage that share its KV pool, or have a state
  size_t walks = 0;        // which of StepPlan's walks are its attention's, if it has one
  int32_t angles = -1;     // which of StepScratch's angles it rotates by; -1: it does not rotate
  LayerInputForms forms;
};

// The layers of a stage from the model's `first_layer` on, with the places of their walks and angles in `sizes`. The
// model and `weights`, one a layer, outlive them.
std::vector<StageLayer> MakeLayers(const ModelDescription& model, int64_t first_layer,
                                   const std::vector<LayerWeights>& weights, const LayerScratchSizes& sizes,
                                   const Kernels& kernels);

struct StepContext {
  int64_t hidden;  // D
  const Kernels& kernels;
  const StepPlan& plan;
  std::vector<KvPool>& pools;  // [block groups]
  StepScratch& scratch;
  const StatePool* states = nullptr;  // of a stage with recurrent layers

  KvPool& PoolOf(const LayerSpec& layer) const { return pools[static_cast<size_t>(layer.block_group)]; }
};

// One thread of the gang.
struct Worker {
  Gang& gang;
  int thread;

  int threads() const { return gang.threads(); }
  Gang::Part Share(int64_t count) const { return Gang::Share(count, thread, gang.threads()); }

  // As SharedWork::Start: every thread calls it, in the same order.
  SharedWork::Taker StartWork(int64_t count, RunLength length) const {
    return gang.shared().Start(thread, count, length);
  }
  // Calls use(WorkRun) with the runs of `count` items that this thread gets.
  template <typename Use>
  void Divide(int64_t count, RunLength length, const Use& use) const {
    SharedWork::Taker work = StartWork(count, length);
    for (WorkRun run = work.Take(); !run.empty(); run = work.Take()) use(run);
  }

  void Barrier() const {
    if (gang.threads() == 1) return;
    PartClock& clock = gang.clock(thread);
    clock.Arrive();
    gang.Barrier();
    clock.Leave();
  }

  // What this thread works on from here on, for the step's account. Every thread enters a phase's part, also without a
  // share of it, and comes back to it behind the smaller parts inside: so the wait is booked behind the phase.
  void Enter(StepPart part) const { gang.clock(thread).Enter(part); }
  // The current part reads these bytes, by this thread alone.
  void Reads(size_t bytes) const { gang.clock(thread).Read(static_cast<int64_t>(bytes)); }
  // As Reads, by all threads together: each calls it, and the bytes count once.
  void AllRead(size_t bytes) const {
    if (thread == 0) Reads(bytes);
  }
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_CONTEXT_H_
