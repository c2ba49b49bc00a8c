#include "coordinator/launch/hosts/host_survey.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr size_t kMostAnswerBytes = 256 << 10;  // of one answer; a login may print much before it
constexpr absl::Duration kEndsAfterItsOutput = absl::Seconds(1);
constexpr int64_t kPromptStandsUs = 1000000;  // with nothing behind it
// A remote shell that keeps its output back until the end would bring the report only after that.
constexpr absl::Duration kLongestWaitForTrial = absl::Seconds(20);
// Of a remote shell that does not; hosts serve for two minutes.
constexpr absl::Duration kLongestStay = absl::Seconds(90);
constexpr absl::Duration kTrialBegins = absl::Seconds(8);

// What a person looks for in an answer that is none: its last line.
std::string LastLine(absl::string_view text) {
  absl::string_view last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) last = absl::StripAsciiWhitespace(line);
  }
  return std::string(last);
}

// Whether a login waits for a person: its last line has no end and asks for something.
bool AsksAPerson(absl::string_view text) {
  const std::string line = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(text.rfind('\n') + 1)));
  if (text.empty() || text.back() == '\n' || line.empty() || (line.back() != ':' && line.back() != '?')) return false;
  for (const char* word : {"password", "passphrase", "passcode", "verification code", "yes/no"}) {
    if (absl::StrContains(line, word)) return true;
  }
  return false;
}

std::string TroubleOf(const HostQuestion& question, int status, absl::string_view text) {
  const std::string words = LastLine(text);
  const std::string end = WIFEXITED(status) ? absl::StrCat("ended with exit code ", WEXITSTATUS(status))
                                            : absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("`", question.command.front(), "` ", end, words.empty() ? "" : absl::StrCat(": ", words));
}

}  // namespace

HostQuestion AskHost(const LauncherBackend& backend, const JobPrograms& programs, const std::string& host,
                     const std::vector<std::string>& clear, const std::string& model, absl::Duration network) {
  std::vector<std::string> command = {programs.stage_worker, kHostReportFlag};
  for (const std::string& name : clear) command.insert(command.end(), {kClearFlag, name});
  if (!model.empty()) command.insert(command.end(), {kModelToReadFlag, model});
  if (network > absl::ZeroDuration()) {
    command.insert(command.end(),
                   {kNetworkFlag, absl::StrCat(absl::ToInt64Seconds(absl::Ceil(network, absl::Seconds(1))))});
  }
  return {host, backend.RemoteCommand(host, command), model};
}

HostQuestion AskForStopped(const LauncherBackend& backend, const JobPrograms& programs, const std::string& host,
                           const std::string& name) {
  return {host, backend.RemoteCommand(host, {programs.stage_worker, kHostReportFlag, kLookFlag, name}), ""};
}

absl::Duration AwaitsTrial(const LauncherBackend& backend, absl::Duration patience, bool stays) {
  if (!backend.OwnNetworks().empty()) return absl::ZeroDuration();
  return std::min(patience, stays ? kLongestStay : kLongestWaitForTrial) + kTrialBegins;
}

std::string ModelOnHost(const pb::ConfigureJob& job, const HostSlots& host) {
  // A path that is not absolute is no file's: a dummy model's.
  const bool is_file = job.weights() != pb::WEIGHT_SOURCE_STREAM && absl::StartsWith(job.model_path(), "/");
  if (!is_file) return "";
  return host.model.empty() ? job.model_path() : host.model;
}

HostSurvey::HostSurvey(std::vector<HostQuestion> questions, absl::Duration again, absl::Duration slow)
    : questions_(std::move(questions)), again_(again), asking_(questions_.size()) {
  for (const HostQuestion& question : questions_) {
    answers_.push_back({.host = question.host, .model = question.model});
  }
  slow_at_us_ = MonotonicUs() + absl::ToInt64Microseconds(slow);
  Advance();
}

HostSurvey::~HostSurvey() {
  // Those that have brought a report are about to end.
  const int64_t end_by_us = MonotonicUs() + absl::ToInt64Microseconds(kEndsAfterItsOutput);
  for (size_t i = 0; i < asking_.size(); ++i) {
    if (asking_[i].process < 0) continue;
    if (!answers_[i].report.has_value()) KillProgram(asking_[i].process);
    close(asking_[i].output);
    AwaitProgramEnd(asking_[i].process, absl::Microseconds(end_by_us - MonotonicUs()));
  }
}

void HostSurvey::AddWaits(std::vector<pollfd>* waits) const {
  for (const Asking& asking : asking_) {
    if (asking.output >= 0) waits->push_back({asking.output, POLLIN, 0});
  }
}

absl::Duration HostSurvey::longest_wait() const {
  const int64_t now_us = MonotonicUs();
  int64_t next_us = now_us + 1000000;
  for (size_t i = 0; i < asking_.size(); ++i) {
    const bool waits = asking_[i].process < 0 && !answers_[i].report.has_value() && asking_[i].next_us >= 0;
    if (waits) next_us = std::min(next_us, asking_[i].next_us);
  }
  return absl::Microseconds(std::max<int64_t>(next_us - now_us, 0));
}

void HostSurvey::Advance() {
  const int64_t now_us = MonotonicUs();
  for (size_t i = 0; i < asking_.size(); ++i) {
    Asking& asking = asking_[i];
    if (asking.process < 0 && !answers_[i].report.has_value() && asking.next_us >= 0 && now_us >= asking.next_us) {
      Start(i);
    }
    if (asking.output >= 0) {
      std::string come;
      const bool open = ReadAvailable(asking.output, &come);
      if (!come.empty()) asking.read_us = now_us;
      if (asking.text.size() < kMostAnswerBytes) asking.text += come;
      if (!open) End(i);
    }
    // A remote shell may keep its output open for long after that, such as for the connections to come.
    if (asking.output >= 0 && HoldsHostReport(asking.text)) TakeReport(i);
    if (answers_[i].report.has_value() || asking.output < 0) continue;
    answers_[i].said = LastLine(asking.text);
    if (now_us - asking.read_us >= kPromptStandsUs && AsksAPerson(asking.text)) GiveUpOnPrompt(i);
  }
}

void HostSurvey::GiveUpOnPrompt(size_t i) {
  KillProgram(asking_[i].process);
  End(i);
  const std::string& host = answers_[i].host;
  answers_[i].trouble = absl::StrCat(
      "`", questions_[i].command.front(), "` asks ", ShownText(LastLine(asking_[i].text)),
      ", and nobody answers; let it log in without (for ssh: a key and a known host; `ssh -o BatchMode=yes ", host,
      " true` must work)");
}

std::string HostSurvey::TakeSlowHosts() {
  if (slow_at_us_ == 0 || MonotonicUs() < slow_at_us_) return "";
  slow_at_us_ = 0;
  std::vector<std::string> slow;
  for (const HostAnswer& answer : answers_) {
    if (!answer.report.has_value() && answer.trouble.empty()) slow.push_back(answer.host);
  }
  return absl::StrJoin(slow, ", ");
}

bool HostSurvey::TakeReport(size_t i) {
  if (answers_[i].report.has_value()) return true;
  absl::StatusOr<pb::HostReport> report = FindHostReport(asking_[i].text);
  if (report.ok()) answers_[i].report = *std::move(report);
  return report.ok();
}

void HostSurvey::Start(size_t i) {
  Asking& asking = asking_[i];
  asking.text.clear();
  asking.next_us = -1;
  asking.read_us = MonotonicUs();
  absl::StatusOr<StartedProgram> started = StartProgram(questions_[i].command, LaunchEnvironment(OwnEnvironment()));
  if (!started.ok()) {
    answers_[i].trouble = std::string(started.status().message());
    return;
  }
  asking.process = started->process;
  asking.output = started->output;
  fcntl(asking.output, F_SETFL, O_NONBLOCK);
}

// The end of its output, or of our patience.
void HostSurvey::End(size_t i) {
  Asking& asking = asking_[i];
  close(asking.output);
  asking.output = -1;
  const int status = AwaitProgramEnd(std::exchange(asking.process, -1), kEndsAfterItsOutput);
  answers_[i].said.clear();
  if (TakeReport(i)) {
    answers_[i].ended = true;
    return;
  }
  answers_[i].trouble = TroubleOf(questions_[i], status, asking.text);
  if (asks_again()) asking.next_us = MonotonicUs() + absl::ToInt64Microseconds(again_);
}

bool HostSurvey::AllTried() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const HostAnswer& a) { return a.report.has_value() || !a.trouble.empty(); });
}

void LogSlowHosts(absl::string_view hosts, absl::Duration most) {
  if (!hosts.empty()) LogInfo(absl::StrCat("waiting for ", hosts, ", for at most ", absl::FormatDuration(most)));
}

void AwaitAnswers(HostSurvey* survey, absl::Duration most, bool tells) {
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  while (!survey->AllTried() && MonotonicUs() < deadline_us) {
    std::vector<pollfd> waits;
    survey->AddWaits(&waits);
    poll(waits.data(), waits.size(), 50);
    survey->Advance();
    if (tells) LogSlowHosts(survey->TakeSlowHosts(), most);
  }
}

std::vector<HostAnswer> AskAndWait(std::vector<HostQuestion> questions, absl::Duration most) {
  HostSurvey survey(std::move(questions), /*again=*/absl::ZeroDuration());
  AwaitAnswers(&survey, most, /*tells=*/false);
  return survey.answers();
}

}  // namespace stagecoach
