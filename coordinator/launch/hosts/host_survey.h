#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_SURVEY_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_SURVEY_H_

// Asks other hosts, all at once, before ranks start there: whether they are reachable, their abilities and limits, and
// whether an earlier job's processes are gone. A login that prompts for a password, a passphrase or a host's
// confirmation has failed. For each host the launcher's remote shell runs
//   stage_worker --host-report [--clear NAME]... [--model FILE] [--network SECONDS]
// there, which ends all processes of the named launches, removes their directories, and answers with one line
// (common/wire/host_report.h). With --network it then stays for a NetworkTrial.

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/launcher_backend.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct HostQuestion {
  std::string host;
  std::vector<std::string> command;  // argv, on this host
  std::string model;                 // that the host is to read; empty: none
};

// `clear`: names of earlier launches that took part on that host (LaunchPlaces::name). `network`: how long the host
// waits after its report to be tried by TCP; zero: not at all.
HostQuestion AskHost(const LauncherBackend& backend, const JobPrograms& programs, const std::string& host,
                     const std::vector<std::string>& clear, const std::string& model = "",
                     absl::Duration network = absl::ZeroDuration());

// How long hosts wait for a NetworkTrial, which begins when all have answered or `patience` is over; zero if there is
// none because the user has set the networks. `stays`: hosts are known to stay after their report.
absl::Duration AwaitsTrial(const LauncherBackend& backend, absl::Duration patience, bool stays);

// Whether processes of the launch of that name are stopped there.
HostQuestion AskForStopped(const LauncherBackend& backend, const JobPrograms& programs, const std::string& host,
                           const std::string& name);

// The file that a host must have to take part in this job; empty: none, such as of a model that is streamed.
std::string ModelOnHost(const pb::ConfigureJob& job, const HostSlots& host);

struct HostAnswer {
  std::string host;
  std::optional<pb::HostReport> report;
  std::string trouble;  // why there is none (yet): the last words of the remote shell; empty before it has ended once
  std::string said;     // the last line of a login that has neither answered nor ended
  std::string model;    // as in the question
  bool ended = false;   // it has answered, and does not stay to be tried by TCP
  bool LacksModel() const { return report.has_value() && report->hello().model_path() != model; }
};

// Not thread-safe. It waits for nothing: whoever owns it has the deadline.
class HostSurvey {
 public:
  // Starts asking. `again`: a host that did not answer is asked again after so long; zero: each is asked once.
  // `slow`: after how long hosts are slow to answer.
  HostSurvey(std::vector<HostQuestion> questions, absl::Duration again, absl::Duration slow = absl::Seconds(3));
  ~HostSurvey();  // ends the processes that are still asking
  HostSurvey(const HostSurvey&) = delete;

  // For poll(): readable when there is something to do for Advance.
  void AddWaits(std::vector<pollfd>* waits) const;
  absl::Duration longest_wait() const;  // until Advance has something to do by the clock

  // Reads what has come, starts what is to be asked again.
  void Advance();

  const std::vector<HostAnswer>& answers() const { return answers_; }
  bool asks_again() const { return again_ > absl::ZeroDuration(); }
  bool AllTried() const;  // every host has answered, or failed to at least once

  // Once, when they are slow: the hosts that have neither answered nor failed, "node7, node8"; else empty.
  std::string TakeSlowHosts();

 private:
  struct Asking {
    pid_t process = -1;
    int output = -1;
    std::string text;
    int64_t next_us = 0;  // when to ask (again), while no process runs
    int64_t read_us = 0;  // when the latest text came
  };
  void Start(size_t i);
  void End(size_t i);
  bool TakeReport(size_t i);  // whether there is one
  void GiveUpOnPrompt(size_t i);

  const std::vector<HostQuestion> questions_;
  const absl::Duration again_;
  std::vector<Asking> asking_;       // by question
  std::vector<HostAnswer> answers_;  // likewise
  int64_t slow_at_us_ = 0;           // when to name those that are slow; 0: that was done
};

// Until every host has answered, or failed to, or so long has passed. `tells`: logs which hosts are slow to answer.
void AwaitAnswers(HostSurvey* survey, absl::Duration most, bool tells);

// Asks each once and waits for all, at most so long.
std::vector<HostAnswer> AskAndWait(std::vector<HostQuestion> questions, absl::Duration most);

// Logs that hosts ("node7, node8") are slow to answer.
void LogSlowHosts(absl::string_view hosts, absl::Duration most);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_SURVEY_H_
