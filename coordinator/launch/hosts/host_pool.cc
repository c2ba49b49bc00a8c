#include "coordinator/launch/hosts/host_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/launch/launch_check.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kAskAgain = absl::Seconds(1);
// Hosts that the next launch can do without are not waited for longer.
constexpr absl::Duration kOthersAnswer = absl::Seconds(3);
constexpr absl::Duration kLastClearing = absl::Seconds(5);

std::string WhyNotItsIsas(const pb::Hello& hello, const WantedIsa& wanted) {
  return BestIsa(hello, wanted).has_value() ? "" : absl::StrCat("it ", WhyNoIsa(hello, wanted));
}

}  // namespace

HostPool::HostPool(const LaunchPlan* plan, absl::Duration patience, const std::vector<InstructionSet>& own)
    : plan_(*plan), patience_(patience) {
  for (const InstructionSet isa : own) own_.add_isas(ToProto(isa));
}

void HostPool::Ask(bool again, const pb::ConfigureJob& job) {
  wanted_ = WantedIsaOf(job);
  threads_ = job.threads();
  asked_again_ = again;
  asked_ = absl::ZeroDuration();
  news_.clear();
  std::vector<HostQuestion> questions;
  std::set<std::string> asked;
  for (const LaunchHost& host : plan_.hosts) {
    if (host.here || !asked.insert(host.name()).second) continue;
    const bool ask_for_model = !host.slots.draft && (again || host.slots.spare);
    const std::string model = ask_for_model ? ModelOnHost(job, host.slots) : "";
    questions.push_back(AskHost(*plan_.backend, plan_.programs, host.name(), uncleared_[host.name()], model,
                                AwaitsTrial(*plan_.backend, patience_, hosts_stay_)));
  }
  survey_ = std::make_unique<HostSurvey>(std::move(questions), again ? kAskAgain : absl::ZeroDuration());
}

void HostPool::AddWaits(std::vector<pollfd>* waits) const {
  if (network_ != nullptr) {
    network_->AddWaits(waits);
  } else {
    survey_->AddWaits(waits);
  }
}

absl::Duration HostPool::longest_wait() const {
  return network_ != nullptr ? network_->longest_wait() : survey_->longest_wait();
}

bool HostPool::Advance(absl::Duration waited) {
  if (network_ == nullptr) {
    if (!AllAsked(waited)) return false;
    TryNetwork();
  }
  network_->Advance();
  if (!network_->ended()) return false;
  ApplyTrial();
  return true;
}

bool HostPool::AllAsked(absl::Duration waited) {
  asked_ += waited;
  survey_->Advance();
  LogSlowHosts(survey_->TakeSlowHosts(), patience_);
  const std::vector<HostAnswer>& answers = survey_->answers();
  const bool used_ones_are_there = std::all_of(answers.begin(), answers.end(), [&](const HostAnswer& answer) {
    const bool was_used = !left_out_.contains(answer.host) && !IsOfDraft(answer.host);
    return answer.report.has_value() || !was_used || (!survey_->asks_again() && !answer.trouble.empty());
  });
  return (used_ones_are_there && (survey_->AllTried() || asked_ >= kOthersAnswer)) || asked_ >= patience_;
}

void HostPool::TryNetwork() {
  std::set<std::string> left_out;
  for (const HostAnswer& answer : survey_->answers()) {
    if (!WhyNot(answer).empty()) left_out.insert(answer.host);
  }
  for (const LaunchHost& host : plan_.hosts) {
    if (host.here && !WhyNotItsIsas(own_, WantedOf(host.name())).empty()) left_out.insert(host.name());
  }
  network_ = std::make_unique<NetworkTrial>(plan_.hosts, plan_.stages, std::move(left_out), survey_->answers());
}

std::string HostPool::WhyNot(const HostAnswer& answer) const {
  if (!answer.report.has_value()) {
    if (!answer.trouble.empty() && !asked_again_) return absl::StrCat("it cannot be asked: ", answer.trouble);
    return absl::StrCat("it did not answer for ", absl::FormatDuration(absl::Trunc(asked_, absl::Milliseconds(100))),
                        answer.trouble.empty() ? "" : ": ", answer.trouble,
                        answer.said.empty() ? "" : absl::StrCat("; its login wrote ", ShownText(answer.said)));
  }
  const pb::Hello& hello = answer.report->hello();
  if (const std::string other = OtherVersion(hello, MakeHello(pb::Hello::ROLE_COORDINATOR, {})); !other.empty()) {
    return absl::StrCat("its stage_worker ", other);
  }
  if (answer.report->left_size() > 0) {
    return absl::StrCat("what a lost job left there does not end: ",
                        absl::StrJoin(answer.report->left(), ", ", [](std::string* out, const pb::LeftProcess& left) {
                          absl::StrAppend(out, left.name(), " (process ", left.pid(), ", state ", left.state(), ")");
                        }));
  }
  const std::vector<std::string> shortages =
      ShortagesThere(*answer.report, answer.host, plan_.hosts, plan_.stages, threads_);
  if (!shortages.empty()) return absl::StrJoin(shortages, "; ");
  if (answer.LacksModel()) return absl::StrCat("it cannot read the model file '", answer.model, "'");
  return WhyNotItsIsas(hello, WantedOf(answer.host));
}

bool HostPool::IsOfDraft(const std::string& host) const {
  return std::all_of(plan_.hosts.begin(), plan_.hosts.end(),
                     [&](const LaunchHost& known) { return known.name() != host || known.slots.draft; });
}

WantedIsa HostPool::WantedOf(const std::string& host) const {
  WantedIsa wanted = wanted_;
  if (IsOfDraft(host)) wanted.bf16_dot.reset();
  return wanted;
}

void HostPool::ApplyTrial() {
  for (const HostAnswer& answer : survey_->answers()) {
    hosts_stay_ = hosts_stay_ || (answer.report.has_value() && !answer.ended);
    if (answer.report.has_value() && answer.report->left_size() == 0) uncleared_.erase(answer.host);
    std::string why_not = WhyNot(answer);
    const auto unreachable = network_->unreachable().find(answer.host);
    if (why_not.empty() && unreachable != network_->unreachable().end()) why_not = unreachable->second;
    SetUsable(answer.host, why_not, answer.report.has_value() ? answer.report->hello() : pb::Hello());
  }
  for (const LaunchHost& host : plan_.hosts) {
    if (host.here) SetUsable(host.name(), WhyNotItsIsas(own_, WantedOf(host.name())), own_);
  }
  // Those of the last launch stay where nothing could be tried.
  if (Networks found = network_->networks(); !found.empty()) networks_ = std::move(found);
  network_.reset();  // hosts that were tried end then
  survey_.reset();
}

void HostPool::SetUsable(const std::string& host, const std::string& why_not, const pb::Hello& hello) {
  const bool was_left_out = left_out_.contains(host);
  if (!why_not.empty()) {
    if (!was_left_out) news_.push_back(absl::StrCat("host ", host, " is left out: ", why_not));
    left_out_[host] = why_not;
    return;
  }
  if (was_left_out) news_.push_back(absl::StrCat("host ", host, " is back and used again"));
  left_out_.erase(host);
  const bool dot = BestIsa(hello, {.isa = std::nullopt, .bf16_dot = true}).has_value();
  spare_lacks_bf16_dot_ = spare_lacks_bf16_dot_ || (!dot && !IsOfDraft(host));
}

Placement HostPool::Place() const {
  std::set<std::string> left_out;
  for (const auto& [host, why] : left_out_) left_out.insert(host);
  Placement placement = PlaceStages(plan_.hosts, plan_.stages, left_out);
  PlaceDraft(plan_.hosts, left_out, &placement);
  placement.networks = networks_;
  return placement;
}

std::string HostPool::DescribeLeftOut() const {
  return absl::StrJoin(left_out_, "; ",
                       [](std::string* out, const auto& host) { absl::StrAppend(out, host.first, ": ", host.second); });
}

void HostPool::Launched(const Placement& placement, const std::string& name) {
  for (const PlacedStages& placed : placement.hosts) {
    if (!placed.here) uncleared_[placed.host].push_back(name);
  }
}

void HostPool::Clear() {
  network_.reset();
  survey_.reset();
  std::vector<HostQuestion> questions;
  for (const auto& [host, names] : std::exchange(uncleared_, {})) {
    if (!names.empty()) questions.push_back(AskHost(*plan_.backend, plan_.programs, host, names));
  }
  if (!questions.empty()) AskAndWait(std::move(questions), kLastClearing);
}

}  // namespace stagecoach
