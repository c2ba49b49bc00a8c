#include "coordinator/front/start_watch.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

std::vector<std::string> StoppedIn(const std::vector<HostAnswer>& answers) {
  std::vector<std::string> stopped;
  for (const HostAnswer& answer : answers) {
    if (!answer.report.has_value()) continue;
    for (const pb::StoppedProcess& process : answer.report->stopped()) {
      const std::string who = process.rank() < 0 ? process.name() : absl::StrCat("rank ", process.rank());
      stopped.push_back(absl::StrCat(who, " on ", answer.host, " is stopped (pid ", process.pid(), ")"));
    }
  }
  return stopped;
}

}  // namespace

StartWatch::StartWatch(const LaunchPlan& plan, const Placement& placement, const std::string& name,
                       absl::Duration startup_timeout)
    : looks_after_(startup_timeout / 6) {
  std::set<std::string> asked;
  for (const PlacedStages& placed : placement.hosts) {
    if (placed.here || !asked.insert(placed.host).second) continue;
    questions_.push_back(AskForStopped(*plan.backend, plan.programs, placed.host, name));
  }
}

std::string StartWatch::Advance(absl::Duration starting) {
  if (!questions_.empty() && starting >= looks_after_) {
    survey_ = std::make_unique<HostSurvey>(std::exchange(questions_, {}), /*again=*/absl::ZeroDuration());
  }
  if (survey_ == nullptr) return "";
  survey_->Advance();
  const std::vector<std::string> stopped = StoppedIn(survey_->answers());
  if (survey_->AllTried() || !stopped.empty()) survey_.reset();
  return absl::StrJoin(stopped, ", ");
}

void StartWatch::AddWaits(std::vector<pollfd>* waits) const {
  if (survey_ != nullptr) survey_->AddWaits(waits);
}

}  // namespace stagecoach
