#ifndef STAGECOACH_COMMON_MODEL_FOOTPRINT_H_
#define STAGECOACH_COMMON_MODEL_FOOTPRINT_H_

// What the parts of a model cost, counted from the shapes: memory of a stage (for frames see FrameLimits), weights of
// each part, reads and operations of a step. The planner and the stage use the same numbers. Pure.

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/job/job_choices.h"
#include "common/model/hyper_parameters.h"
#include "common/model/model_description.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

// The layer to time as a sample of all: one of attention; of these one with experts if any; of these one with full
// attention if any.
int64_t LayerToTime(const HyperParameters& hyper);

// Bytes of the tensors that stage [first_layer, last_layer) needs, as stored, each tensor once.
uint64_t StageWeightBytes(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                          bool owns_head);
// Their bytes in the kernels' layout, without the padding of last panels, except of experts.
uint64_t StageWeightMemory(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                           bool owns_head);

// Bytes of one state slot on stage [first_layer, last_layer): what a sequence's recurrent layers there keep, in f32,
// layer after layer without padding. 0: the stage has no such layer.
int64_t StateBytes(const HyperParameters& hyper, int64_t first_layer, int64_t last_layer);

// The forms in which a stage keeps an input of matrix products: those that the reading matrices want.
struct InputForms {
  bool floats = false;
  bool int8 = false;
  bool bf16 = false;

  // `bf16_dot`: see ActivationKindFor.
  static InputForms Of(TensorType reader, bool bf16_dot);
  void Add(const InputForms& other);
  uint64_t Bytes(int64_t rows, int64_t cols) const;
  friend bool operator==(const InputForms&, const InputForms&) = default;
};

// Of the inputs of one layer.
struct LayerInputForms {
  InputForms qkv;          // of q, k and v, or of all that a delta net makes of a row; D wide
  InputForms output;       // of attn_output, Nq*value_dim wide; of a delta net's mix_out, VD wide
  InputForms ffn;          // of gate and up, of a router, its experts' gate and up, and a shared gate; D wide
  InputForms down;         // of down; F wide, beside experts shared_width
  InputForms experts;      // of the experts' gate and up: some of ffn's
  InputForms expert_down;  // of the experts' down; F wide
  // Latent attention: r is kv_rank, d is rope.dims. qkv is then of q (or Wq_a) and of the latent.
  InputForms q_b;  // q_rank wide
  InputForms k_b;  // of each head; H - d wide
  InputForms v_b;  // of each head; r wide
};
LayerInputForms InputFormsOf(const LayerTensors& layer, bool bf16_dot);

// Up to so many rows each thread prepares all inputs itself: a row of 1024 costs about as much as a barrier (0.3 us).
inline constexpr int64_t kFewRows = 2;
inline constexpr int64_t kBlockFloats = 128 << 10;  // outputs of one matrix that a thread computes at once
// Rows whose logits are computed at once: a pass reads the whole matrix; a row's logits are vocabulary x 4 bytes.
inline constexpr int64_t kMaxHeadTileRows = 32;
inline constexpr uint64_t kSamplerBytesPerToken = 22;  // of the vocabulary: at most, of one sampler ...
inline constexpr uint64_t kSamplerBytes = 4096;        // ... beside this
// Masks of grammars that are kept, 1,024 bits, and what they are found in: a tree of the vocabulary's texts. Beside a
// bit for each sequence.
inline constexpr uint64_t kMaskBytesPerToken = 256;
// Programs of grammars, decoded: all that are defined at once, and beside that of each sequence.
inline constexpr uint64_t kProgramBytes = 37 << 20;
inline constexpr uint64_t kProgramBytesPerSequence = 64 << 10;

// Chosen experts (rows times experts_used) that are computed at once: enough rows an expert to make reading its weights
// cheap, while the outputs fit a third-level cache.
inline constexpr int64_t kExpertPairs = 4096;
inline constexpr int64_t kExpertGatherRows = 64;      // rows of one expert whose input is gathered at once
inline constexpr int64_t kExpertOutputs = 768 << 10;  // floats of what experts give that a thread sums at once

// How large the steps of a stage can get, and who computes them.
struct StepLimits {
  int32_t max_rows = 0;    // of a micro-batch
  int32_t max_slices = 0;  // of a micro-batch
  int64_t context = 0;     // most positions of a sequence
  int threads = 1;
  bool bf16_dot = false;  // of the instruction set
};

// Attention is cut into walks. A walk takes consecutive rows of a sequence over the granules of positions that they
// see, for the query heads that share a KV head (latent: for some of the heads). Its columns are these heads of these
// rows. Layers of equal sizes have the same walks in a step.
struct AttentionSizes {
  int32_t max_rows = 0;                // of a step
  int32_t max_slices = 0;              // of a step
  int64_t context = 0;                 // most positions of a sequence
  int64_t head_groups = 0;             // walks of the same rows: KV heads, or parts of the heads
  int64_t group = 1;                   // query heads of a walk
  int64_t key_dim = 0, value_dim = 0;  // of what the cache has of a position
  int64_t window = 0;                  // positions that a row sees, its own included; 0: all up to its own
  bool latent = false;                 // values are the beginnings of the keys, and laid out for each walk
  int threads = 1;

  static AttentionSizes Of(const AttentionSpec& spec, const StepLimits& limits);

  int32_t RowsPerWork() const;     // most rows of a walk
  int64_t ColumnsPerWork() const;  // most columns of a walk: rows times query heads
  int64_t GranulesPerWalk() const;
  int32_t MaxCuts() const;         // most walks of a step that are cut
  int64_t PartialColumns() const;  // columns of all partial states of a step
  friend bool operator==(const AttentionSizes&, const AttentionSizes&) = default;
};

// The memory for walks, shared by all layers.
struct WalkMemory {
  int64_t query_floats = 0, state_floats = 0;  // of a thread's columns
  int64_t limits = 0, begins = 0;              // of a thread's columns; begins only with windows
  int64_t value_floats = 0;                    // a thread's values of a granule, if they have to be laid out
  int64_t partial_floats = 0, cuts = 0;        // of a step

  static WalkMemory Of(const AttentionSizes& sizes);
  void Cover(const WalkMemory& other);  // the larger of each
};

// The memory of layers of experts: the largest of each; all 0 without such layers.
struct ExpertScratchSizes {
  int64_t experts = 0, used = 0;         // E, k
  int64_t rows = 0;                      // of a step that are computed at once
  int64_t logits_stride = 0;             // E in whole panels
  int64_t input_width = 0;               // D
  int64_t width = 0;                     // F
  int64_t units = 0;                     // most outputs that are summed for a row: k, and one of a shared unit
  InputForms input_forms, output_forms;  // of D wide inputs, and of what down takes, F wide
  bool shared_gates = false;             // whether shared units have gates
  int threads = 0;

  int64_t pairs() const { return rows * used; }
  int64_t few_pairs() const;    // of so few rows that each thread routes them all
  int64_t gather_rows() const;  // rows of an expert's gathered input
  int64_t gates() const { return shared_gates ? rows : 0; }
  int64_t routing_floats() const;  // what Route works in
  int64_t outputs() const;         // floats of a thread's outputs of experts: of all units whole panels, at least one
  uint64_t bytes() const;
};

// Rows of a head whose products with its own matrices a thread computes at once.
inline constexpr int64_t kLatentRows = 64;

// The working memory of latent attention around its walks; all 0 without it. Strides of rows are whole panels.
struct LatentScratchSizes {
  int64_t q_a_stride = 0, q_stride = 0, row_stride = 0;  // of Wq_a x, of q, and of latent and rotated key
  int64_t output_stride = 0;                             // of attn_output's input
  int64_t head_width = 0, head_outputs = 0;              // of a head's own matrices: the widest input, most outputs
  InputForms head_forms;                                 // of the inputs of a head's own matrices

  void Cover(const AttentionSpec& spec, const LayerInputForms& forms);
  uint64_t bytes(int64_t rows, int threads) const;
};

// The working memory of delta nets: the largest of each; all 0 without them. Strides of rows are whole panels.
struct DeltaNetScratchSizes {
  int64_t mixed_stride = 0, z_stride = 0, gate_stride = 0;  // of u, of z, and of the alphas and the betas
  int64_t head_floats = 0;                                  // of a row's q, k and v of all heads

  void Cover(const DeltaNetSpec& spec);
  uint64_t bytes(int64_t rows) const;
};

// The working memory of a stage's layers.
struct LayerScratchSizes {
  StepLimits limits;
  // Of rows of q, of k and v, and of what attention makes of them: whole panels.
  int64_t q_stride = 0, kv_stride = 0, attended_stride = 0;  // attended: also of what a delta net's heads give
  int64_t gate_stride = 0;                                   // of rows of gates of attention: whole panels
  int64_t input_width = 0;      // of the widest input but the down projection's: D or that of attn_output
  int64_t ffn_width = 0;        // of the widest input of a down projection
  int64_t delta_width = 0;      // D, if a layer completes its outputs before it adds them
  InputForms forms, ffn_forms;  // of all layers' inputs of these widths
  LatentScratchSizes latent;
  DeltaNetScratchSizes delta_net;
  ExpertScratchSizes experts;
  std::vector<AttentionSizes> walks;  // of the layers with attention, each once
  std::vector<RopeParameters> ropes;  // of the layers that rotate, each once

  WalkMemory walk_memory() const;
  uint64_t bytes() const;
};

// The working memory of the output head and the samplers.
struct HeadScratchSizes {
  int64_t tile_rows = 0;      // rows whose logits are computed at once
  int64_t hidden = 0;         // D
  int64_t vocab = 0;          // V
  int64_t logits_stride = 0;  // V in whole panels
  InputForms forms;
  int threads = 1;
  int64_t sequences = 0;

  int sampling_threads() const;    // as many rows as a tile has are sampled at once
  uint64_t head_bytes() const;     // taken at once
  uint64_t sampler_bytes() const;  // at most, as sampling needs it
  uint64_t grammar_bytes() const;  // about, as grammars need it
};

struct StageScratchSizes {
  LayerScratchSizes layers;
  std::optional<HeadScratchSizes> head;  // of the stage with the head

  uint64_t bytes() const;
};
StageScratchSizes ScratchSizesOf(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_head,
                                 const StepLimits& limits);

// One layer, or the output head. A multiply-add counts as two operations.
struct PartWork {
  double bytes_kept = 0;      // weights as stored
  double expert_bytes = 0;    // of them, of the experts that a router chooses from
  double expert_share = 0;    // of the experts, those that it chooses for a row: k / E
  double int8_ops = 0;        // of one row through the matrices whose input is int8 codes ...
  double bf16_ops = 0;        // ... bfloat16 ...
  double f32_ops = 0;         // ... floats; of the experts those that are chosen for it
  double attention_ops = 0;   // of one row and one position it attends to, in f32
  double kv_token_bytes = 0;  // K and V of one token, or its latent row
  double state_bytes = 0;     // a sequence's recurrent state, which a step reads once and writes once
  double state_ops = 0;       // of one row and its state, in f32
  int64_t window = 0;         // positions that a row attends to at most; 0: all before it

  // Weights that a step of `rows` rows reads, once. Dense matrices see every row. Of E experts E (1 - (1 - k/E)^rows)
  // are read, if rows choose independently and uniformly.
  double BytesTouched(double rows) const {
    return rows > 0 ? bytes_kept - expert_bytes * std::pow(1 - expert_share, rows) : 0;
  }
  friend bool operator==(const PartWork&, const PartWork&) = default;
};

struct ModelParts {
  std::vector<PartWork> layers;
  PartWork head;  // norm, output matrix, bias
  int64_t hidden = 0;

  int64_t window = 0;  // of the layers that have one, the largest; 0: none has
  // Of all layers and the head: bytes_kept, expert_bytes, and as expert_share the mean over these; nothing else.
  PartWork Bytes() const;
};

// The tensors of a layer with a part for every expert; none in a dense layer.
std::vector<const GgufTensor*> ExpertTensorsOf(const LayerTensors& layer);

// `bf16_dot`: see ActivationKindFor. kInvalidArgument: a KV type that does not suit the model.
absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_FOOTPRINT_H_
