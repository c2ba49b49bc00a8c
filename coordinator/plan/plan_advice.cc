#include "coordinator/plan/plan_advice.h"

#include <algorithm>
#include <utility>

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

// The links between the hosts that are there stay as they are.
void AddHost(ClusterQuestion* question) {
  HostProfile& profile = question->profile;
  const int last = question->stage_hosts.back(), added = static_cast<int>(profile.hosts.size());
  const auto stages = std::count(question->stage_hosts.begin(), question->stage_hosts.end(), last);
  const auto add_link = [&](LinkFacts link, int from, int to) {
    link.from = from;
    link.to = to;
    link.from_stage = link.to_stage = LinkFacts::kNoStage;
    profile.links.push_back(link);
  };
  const LinkFacts link = LinkOfNewHost(profile);
  const std::optional<LinkFacts> own = LinkBetween(profile, last, last);
  HostFacts another = profile.hosts[last];
  another.name += " (another)";
  profile.hosts.push_back(std::move(another));
  add_link(link, last, added);
  add_link(link, added, profile.coordinator);
  if (own.has_value()) add_link(*own, added, added);
  question->stage_hosts.insert(question->stage_hosts.end(), static_cast<size_t>(stages), added);
}

// A question of its own for each change; absent where it would change nothing.
std::optional<ClusterQuestion> Changed(const ClusterQuestion& question, const ClusterPlan& plan, PlanChange change) {
  ClusterQuestion changed = question;
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
      // A lone stage has all layers, whatever its memory.
      if (plan.sequences >= question.job.max_num_seqs() && plan.stages() == 1) return std::nullopt;
      for (HostFacts& host : changed.profile.hosts) host.available_bytes *= kTimesMemory;
      return changed;
    case PlanChange::kAnotherHost:
      if (question.job.layer_split_size() > 0) return std::nullopt;  // it would take another split, too
      AddHost(&changed);
      if (changed.stage_hosts.size() > layers) return std::nullopt;
      return changed;
    case PlanChange::kOneStageAHost:
      if (hosts.size() == question.stage_hosts.size()) return std::nullopt;
      changed.stage_hosts = hosts;
      changed.job.set_threads(0);
      changed.job.clear_layer_split();
      return changed;
    case PlanChange::kBestSplit:
      if (question.job.layer_split_size() == 0) return std::nullopt;
      changed.job.clear_layer_split();
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

// One stage on each of these hosts with its part of the sequences; of those that hold it alone.
IndependentJobs JobsOn(const std::vector<int>& hosts, const ClusterQuestion& question) {
  IndependentJobs jobs;
  const auto count = static_cast<int32_t>(hosts.size());
  const int32_t part = (question.job.max_num_seqs() + count - 1) / count;
  for (const int host : hosts) {
    ClusterQuestion alone = question;
    alone.stage_hosts = {host};
    alone.profile.coordinator = host;
    alone.job.clear_layer_split();
    alone.job.set_threads(0);
    alone.job.set_micro_batches(0);
    alone.job.set_max_num_seqs(part);
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(alone);
    if (!plan.ok()) continue;
    jobs.hosts.push_back(host);
    jobs.sequences.push_back(plan->sequences);
    jobs.output_tokens_per_s += plan->output_tokens_per_s;
  }
  return jobs;
}

std::optional<IndependentJobs> Independent(const ClusterQuestion& question) {
  if (question.stage_hosts.size() == 1) return std::nullopt;
  // Without the hosts that are too small the others have larger parts.
  for (std::vector<int> hosts = DistinctHosts(question.stage_hosts); !hosts.empty();) {
    IndependentJobs jobs = JobsOn(hosts, question);
    if (jobs.hosts.size() == hosts.size()) return jobs;
    hosts = std::move(jobs.hosts);
  }
  return std::nullopt;
}

}  // namespace

PlanAdvice AdviceFor(const ClusterQuestion& question, const ClusterPlan& plan) {
  PlanAdvice advice;
  for (const PlanChange change :
       {PlanChange::kMoreSequences, PlanChange::kFasterLinks, PlanChange::kMoreMemory, PlanChange::kAnotherHost,
        PlanChange::kOneStageAHost, PlanChange::kBestSplit, PlanChange::kBestChunk, PlanChange::kBestGroups}) {
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
