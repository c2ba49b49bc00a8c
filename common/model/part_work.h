#ifndef STAGECOACH_COMMON_MODEL_PART_WORK_H_
#define STAGECOACH_COMMON_MODEL_PART_WORK_H_

// What the parts of a model have to do in a step: bytes to read and operations, counted from the shapes. Pure.

#include <cstdint>
#include <vector>

#include "common/job/job_choices.h"
#include "common/model/model_description.h"

namespace stagecoach {

// One layer, or the output head. A multiply-add counts as two operations.
struct PartWork {
  double bytes_kept = 0;      // weights as stored
  double int8_ops = 0;        // of one row through the matrices whose input is int8 codes ...
  double bf16_ops = 0;        // ... bfloat16 ...
  double f32_ops = 0;         // ... floats
  double attention_ops = 0;   // of one row and one position it attends to, in f32
  double kv_token_bytes = 0;  // K and V of one token

  // Weights that a step of `rows` rows reads, once. All of them, whatever the rows: every matrix of a dense layer sees
  // every row. (A layer of experts would read those that some row chose.)
  double BytesTouched(double rows) const { return rows > 0 ? bytes_kept : 0; }
};

struct ModelParts {
  std::vector<PartWork> layers;
  PartWork head;  // norm, output matrix, bias
  int64_t hidden = 0;
};

// `bf16_dot`: see ActivationKindFor. kInvalidArgument: a KV type that does not suit the model.
absl::StatusOr<ModelParts> PartsOf(const ModelDescription& model, KvType kv_type, bool bf16_dot);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_PART_WORK_H_
