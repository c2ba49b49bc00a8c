#include "coordinator/plan/plan_advice.h"

#include <algorithm>

#include "common/job/job_limits.h"
#include "coordinator/plan/assumed_facts.h"

namespace stagecoach {
namespace {

constexpr int kTimesSequences = 2, kTimesLinks = 10, kTimesMemory = 2;

std::vector<int> DistinctHosts(const std::vector<int>& stage_hosts) {
  std::vector<int> hosts;
  for (const int host : stage_hosts) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

// What a host that nobody has seen yet would be reached by: the slowest link there is.
LinkFacts LinkOfNewHost(const HostProfile& profile) {
  std::optional<LinkFacts> slowest = profile.default_link;
  for (const LinkFacts& link : profile.links) {
    if (link.from == link.to) continue;
    if (!slowest.has_value() || link.bandwidth_gbit_s < slowest->bandwidth_gbit_s) slowest = link;
  }
  return slowest.value_or(AssumedLink());
}

void AddHost(ClusterQuestion* question) {
  HostProfile& profile = question->profile;
  const int last = question->stage_hosts.back();
  const auto stages = std::count(question->stage_hosts.begin(), question->stage_hosts.end(), last);
  const LinkFacts link = LinkOfNewHost(profile);
  profile.default_link = link;
  HostFacts another = profile.hosts[last];
  another.name += " (another)";
  profile.hosts.push_back(std::move(another));
  for (int64_t i = 0; i < stages; ++i) {
    question->stage_hosts.push_back(static_cast<int>(profile.hosts.size()) - 1);
  }
}

// A question of its own for each change; absent where it would change nothing.
std::optional<ClusterQuestion> Changed(const ClusterQuestion& question, const ClusterPlan& plan, PlanChange change) {
  ClusterQuestion changed = question;
  changed.job.clear_layer_split();  // the layers are free again
  const std::vector<int> hosts = DistinctHosts(question.stage_hosts);
  const auto layers = static_cast<size_t>(question.model->hyper.layer_count());
  switch (change) {
    case PlanChange::kMoreSequences: {
      const int64_t more = int64_t{question.job.max_num_seqs()} * kTimesSequences;
      if (more > JobLimits::kMaxNumSeqs.range.max) return std::nullopt;
      changed.job.set_max_num_seqs(static_cast<int32_t>(more));
      return changed;
    }
    case PlanChange::kFasterLinks:
      if (hosts.size() < 2) return std::nullopt;
      for (LinkFacts& link : changed.profile.links) {
        if (link.from != link.to) link.bandwidth_gbit_s *= kTimesLinks;
      }
      if (changed.profile.default_link.has_value()) changed.profile.default_link->bandwidth_gbit_s *= kTimesLinks;
      return changed;
    case PlanChange::kMoreMemory:
      if (plan.sequences >= question.job.max_num_seqs()) return std::nullopt;
      for (HostFacts& host : changed.profile.hosts) host.available_bytes *= kTimesMemory;
      return changed;
    case PlanChange::kAnotherHost:
      AddHost(&changed);
      if (changed.stage_hosts.size() > layers) return std::nullopt;
      return changed;
    case PlanChange::kOneStageAHost:
      if (hosts.size() == question.stage_hosts.size()) return std::nullopt;
      changed.stage_hosts = hosts;
      changed.job.set_threads(0);
      return changed;
    case PlanChange::kBestChunk:
      if (question.job.prefill_chunk() == 0) return std::nullopt;
      changed.job.set_prefill_chunk(0);
      return changed;
    case PlanChange::kBestGroups:
      if (question.job.micro_batches() == 0) return std::nullopt;
      changed.job.set_micro_batches(0);
      return changed;
  }
  return std::nullopt;
}

std::optional<IndependentJobs> Independent(const ClusterQuestion& question) {
  if (question.stage_hosts.size() == 1) return std::nullopt;
  IndependentJobs jobs;
  jobs.hosts = DistinctHosts(question.stage_hosts);
  const auto count = static_cast<int64_t>(jobs.hosts.size());
  jobs.sequences = (question.job.max_num_seqs() + count - 1) / count;
  for (const int host : jobs.hosts) {
    ClusterQuestion alone = question;
    alone.stage_hosts = {host};
    alone.profile.coordinator = host;
    alone.job.clear_layer_split();
    alone.job.set_threads(0);
    alone.job.set_micro_batches(0);
    alone.job.set_max_num_seqs(static_cast<int32_t>(jobs.sequences));
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(alone);
    // Where it holds fewer at once than its part, it is no job like this one.
    if (!plan.ok() || plan->sequences < jobs.sequences) return std::nullopt;
    jobs.output_tokens_per_s += plan->output_tokens_per_s;
  }
  return jobs;
}

}  // namespace

PlanAdvice AdviceFor(const ClusterQuestion& question, const ClusterPlan& plan) {
  PlanAdvice advice;
  for (const PlanChange change :
       {PlanChange::kMoreSequences, PlanChange::kFasterLinks, PlanChange::kMoreMemory, PlanChange::kAnotherHost,
        PlanChange::kOneStageAHost, PlanChange::kBestChunk, PlanChange::kBestGroups}) {
    const std::optional<ClusterQuestion> changed = Changed(question, plan, change);
    if (!changed.has_value()) continue;
    const absl::StatusOr<ClusterPlan> other = PlanCluster(*changed);
    if (!other.ok()) continue;
    advice.alternatives.push_back({change, other->output_tokens_per_s, other->decode.itl_s, other->prefill.ttft_s});
  }
  std::stable_sort(
      advice.alternatives.begin(), advice.alternatives.end(),
      [](const PlanAlternative& a, const PlanAlternative& b) { return a.output_tokens_per_s > b.output_tokens_per_s; });
  advice.independent = Independent(question);
  return advice;
}

}  // namespace stagecoach
