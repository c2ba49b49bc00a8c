#include "coordinator/session/start_watch.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kSecondLook = absl::Seconds(2);

std::set<std::string> StoppedIn(const std::vector<HostAnswer>& answers) {
  std::set<std::string> stopped;
  for (const HostAnswer& answer : answers) {
    if (!answer.report.has_value()) continue;
    for (const pb::StoppedProcess& process : answer.report->stopped()) {
      const std::string who = process.rank() < 0 ? process.name() : absl::StrCat("rank ", process.rank());
      stopped.insert(absl::StrCat(who, " on ", answer.host, " is stopped (pid ", process.pid(), ")"));
    }
  }
  return stopped;
}

}  // namespace

StartWatch::StartWatch(const LaunchPlan& plan, const Placement& placement, const std::string& name,
                       absl::Duration startup_timeout)
    : period_(startup_timeout / 6), next_look_(period_) {
  std::set<std::string> asked;
  for (const PlacedStages& placed : placement.hosts) {
    if (placed.here || !asked.insert(placed.host).second) continue;
    questions_.push_back(AskForStopped(*plan.backend, plan.programs, placed.host, name));
  }
}

std::string StartWatch::Advance(absl::Duration starting) {
  if (survey_ == nullptr && !questions_.empty() && starting >= next_look_) {
    survey_ = std::make_unique<HostSurvey>(questions_, /*again=*/absl::ZeroDuration());
  }
  if (survey_ == nullptr) return "";
  survey_->Advance();
  const std::set<std::string> stopped = StoppedIn(survey_->answers());
  std::vector<std::string> still;
  std::set_intersection(stopped.begin(), stopped.end(), seen_.begin(), seen_.end(), std::back_inserter(still));
  if (survey_->AllTried()) {
    survey_.reset();
    next_look_ = starting + (stopped.empty() ? period_ : std::min(kSecondLook, period_));
    seen_ = stopped;
  }
  return absl::StrJoin(still, ", ");
}

void StartWatch::AddWaits(std::vector<pollfd>* waits) const {
  if (survey_ != nullptr) survey_->AddWaits(waits);
}

}  // namespace stagecoach
