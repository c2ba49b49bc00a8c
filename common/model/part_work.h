#ifndef STAGECOACH_COMMON_MODEL_PART_WORK_H_
#define STAGECOACH_COMMON_MODEL_PART_WORK_H_

// What the parts of a model have to do in a step: bytes to read and operations, counted from the shapes. Pure.

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/job/job_choices.h"
#include "common/model/model_description.h"

namespace stagecoach {

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
  int64_t window = 0;         // positions that a row attends to at most; 0: all before it

  // Weights that a step of `rows` rows reads, once. Every matrix of a dense layer sees every row. Of E experts those
  // are read that some row chose: E (1 - (1 - k/E)^rows) of them, when the rows choose independently and one expert as
  // often as another.
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

// The tensors of a layer that hold something of every expert; none in a dense layer.
std::vector<const GgufTensor*> ExpertTensorsOf(const LayerTensors& layer);

// Operations of a row and a position that it attends to: its share of the scores and of what they weigh. A latent row
// of r + d elements is the key as a whole and the value with its first r: 2 * heads * (2r + d).
double AttentionOps(const AttentionSpec& attention);

// `bf16_dot`: see ActivationKindFor. kInvalidArgument: a KV type that does not suit the model.
absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_PART_WORK_H_
