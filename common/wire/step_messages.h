#ifndef STAGECOACH_COMMON_WIRE_STEP_MESSAGES_H_
#define STAGECOACH_COMMON_WIRE_STEP_MESSAGES_H_

// The step structs that travel in frames as well as between front and engine, to protobuf and back. Field by field and
// unchecked: values are checked by whoever uses them. Thread-safe.

#include "common/step/step.h"
#include "proto/step.pb.h"

namespace stagecoach {

pb::SamplingParams ToProto(const SamplingParams& params);
SamplingParams FromProto(const pb::SamplingParams& params);

pb::SampledToken ToProto(const SampledToken& token);
SampledToken FromProto(const pb::SampledToken& token);

pb::TargetLogprobs ToProto(const TargetLogprobs& scores);
TargetLogprobs FromProto(const pb::TargetLogprobs& scores);

pb::RowChecksums ToProto(const RowChecksums& checksums);
RowChecksums FromProto(const pb::RowChecksums& checksums);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_STEP_MESSAGES_H_
