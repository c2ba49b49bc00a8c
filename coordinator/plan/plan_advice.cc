#include "coordinator/plan/plan_advice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/job/job_limits.h"
#include "common/wire/job_proto.h"

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

// The link to a new host: the slowest known link.
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

// Applies the change to the question; false if it has no effect or is impossible.
bool ApplyChange(PlanChange change, const ClusterPlan& plan, ClusterQuestion* question) {
  pb::ConfigureJob& job = question->job;
  HostProfile& profile = question->profile;
  const std::vector<int> hosts = DistinctHosts(question->stage_hosts);
  const bool has_split = job.layer_split_size() > 0;
  switch (change) {
    case PlanChange::kMoreSequences:
      job.set_max_num_seqs(job.max_num_seqs() * kTimesSequences);
      return job.max_num_seqs() <= JobLimits::kMaxNumSeqs.range.max;
    case PlanChange::kFasterLinks:
      for (UplinkFacts& uplink : profile.uplinks) uplink.bandwidth_gbit_s *= kTimesLinks;
      for (LinkFacts& link : profile.links) link.bandwidth_gbit_s *= link.from != link.to ? kTimesLinks : 1;
      if (profile.default_link.has_value()) profile.default_link->bandwidth_gbit_s *= kTimesLinks;
      return hosts.size() > 1;
    case PlanChange::kMoreMemory:
      for (HostFacts& host : profile.hosts) host.available_bytes *= kTimesMemory;
      // A lone stage has all layers, whatever its memory.
      return plan.sequences < job.max_num_seqs() || plan.stages() > 1;
    case PlanChange::kAnotherHost:
      AddHost(question);  // which would take another split, too
      return !has_split && static_cast<int64_t>(question->stage_hosts.size()) <= question->model->hyper.layer_count();
    case PlanChange::kOneStageAHost: {
      const bool shared = hosts.size() < question->stage_hosts.size();
      question->stage_hosts = hosts;
      job.set_threads(0);
      job.clear_layer_split();
      return shared;
    }
    case PlanChange::kBestSplit: job.clear_layer_split(); return has_split;
    case PlanChange::kBestChunk: {
      const bool given = job.prefill_chunk() > 0;
      job.set_prefill_chunk(0);
      return given;
    }
    case PlanChange::kBestGroups: {
      const bool given = job.micro_batches() > 0;
      job.set_micro_batches(0);
      return given;
    }
  }
  return false;
}

// --- beyond what was measured ----------------------------------------------------------------------------------------

constexpr double kMuchLonger = 2;  // times the longest context that was measured

// Notes with the hosts that they apply to, in order of first appearance.
class HostNotes {
 public:
  void Add(const std::string& line, const std::string& host) {
    auto note = std::find_if(notes_.begin(), notes_.end(), [&](const auto& known) { return known.first == line; });
    if (note == notes_.end()) note = notes_.insert(note, {line, {}});
    std::vector<std::string>& hosts = note->second;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const auto& [line, hosts] : notes_) lines.push_back(absl::StrCat(absl::StrJoin(hosts, ", "), ": ", line));
    return lines;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> notes_;
};

// Notes on a host's rates with `stages` stages there, this one included.
void AddRates(const HostFacts& host, bool measured, int stages, int threads, HostNotes* notes) {
  const HostSpeed& speed = *SpeedOf(host, stages, threads);
  if (const int known = speed.stages * speed.threads, used = stages * threads; used < known) {
    notes->Add(absl::StrCat("its rates are of ", CountOf(known, "thread"), ", the stages there have ", used,
                            ": each of these is taken to read its part, or ", kAssumedReadGbpsOfCore,
                            " GB/s where that is more"),
               host.name);
  } else if (measured && known < used) {
    notes->Add(absl::StrCat("its rates were measured with ", CountOf(known, "thread"), ", the stages there have ", used,
                            ": arithmetic is scaled by threads, as far as there are cores, reading is not"),
               host.name);
  }
  if (measured && speed.stages < stages) {
    notes->Add(absl::StrCat("measured with ", speed.stages, " at once at most, ", stages,
                            " stages share it: each is taken to have its share"),
               host.name);
  }
}

void AddSteps(const HostFacts& host, const StageCosts& costs, int threads, double context, HostNotes* notes) {
  if (!costs.measured()) return;
  if (costs.measured_threads() != threads) {
    notes->Add(absl::StrCat("steps were timed with ", CountOf(costs.measured_threads(), "thread"),
                            ", the stages there have ", threads, " each: times are scaled as the rates of so many are"),
               host.name);
  }
  if (context > kMuchLonger * static_cast<double>(costs.measured_context())) {
    notes->Add(absl::StrCat("steps were timed with at most ", costs.measured_context(), " tokens of context, here are ",
                            static_cast<int64_t>(context), ": each is taken to cost as much as those"),
               host.name);
  }
}

std::vector<std::string> ModelLines(const ClusterQuestion& question) {
  if (!question.profile.model.has_value()) return {};
  const ProbedModel& probed = *question.profile.model;
  if (!ProfileIsOf(question.profile, *question.model)) {
    return {absl::StrCat("the profile's step times are of another model, ", probed.name, ": they are not used")};
  }
  const absl::StatusOr<KvType> kv_type = FromProto(question.job.kv_type());
  if (!kv_type.ok() || probed.kv_type.empty() || KvTypeName(*kv_type) == probed.kv_type) return {};
  return {absl::StrCat("steps were timed with K and V as ", probed.kv_type,
                       ": what context costs is scaled by the bytes of ", KvTypeName(*kv_type))};
}

}  // namespace

std::vector<PlanAlternative> AlternativesTo(const ClusterQuestion& question, const ClusterPlan& plan) {
  std::vector<PlanAlternative> alternatives;
  for (const PlanChange change :
       {PlanChange::kMoreSequences, PlanChange::kFasterLinks, PlanChange::kMoreMemory, PlanChange::kAnotherHost,
        PlanChange::kOneStageAHost, PlanChange::kBestSplit, PlanChange::kBestChunk, PlanChange::kBestGroups}) {
    ClusterQuestion changed = question;
    if (!ApplyChange(change, plan, &changed)) continue;
    const absl::StatusOr<ClusterPlan> other = PlanCluster(changed);
    if (!other.ok()) continue;
    alternatives.push_back({change, other->output_tokens_per_s, other->decode.itl_s, other->prefill.ttft_s});
  }
  std::stable_sort(alternatives.begin(), alternatives.end(), [](const PlanAlternative& a, const PlanAlternative& b) {
    return a.output_tokens_per_s > b.output_tokens_per_s;
  });
  return alternatives;
}

std::vector<std::string> ExtrapolationsOf(const ClusterQuestion& question, const ClusterPlan& plan) {
  const bool measured = !question.profile.measured_at.empty();
  const double context = std::max(question.load.decode_context(), static_cast<double>(question.load.prompt_tokens));
  HostNotes notes;
  for (int s = 0; s < plan.stages(); ++s) {
    const int at = question.stage_hosts[static_cast<size_t>(s)];
    const HostFacts& host = question.profile.hosts[static_cast<size_t>(at)];
    const pb::StageAssignment& stage = plan.job.stages[static_cast<size_t>(s)];
    const auto stages = std::count(question.stage_hosts.begin(), question.stage_hosts.end(), at);
    AddRates(host, measured, static_cast<int>(stages), stage.threads(), &notes);
    AddSteps(host, plan.pipeline->costs[static_cast<size_t>(s)], stage.threads(), context, &notes);
    const std::string isa = InstructionSetName(stage.isa());
    if (!host.isa.empty() && host.isa != isa) {
      notes.Add(absl::StrCat("measured with ", host.isa, ", the job computes with ", isa,
                             ": figures are of what was measured"),
                host.name);
    }
  }
  std::vector<std::string> lines = ModelLines(question);
  for (std::string& line : notes.Lines()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace stagecoach
