#ifndef STAGECOACH_STAGE_WORKER_STREAM_STREAMED_MODEL_H_
#define STAGECOACH_STAGE_WORKER_STREAM_STREAMED_MODEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "proto/control.pb.h"
#include "stage_worker/stream/weight_stream.h"

namespace stagecoach {

// Opens the assignment's model by what the coordinator sends of it: headers and directories first, then the stream's
// plan is the stage's own tensors. `stream` outlives the model. kDataLoss for what is no model, or another one than the
// assignment's fingerprints say; kInvalidArgument for an assignment that cannot be.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenStreamedModel(const pb::StageAssignment& assignment,
                                                                          WeightStream* stream);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_STREAM_STREAMED_MODEL_H_
