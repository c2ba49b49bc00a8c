#ifndef STAGECOACH_COMMON_WIRE_JOB_PROTO_H_
#define STAGECOACH_COMMON_WIRE_JOB_PROTO_H_

// A job's settings, choices and file fingerprints to the wire and back. Numbers off the wire are checked:
// kInvalidArgument names the field, the number and what was expected.

#include <vector>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"
#include "common/job/job_settings.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"
#include "proto/job.pb.h"

namespace stagecoach {

pb::KvType ToProto(KvType type);
pb::WireType ToProto(WireType type);
pb::InstructionSet ToProto(InstructionSet set);
pb::WeightSource ToProto(WeightSource source);

absl::StatusOr<KvType> FromProto(pb::KvType type);
absl::StatusOr<WireType> FromProto(pb::WireType type);
absl::StatusOr<InstructionSet> FromProto(pb::InstructionSet set);
absl::StatusOr<WeightSource> FromProto(pb::WeightSource source);  // unspecified is kFile

// Every setting in the job's field of the same name.
void SetJobSettings(const JobSettings& settings, pb::ConfigureJob* job);
// Every setting within its range and its choices.
absl::StatusOr<JobSettings> JobSettingsOf(const pb::ConfigureJob& job);

// Whether the job asks for guesses, be they possible or not.
bool Speculates(const pb::ConfigureJob& job);

// Unchecked (CheckEmulatedLink).
pb::EmulatedLink ToProto(const EmulatedLink& link);
EmulatedLink FromProto(const pb::EmulatedLink& link);

// For display; "invalid" for a number that is none.
const char* InstructionSetName(pb::InstructionSet set);

using FingerprintsProto = google::protobuf::RepeatedPtrField<pb::FileFingerprint>;
FingerprintsProto ToProto(const std::vector<FileFingerprint>& fingerprints);
std::vector<FileFingerprint> FromProto(const FingerprintsProto& fingerprints);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_JOB_PROTO_H_
