#ifndef STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_
#define STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_

// What `coordinator doctor` finds: whether a job would run, and what stands in its way.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/hosts/host_survey.h"
#include "coordinator/launch/hosts/network_trial.h"
#include "coordinator/launch/placement.h"
#include "proto/probe.pb.h"

namespace stagecoach {

struct Finding {
  enum class Level { kOk, kWarning, kError };
  Level level = Level::kOk;
  std::string subject;  // what was looked at: "mpirun", "host node3", "stage 0 on a -> stage 1 on b"
  std::string found;
  std::string fix;                    // of what is not ok
  ExitCode code = ExitCode::kLaunch;  // of an error

  static Finding Ok(std::string subject, std::string found) {
    return {Level::kOk, std::move(subject), std::move(found)};
  }
  static Finding Warning(std::string subject, std::string found, std::string fix) {
    return {Level::kWarning, std::move(subject), std::move(found), std::move(fix)};
  }
  static Finding Error(std::string subject, std::string found, std::string fix, ExitCode code = ExitCode::kLaunch) {
    return {Level::kError, std::move(subject), std::move(found), std::move(fix), code};
  }
  friend bool operator==(const Finding&, const Finding&) = default;
};
using Findings = std::vector<Finding>;

// An error whose message ends with what to do: "... is cut; copy it again". That part, after the last "; ", is its fix.
Finding ErrorOfMessage(std::string subject, absl::string_view message, ExitCode code = ExitCode::kLaunch);

// Of the answers of other hosts (host_survey.h). `own`: this program's Hello. `hosts`, `stages`: of the launch
// (launch_plan.h). `threads` of each stage, 0: all cores together. A host that cannot be used is an error where the
// others have too few slots for the stages, and the host is not a spare one.
Findings FindingsOfSurvey(const std::vector<HostAnswer>& answers, const pb::Hello& own,
                          const std::vector<LaunchHost>& hosts, int stages, int threads = 0);

// Of the report of a probe: each host, each link, each clock, each stage's model. `model`: what the file is here; empty
// when the stages need none, without a model or with one that is streamed to them.
Findings FindingsOfReport(const pb::ProbeReport& report, const std::vector<FileFingerprint>& model);

// kOk when none is an error; kInputFile when all errors are of the model; else kLaunch.
ExitCode VerdictOf(const Findings& findings);

// One line each: "error    host node3  cannot be reached: ...; fix".
std::string FindingsText(const Findings& findings);
// {"would_run": true, "findings": [{"level": ..., "subject": ..., "found": ..., "fix": ...}]}
std::string FindingsJson(const Findings& findings);

// By which interface each host is reached, what Open MPI is told of it, and who cannot reach whom: an error where the
// others have too few slots for the stages, and the host is not a spare one. `own_networks`: what the user has set
// instead (LauncherBackend::OwnNetworks).
Findings FindingsOfNetwork(const TriedHosts& tried, const std::string& own_networks,
                           const std::vector<LaunchHost>& hosts, int stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_
