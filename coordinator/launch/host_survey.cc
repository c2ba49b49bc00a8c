#include "coordinator/launch/host_survey.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/launch_environment.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr size_t kMostAnswerBytes = 256 << 10;  // of one answer; a login may print much before it
constexpr absl::Duration kEndsAfterItsOutput = absl::Seconds(1);

// What a person looks for in an answer that is none: its last line.
std::string LastLine(absl::string_view text) {
  absl::string_view last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) last = absl::StripAsciiWhitespace(line);
  }
  return std::string(last);
}

std::string TroubleOf(const HostQuestion& question, int status, absl::string_view text) {
  const std::string words = LastLine(text);
  const std::string end = WIFEXITED(status) ? absl::StrCat("ended with exit code ", WEXITSTATUS(status))
                                            : absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("`", question.command.front(), "` ", end, words.empty() ? "" : absl::StrCat(": ", words));
}

}  // namespace

HostQuestion AskHost(const LauncherBackend& backend, const JobPrograms& programs, const std::string& host,
                     const std::vector<std::string>& clear, const std::string& model) {
  std::vector<std::string> command = {programs.stage_worker, kHostReportFlag};
  for (const std::string& name : clear) command.insert(command.end(), {kClearFlag, name});
  if (!model.empty()) command.insert(command.end(), {kModelToReadFlag, model});
  return {host, backend.RemoteCommand(host, command), model};
}

std::string ModelOnHost(const pb::ConfigureJob& job, const HostSlots& host) {
  // A path that is not absolute is no file's: a dummy model's.
  const bool is_file = job.weights() != pb::WEIGHT_SOURCE_STREAM && absl::StartsWith(job.model_path(), "/");
  if (!is_file) return "";
  return host.model.empty() ? job.model_path() : host.model;
}

HostSurvey::HostSurvey(std::vector<HostQuestion> questions, absl::Duration again)
    : questions_(std::move(questions)), again_(again), asking_(questions_.size()) {
  for (const HostQuestion& question : questions_) {
    answers_.push_back({.host = question.host, .model = question.model});
  }
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
    char buffer[4096];
    while (asking.output >= 0) {
      const ssize_t n = read(asking.output, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (n > 0) {
        if (asking.text.size() < kMostAnswerBytes) asking.text.append(buffer, static_cast<size_t>(n));
        continue;
      }
      End(i);
    }
    // A remote shell may keep its output open for long after that, such as for the connections to come.
    if (asking.output >= 0 && HoldsHostReport(asking.text)) TakeReport(i);
  }
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
  if (TakeReport(i)) return;
  answers_[i].trouble = TroubleOf(questions_[i], status, asking.text);
  if (asks_again()) asking.next_us = MonotonicUs() + absl::ToInt64Microseconds(again_);
}

bool HostSurvey::AllTried() const {
  return std::all_of(answers_.begin(), answers_.end(),
                     [](const HostAnswer& a) { return a.report.has_value() || !a.trouble.empty(); });
}

std::vector<HostAnswer> AskAndWait(std::vector<HostQuestion> questions, absl::Duration most) {
  HostSurvey survey(std::move(questions), /*again=*/absl::ZeroDuration());
  const int64_t deadline_us = MonotonicUs() + absl::ToInt64Microseconds(most);
  while (!survey.AllTried() && MonotonicUs() < deadline_us) {
    std::vector<pollfd> waits;
    survey.AddWaits(&waits);
    poll(waits.data(), waits.size(), 50);
    survey.Advance();
  }
  return survey.answers();
}

}  // namespace stagecoach
