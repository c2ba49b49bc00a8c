#include "coordinator/cli/plan/plan_draft.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "coordinator/job/draft_setup.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

absl::StatusOr<PlannedDraft> PlanDraftOn(int host, const ChosenJob& job,
                                         std::shared_ptr<const ModelDescription> draft) {
  PlannedDraft planned;
  planned.model = draft;
  ClusterQuestion question = job.question;
  HostFacts& facts = question.profile.hosts[static_cast<size_t>(host)];
  planned.host = facts.name;
  for (size_t s = 0; s < question.stage_hosts.size(); ++s) {
    if (question.stage_hosts[s] == host) planned.beside.push_back(static_cast<int>(s));
  }
  question.stage_hosts.push_back(host);
  const std::vector<pb::Hello> hellos = HellosOf(question);
  JobPlan stages = job.plan.job;
  absl::StatusOr<JobPlan> own = PlanDraft(question.job, stages, *question.model, hellos, *draft, JobEpoch{});
  if (!own.ok()) {
    planned.why_not = std::string(own.status().message());
    return planned;
  }
  ShareCores(question.job, hellos, &stages, &*own);
  planned.threads = own->stages[0].threads();
  ASSIGN_OR_RETURN(planned.memory, StageMemoryOf(*draft, own->stages[0], own->group_blocks, own->state_slots));
  planned.assumed = facts.speeds.empty();  // no stage was to be there
  if (planned.assumed) {
    const std::string name = facts.isas.empty() ? "" : facts.isas.front();
    facts = AssumedHost(facts.name, facts.cores, facts.available_bytes,
                        ParseInstructionSet(name).value_or(InstructionSet::kAvx2));
  }
  question.model = std::move(draft);
  question.stage_hosts = {host};
  question.job.set_threads(planned.threads);
  ASSIGN_OR_RETURN(planned.guess_s, LoneTokenSeconds(question));
  return planned;
}

}  // namespace stagecoach
