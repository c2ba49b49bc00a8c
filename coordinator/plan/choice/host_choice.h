#ifndef STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CHOICE_H_
#define STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CHOICE_H_

// Chooses which hosts run a model, in which order, in how many independent jobs, and how many of the sequences each job
// gets. Pure.
//
// Jobs share the sequences in proportion to what their hosts would do alone if each held the whole model, every job at
// least one. Each job is planned by PlanCluster; what a choice is worth is what these plans say together.
//
// A host has as many stages as it has slots, or every host has one. Up to kMostExactHosts hosts every choice is held
// against the best one, from the most promising on, and passed over by a bound: no pipeline is faster than its hosts
// with perfectly even layers, and with links that take no time or those of the order. Orders that differ in hosts of
// the same facts and links are one; where all links and all layers are alike, only which hosts are first and last
// counts, for these have the embedding and the head. HostChoice::exact says whether all of that was done: it is not
// with more hosts, with many orders over unlike links, or after kMostStages. Then it is a heuristic: hosts in order of
// their uplink and speed (and of speed alone), the faster kinds of them, cut into jobs of as many hosts as can be; then
// hosts are taken from the best of these, or added, as long as that helps.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/value_range.h"
#include "coordinator/plan/choice/host_candidates.h"
#include "coordinator/plan/cluster_plan.h"

namespace stagecoach {

enum class PlanGoal {
  kThroughput,  // output tokens a second of all jobs
  kLatency,     // the mean time between two tokens of a sequence
  kFirstToken,  // the mean time to the first token of a prompt that a job has to itself
};
inline constexpr NamedValue<PlanGoal> kPlanGoals[] = {
    {PlanGoal::kThroughput, "throughput"}, {PlanGoal::kLatency, "latency"}, {PlanGoal::kFirstToken, "first-token"}};

inline constexpr int kMostExactHosts = 7;
inline constexpr int64_t kMostStages = 15000;  // of all plans that are looked at; those of long ones count more

struct ChosenJob {
  ClusterQuestion question;  // with the job's hosts and sequences
  ClusterPlan plan;
};

// Hosts that no job has, all of the same facts.
struct LeftOutHosts {
  std::vector<int> hosts;  // indices into the profile's; never empty
  // The best that was found with one of them; no sequences: none was found that runs, and `why` a job with it does not.
  ChoiceFigures with_one;
  std::string why;
};

struct HostChoice {
  std::vector<ChosenJob> jobs;  // the one of most tokens a second first; never empty
  ChoiceFigures figures;
  std::vector<LeftOutHosts> left_out;
  // The best single host with all sequences, for comparison; no sequences: none holds the model.
  ChoiceFigures alone;
  int best_alone = -1;  // index into the profile's hosts
  bool exact = false;   // every choice was looked at, or passed over by the bound
};

struct ChoiceRules {
  PlanGoal goal = PlanGoal::kThroughput;
  int64_t stages = 0;     // of the one job there is then; 0: any number
  int64_t most_jobs = 0;  // 0: as many as pay
};

// Whether jobs of figures `a` are better than of `b`: not where they are tied.
bool IsBetter(PlanGoal goal, const ChoiceFigures& a, const ChoiceFigures& b);

// So many sequences in proportion to rates above 0, each part at least 1; what rounding leaves goes to the part that
// has least for its rate, or comes from the one that has most. Empty: there are fewer sequences than parts.
std::vector<int64_t> ShareSequences(int64_t all, const std::vector<double>& rates);

// `question`: its stage_hosts are the slots that may be used, in the order of the hosts; its max_num_seqs are shared by
// the jobs. Errors as of PlanCluster on all slots, if no choice can run the model.
absl::StatusOr<HostChoice> ChooseHosts(const ClusterQuestion& question, const ChoiceRules& rules);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CHOICE_HOST_CHOICE_H_
