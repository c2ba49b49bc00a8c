#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_SENTENCES_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_SENTENCES_H_

// What follows from a plan, in words: what limits it, what would help, what was left out, and how to start it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/cli/plan/plan_draft.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/plan/choice/host_choice.h"
#include "coordinator/plan/plan_advice.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {

struct PlanReport {
  const ClusterQuestion* question = nullptr;  // on all hosts
  const PlanPlaces* places = nullptr;
  PlanGoal goal = PlanGoal::kThroughput;
  const HostChoice* choice = nullptr;
  int64_t stages = 0;                         // that were asked for; 0: any number
  bool chosen = true;                         // false: the hosts and the split are the user's
  std::vector<PlanAlternative> alternatives;  // to the first job
  double acceptance = 0;                      // of guesses, for the rate of one user
  std::optional<PlannedDraft> draft;          // of the one job; else guesses take their guesser no time
  std::optional<ChoiceFigures> one_job;       // the best single job, where several were chosen
  // Words of a command line that say which model: "-m FILE", or those of a model without weights.
  std::vector<std::string> model_words;
  std::vector<std::string> job_words;  // likewise, what a job was asked to be other than by default
  bool has_tokenizer = true;
};

const HostFacts& HostOf(const ChosenJob& job, int stage);
// Indices into the profile's hosts, each once, in the order of the stages.
std::vector<int> HostsOf(const ChosenJob& job);
std::vector<int> HostsOfAll(const PlanReport& report);
int64_t CoresOf(const PlanReport& report, const std::vector<int>& hosts);
double TokensPerCoreHour(double tokens_per_s, int64_t cores);
// "n1, n2", or of many "n1, n2, n3 and 29 more".
std::string NamesOf(const PlanReport& report, const std::vector<int>& hosts);
std::string PlannedRateText(double tokens_per_s);

// What takes most of the load's time, and by what it is limited.
struct MainLimit {
  bool prompts = false;
  double share = 0;  // of the time
  PipelineLimit limit;
};
MainLimit MainLimitOf(const ChosenJob& job);
std::string LimitText(const ChosenJob& job, PipelineLimit limit);

std::vector<std::string> PlanSentences(const PlanReport& report);

// What a later job takes over.
SavedPlan SavedPlanOf(const PlanReport& report, const ChosenJob& job);
// Command lines that start the jobs, where there are several.
std::vector<std::string> JobLines(const PlanReport& report);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_SENTENCES_H_
