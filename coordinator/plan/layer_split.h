#ifndef STAGECOACH_COORDINATOR_PLAN_LAYER_SPLIT_H_
#define STAGECOACH_COORDINATOR_PLAN_LAYER_SPLIT_H_

// Which layers the stages of a job get. Pure.

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/plan/partitioner.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct LayerSplit {
  std::vector<LayerRange> layers;  // [stages]
  absl::Status lack;               // why no split fits, as far as can be told before the pools are sized: then the
                                   // layers are split as if there were memory enough
};

// As the job says, else by cost (`costs`; nullptr: the bytes that a decode step of one group for every stage reads)
// within the memory of the hosts. `stages` are complete but for layers and pools, each for one of `hellos`. What a host
// must have room for: weights, buffers, and the least that pool_plan.h asks for of KV cache; buffers are counted for
// the widest layers of the model. Where a host's stages are not neighbours, each run of them has its share of the
// memory by number of stages. kInvalidArgument: a split that is none.
absl::StatusOr<LayerSplit> SplitLayers(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                       const ModelDescription& model, const std::vector<pb::StageAssignment>& stages,
                                       const PartitionInput* costs);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_LAYER_SPLIT_H_
