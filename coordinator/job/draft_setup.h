#ifndef STAGECOACH_COORDINATOR_JOB_DRAFT_SETUP_H_
#define STAGECOACH_COORDINATOR_JOB_DRAFT_SETUP_H_

// A job's draft: a smaller model on a stage of its own, which guesses for the job's model. Its pipeline is a second one
// beside the stages', of one stage.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "common/wire/frame.h"
#include "coordinator/guess/draft/draft_runner.h"
#include "coordinator/plan/job_plan.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Whether every token of one model is the same token of the other: its text and its type. Tokens that no text has may
// differ, and may be missing. kInvalidArgument names the first that does.
absl::Status CheckSameTokens(const ModelDescription& model, const ModelDescription& draft);

inline constexpr int32_t kMostDrafted = 16;  // sequences that it draws for at once
inline constexpr int32_t kDraftChunk = 256;  // rows of a micro-batch; a draw waits for the one in flight

// The draft's plan and assignment, of a job whose plan is made. `stages`: of the job's model, in their order, and the
// draft's. Its memory is what those on its host leave. Errors: as of PlanJob, of the draft.
absl::StatusOr<JobPlan> PlanDraft(const pb::ConfigureJob& job, const JobPlan& plan, const ModelDescription& model,
                                  const std::vector<pb::Hello>& stages, const ModelDescription& draft,
                                  const JobEpoch& epoch);
// Where the draft shares its host with stages: each gets its part of the host's cores, as stages of one job do.
void ShareCores(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages, JobPlan* plan, JobPlan* draft);

// Of a job and its draft.
DraftRunner::Options DraftOptionsOf(const JobPlan& plan, const JobPlan& draft,
                                    std::shared_ptr<const ModelDescription> model);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_DRAFT_SETUP_H_
