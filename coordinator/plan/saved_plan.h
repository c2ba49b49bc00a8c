#ifndef STAGECOACH_COORDINATOR_PLAN_SAVED_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_SAVED_PLAN_H_

// The part of a plan that later jobs follow: the object "plan" in the document of `coordinator plan`, whose other
// fields are for people. Pure, except ReadSavedPlan.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "common/model/model_description.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

inline constexpr int kSavedPlanVersion = 1;

struct SavedStage {
  std::string host;
  int64_t layers = 0;
  int32_t cores = 0;          // of the host; 0: it was not known
  uint64_t memory_bytes = 0;  // that the stage was planned to take, its pools included
  friend bool operator==(const SavedStage&, const SavedStage&) = default;
};

struct SavedPlan {
  uint64_t file_bytes = 0;   // of the model, all shards
  uint64_t header_hash = 0;  // FileFingerprint::header_hash of the first shard
  int64_t layers = 0;        // of the model
  bool here = false;         // all stages are on the host that plans
  std::vector<SavedStage> stages;
  int64_t threads = 0;        // of each stage; 0: by the cores of its host
  int64_t micro_batches = 0;  // in flight: the number of decode groups
  int64_t prefill_chunk = 0;
  friend bool operator==(const SavedPlan&, const SavedPlan&) = default;
};

Json SavedPlanJson(const SavedPlan& plan);

// Of a whole document. kInvalidArgument: `file`, the field, what was expected and what was found.
absl::StatusOr<SavedPlan> ParseSavedPlan(absl::string_view file, absl::string_view text);

// The fields of the plan that say which model it is for.
void SetModelOf(const ModelDescription& model, SavedPlan* plan);

// The part that the engine checks against the model and the hosts that it finds.
pb::PlannedFor PlannedForOf(const SavedPlan& plan);

// Checks that a plan still fits: the model's bytes, header and layers; the number of stages; their hosts (by name up to
// the first dot; addresses are not compared) and cores; and the memory planned for the stages of each host.
// kFailedPrecondition: everything that differs, and how to make a new plan.
absl::Status CheckPlanned(const pb::PlannedFor& planned, const std::vector<pb::Hello>& hellos,
                          const ModelDescription& model);

// "n1:2,n2": the hosts in Open MPI's notation, with the number of consecutive stages on each; empty: this host alone.
std::string HostListOf(const SavedPlan& plan);

// Reads the file and parses it. kNotFound as of ReadDocument.
absl::StatusOr<SavedPlan> ReadSavedPlan(const std::string& file);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_SAVED_PLAN_H_
