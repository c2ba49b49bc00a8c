#include "coordinator/plan/extrapolation.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/assumed_facts.h"

namespace stagecoach {
namespace {

constexpr double kMuchLonger = 2;  // times the longest context that was measured

// Lines that are true of hosts, in the order in which they were first said.
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

std::string ThreadsText(int threads) { return absl::StrCat(threads, threads == 1 ? " thread" : " threads"); }

// What is said of a host's rates for `stages` stages there, this one included.
void AddRates(const HostFacts& host, bool measured, int stages, int threads, HostNotes* notes) {
  const HostSpeed& speed = *SpeedOf(host, stages, threads);
  if (const int known = speed.stages * speed.threads, used = stages * threads; used < known) {
    notes->Add(absl::StrCat("its rates are of ", ThreadsText(known), ", the stages there have ", used,
                            ": each of these is taken to read its part, or ", kAssumedReadGbpsOfCore,
                            " GB/s where that is more"),
               host.name);
  } else if (measured && known < used) {
    notes->Add(absl::StrCat("its rates were measured with ", ThreadsText(known), ", the stages there have ", used,
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
    notes->Add(absl::StrCat("steps were timed with ", ThreadsText(costs.measured_threads()), ", the stages there have ",
                            threads, " each: times are scaled as the rates of so many are"),
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
