#include "coordinator/launch/host_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kAskAgain = absl::Seconds(1);
// Hosts that the next launch can do without are not waited for longer.
constexpr absl::Duration kOthersAnswer = absl::Seconds(3);
constexpr absl::Duration kLastClearing = absl::Seconds(5);

}  // namespace

void HostPool::Ask(bool again, const WantedIsa& wanted) {
  wanted_ = wanted;
  asked_again_ = again;
  asked_ = absl::ZeroDuration();
  news_.clear();
  std::vector<HostQuestion> questions;
  std::set<std::string> asked;
  for (const LaunchHost& host : plan_.hosts) {
    if (host.here || !asked.insert(host.name()).second) continue;
    questions.push_back(AskHost(*plan_.backend, plan_.programs, host.name(), uncleared_[host.name()]));
  }
  survey_ = std::make_unique<HostSurvey>(std::move(questions), again ? kAskAgain : absl::ZeroDuration());
}

bool HostPool::Advance(absl::Duration waited) {
  asked_ += waited;
  survey_->Advance();
  const std::vector<HostAnswer>& answers = survey_->answers();
  const bool used_ones_are_there = std::all_of(answers.begin(), answers.end(), [&](const HostAnswer& answer) {
    const bool was_used = !left_out_.contains(answer.host);
    return answer.report.has_value() || !was_used || (!survey_->asks_again() && !answer.trouble.empty());
  });
  const bool done = used_ones_are_there && (survey_->AllTried() || asked_ >= kOthersAnswer);
  if (!done && asked_ < patience_) return false;
  Conclude();
  return true;
}

std::string HostPool::WhyNot(const HostAnswer& answer) const {
  if (!answer.report.has_value()) {
    if (!answer.trouble.empty() && !asked_again_) return absl::StrCat("it cannot be asked: ", answer.trouble);
    return absl::StrCat("it did not answer for ", absl::FormatDuration(absl::Trunc(asked_, absl::Milliseconds(100))),
                        answer.trouble.empty() ? "" : ": ", answer.trouble);
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
  return BestIsa(hello, wanted_).has_value() ? "" : absl::StrCat("it ", WhyNoIsa(hello, wanted_));
}

void HostPool::Conclude() {
  for (const HostAnswer& answer : survey_->answers()) {
    const std::string why = WhyNot(answer);
    if (answer.report.has_value() && answer.report->left_size() == 0) uncleared_.erase(answer.host);
    if (answer.report.has_value() && why.empty()) {
      const bool dot = BestIsa(answer.report->hello(), {.isa = std::nullopt, .bf16_dot = true}).has_value();
      spare_lacks_bf16_dot_ = spare_lacks_bf16_dot_ || !dot;
    }
    const bool was_left_out = left_out_.contains(answer.host);
    if (why.empty() && was_left_out) news_.push_back(absl::StrCat("host ", answer.host, " is back and used again"));
    if (!why.empty() && !was_left_out) news_.push_back(absl::StrCat("host ", answer.host, " is left out: ", why));
    if (why.empty()) {
      left_out_.erase(answer.host);
    } else {
      left_out_[answer.host] = why;
    }
  }
  survey_.reset();
}

Placement HostPool::Place() const {
  std::set<std::string> left_out;
  for (const auto& [host, why] : left_out_) left_out.insert(host);
  return PlaceStages(plan_.hosts, plan_.stages, left_out);
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
  survey_.reset();
  std::vector<HostQuestion> questions;
  for (const auto& [host, names] : std::exchange(uncleared_, {})) {
    if (!names.empty()) questions.push_back(AskHost(*plan_.backend, plan_.programs, host, names));
  }
  if (!questions.empty()) AskAndWait(std::move(questions), kLastClearing);
}

}  // namespace stagecoach
