#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_DRAFT_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_DRAFT_H_

// What a planned job's draft takes of its host, and how fast it guesses.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/plan/choice/host_choice.h"
#include "coordinator/plan/stage_memory.h"

namespace stagecoach {

struct PlannedDraft {
  std::shared_ptr<const ModelDescription> model;
  std::string host;
  std::vector<int> beside;  // stages of the job on its host
  std::string why_not;      // it does not fit there, as PlanDraft says it; empty: it does, and the following is known
  int32_t threads = 0;
  StageMemory memory;
  double guess_s = 0;    // a guess, from the coordinator and back
  bool assumed = false;  // nothing is known of its host's speed
};

// `host`: index into the profile's hosts. Errors: as of LoneTokenSeconds.
absl::StatusOr<PlannedDraft> PlanDraftOn(int host, const ChosenJob& job, std::shared_ptr<const ModelDescription> draft);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_DRAFT_H_
