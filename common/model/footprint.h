#ifndef STAGECOACH_COMMON_MODEL_FOOTPRINT_H_
#define STAGECOACH_COMMON_MODEL_FOOTPRINT_H_

// What the parts of a model cost: the memory of a stage, and the weights of each part in the form the partitioner uses.

#include <cstdint>
#include <vector>

#include "common/model/model_description.h"

namespace stagecoach {

// Bytes of the parts of a model, as stored. Decoding reads every byte of a stage's layers and head once a micro-batch,
// so these are also the relative times of the parts; an embedding only has the rows of its tokens looked up, so that it
// costs memory and hardly any time.
struct ModelCosts {
  std::vector<double> layer_bytes;  // [layers]
  double embedding_bytes = 0;       // memory of the stage that owns the embedding
  double head_bytes = 0;    // output norm, output matrix (also when it is the embedding's) and bias: memory and time
  double shared_bytes = 0;  // needed on every stage that has layers
  // When tied, a stage that owns both ends holds the matrix once: embedding_bytes are then not added to head_bytes.
  bool tied = false;
};

ModelCosts CostsOf(const ModelDescription& model);

// Bytes of the tensors that stage [first_layer, last_layer) needs, as stored, each tensor once.
uint64_t StageWeightBytes(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                          bool owns_head);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_FOOTPRINT_H_
