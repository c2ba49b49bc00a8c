#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_STAGE_WEIGHTS_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_STAGE_WEIGHTS_H_

// The weights of one stage as the kernels read them: matrices in panels in one run of large pages, vectors as floats.

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// A matrix [rows, cols] in panels of 16 rows (kernels.h); the rows that fill up the last panel are zero. Owns nothing.
struct PackedMatrix {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs
  const uint8_t* data = nullptr;

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t padded_rows() const { return panels() * kPanelRows; }
  size_t bytes() const { return static_cast<size_t>(panels()) * PanelBytes(type, cols); }

  // Panels [begin, end): output rows [16 begin, 16 end).
  PanelSpan Panels(int64_t begin, int64_t end) const {
    return {type, data + static_cast<size_t>(begin) * PanelBytes(type, cols), end - begin, cols};
  }

  // Decodes one row to float [cols], with the values of DequantizeRow. Embedding rows are read this way, so a tied
  // matrix is held once.
  void UnpackRow(int64_t row, float* out) const {
    const uint8_t* panel = data + static_cast<size_t>(row / kPanelRows) * PanelBytes(type, cols);
    UnpackPanelRow(type, panel, cols, static_cast<int>(row % kPanelRows), out);
  }
};

// The matrices of latent attention (AttentionSpec): r is kv_rank, d is rope.dims.
struct LatentWeights {
  PackedMatrix q_a, q_b;               // [q_rank, D], [Nq*H, q_rank]; with a q_rank, instead of LayerWeights::q
  std::vector<float> q_a_norm;         // [q_rank]
  PackedMatrix kv_a;                   // [r + d, D]
  std::vector<float> kv_a_norm;        // [r]
  std::vector<PackedMatrix> k_b, v_b;  // [Nq] of [r, H - d], and of [value_dim, r]
};

// The matrices and vectors of a delta net (DeltaNetSpec) but the output's: KD, VD, Hv, c and d are its.
struct DeltaNetWeights {
  PackedMatrix qkv, z;           // [2 KD + VD, D], [VD, D]
  PackedMatrix beta, alpha;      // [Hv, D]
  std::vector<float> conv;       // [c][2 KD + VD], its last row is of the current row
  std::vector<float> dt, decay;  // [Hv], no decay above 0
  std::vector<float> norm;       // [d]
};

// A layer's experts, each in panels of its own. Vectors and biases are empty where the model has none.
struct ExpertWeights {
  PackedMatrix router;                               // [E, D]
  std::vector<float> router_bias, selection_bias;    // [E], [E]
  std::vector<float> shared_gate;                    // [D], of the shared unit
  std::vector<PackedMatrix> gate, up, down;          // [E] of [F, D], [F, D], [D, F]
  std::vector<float> gate_bias, up_bias, down_bias;  // [E, F], [E, F], [E, D]
};

// Vectors are empty where the model has none. What is fused in the file is split.
struct LayerWeights {
  std::vector<float> attn_norm;                      // [D]
  PackedMatrix q, k, v;                              // [Nq*H, D], [Nk*H, D], [Nk*H, D]
  std::vector<float> q_bias, k_bias, v_bias;         // [Nq*H], [Nk*H], [Nk*H]
  std::vector<float> q_norm, k_norm;                 // [H] each, or [Nq*H] and [Nk*H]
  LatentWeights latent;                              // instead of k and v
  PackedMatrix attn_gate;                            // [Nq*H, D], of gated attention
  std::vector<float> sinks;                          // [Nq]
  DeltaNetWeights delta_net;                         // instead of all of these but attn_norm
  PackedMatrix attn_output;                          // [D, Nq*value_dim], or a delta net's [D, VD]
  std::vector<float> attn_output_bias;               // [D]
  std::vector<float> attn_post_norm;                 // [D]
  std::vector<float> ffn_norm;                       // [D]
  PackedMatrix gate, up, down;                       // [F, D], [F, D], [D, F]; beside experts the shared unit's
  std::vector<float> gate_bias, up_bias, down_bias;  // [F], [F], [D]
  ExpertWeights experts;
  std::vector<float> ffn_post_norm;  // [D]
};

// Immutable once loaded. Movable: the matrices point into `panels`, which stays where it is.
struct StageWeights {
  PackedMatrix embedding;            // [V, D]; the stage with the embedding only
  std::vector<LayerWeights> layers;  // of this stage
  std::vector<float> rope_freqs;     // [H/2] divisors, or empty
  std::vector<float> output_norm;    // [D]; these three on the stage with the head only
  PackedMatrix output;               // [V, D]; a stage with both ends of a tied model holds the matrix once
  std::vector<float> output_bias;    // [V], or empty
  PageMemory panels;
  uint64_t vector_bytes = 0;

  uint64_t bytes() const { return panels.size() + vector_bytes; }
};

struct StageWeightsRequest {
  int64_t first_layer = 0;
  int64_t last_layer = 0;  // exclusive
  bool owns_embedding = false;
  bool owns_head = false;
  Gang* gang = nullptr;        // of the stage; its threads touch what they will read first, and as many read and pack
  bool allow_damaged = false;  // matrix_loader.h
};

// Reads exactly the tensors of ModelDescription::StageTensors, each byte once, in pieces of about half a megabyte, two
// a thread: memory peaks at the packed size plus a few megabytes. Sets `bytes_to_load` first; `bytes_touched` grows
// while memory is taken, `bytes_loaded` while it is filled.
//   kDataLoss             the file has become shorter, or a tensor is damaged (matrix_loader.h)
//   kResourceExhausted    no memory
//   kUnimplemented        a row length that panels do not hold
//   kInvalidArgument      a RoPE divisor that is not a positive number, a delta net's decay above 0
absl::StatusOr<StageWeights> LoadStageWeights(const ModelDescription& model, const StageWeightsRequest& request,
                                              const Kernels& kernels, std::atomic<uint64_t>* bytes_to_load,
                                              std::atomic<uint64_t>* bytes_touched,
                                              std::atomic<uint64_t>* bytes_loaded);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_STAGE_WEIGHTS_H_
