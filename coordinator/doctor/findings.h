#ifndef STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_
#define STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_

// The findings of `coordinator doctor`: whether a job would run, and what prevents it.

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

// An error whose message ends with its fix, after the last "; ": "... is cut; copy it again".
Finding ErrorOfMessage(std::string subject, absl::string_view message, ExitCode code = ExitCode::kLaunch);

// The error of a draft, without which a job goes on: a warning.
Finding DraftFinding(Finding finding);

// Findings about the answers of other hosts (host_survey.h). `own`: this program's Hello. `hosts`, `stages`: of the
// launch (launch_plan.h). `threads` per stage; 0: all cores together. A host that cannot be used is an error if the
// others have too few slots and it is not a spare; else a warning.
Findings FindingsOfSurvey(const std::vector<HostAnswer>& answers, const pb::Hello& own,
                          const std::vector<LaunchHost>& hosts, int stages, int threads = 0);

// Findings of a probe's report: hosts, links, clocks, and each stage's model. `model`: the file's fingerprints here;
// empty if the stages need no file (no model, or a streamed one). `draft`: likewise of the draft, without which a job
// goes on.
Findings FindingsOfReport(const pb::ProbeReport& report, const std::vector<FileFingerprint>& model,
                          const std::vector<FileFingerprint>& draft = {});

// kOk when none is an error; kInputFile when all errors are of the model; else kLaunch.
ExitCode VerdictOf(const Findings& findings);

// One line each: "error    host node3  cannot be reached: ...; fix".
std::string FindingsText(const Findings& findings);
// {"would_run": true, "findings": [{"level": ..., "subject": ..., "found": ..., "fix": ...}]}
std::string FindingsJson(const Findings& findings);

// Findings about the network: the interface of each host, Open MPI's settings, and hosts that cannot reach each other,
// which are errors or warnings as above. `own_networks`: the user's own settings (LauncherBackend::OwnNetworks).
Findings FindingsOfNetwork(const TriedHosts& tried, const std::string& own_networks,
                           const std::vector<LaunchHost>& hosts, int stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_DOCTOR_FINDINGS_H_
