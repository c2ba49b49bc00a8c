#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_POOL_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_POOL_H_

// The hosts of a session over its launches: which of them can run stages now, which are left out and why, and what
// earlier launches may have left on them.
//
// Before each launch the other hosts are asked (host_survey.h), which also ends what lost jobs left there: ranks that
// still run hold the memory that their successors need. Between those that answer TCP is then tried (network_trial.h).
// A host that does not answer in time, or that others cannot reach, is left out of that launch: spare hosts take its
// place, else there are fewer stages. It is asked again before the next one.

#include <poll.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_choices.h"
#include "common/wire/bit_class.h"
#include "coordinator/launch/hosts/host_survey.h"
#include "coordinator/launch/hosts/network_trial.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// Not thread-safe.
class HostPool {
 public:
  // `plan` outlives it. `patience`: for a host's answer. `own`: the instruction sets of this host, which is not asked.
  HostPool(const LaunchPlan* plan, absl::Duration patience,
           const std::vector<InstructionSet>& own = CpuInstructionSets());
  ~HostPool() { Clear(); }
  HostPool(const HostPool&) = delete;

  // Starts asking. `again`: hosts that fail to answer are asked on while patience lasts. Hosts without an instruction
  // set that suits the job are left out. So are spare hosts that cannot read its model, and again any host: after a
  // reboot a file system may come later. (At first its stage says it, with its reason.)
  void Ask(bool again, const pb::ConfigureJob& job);
  bool asking() const { return survey_ != nullptr; }
  void AddWaits(std::vector<pollfd>* waits) const;
  absl::Duration longest_wait() const;

  // While asking: takes what has come, `waited` after the call before. Whether asking has ended: TCP has been tried,
  // and before that every host of the launch before (at first, every one) has answered and each other had its chance,
  // or patience was over.
  bool Advance(absl::Duration waited);

  // Over the hosts that are not left out; fewer stages than the plan's, possibly none, where these have too few slots.
  Placement Place() const;

  // What has changed since the launch before, as sentences to be shown: hosts left out and why, hosts used again.
  std::vector<std::string> News() const { return news_; }
  // "node3: ...; node5: ..."
  std::string DescribeLeftOut() const;
  // A host that may have to take stages later has no BF16 dot, so that no answer may be computed with it.
  bool SpareLacksBf16Dot() const { return spare_lacks_bf16_dot_; }

  // A launch of this name (Launcher::name) uses these hosts.
  void Launched(const Placement& placement, const std::string& name);

  // Ends what is left on the other hosts after the last launch, as far as they answer in a few seconds.
  void Clear();

 private:
  bool AllAsked(absl::Duration waited);
  void TryNetwork();
  void Conclude();
  std::string WhyNot(const HostAnswer& answer) const;
  // `hello`: of a host that can be used.
  void Judge(const std::string& host, const std::string& why_not, const pb::Hello& hello);

  const LaunchPlan& plan_;
  const absl::Duration patience_;
  pb::Hello own_;    // constant; its instruction sets alone
  int threads_ = 0;  // of each stage, as the job says
  WantedIsa wanted_;
  bool asked_again_ = false;
  std::unique_ptr<HostSurvey> survey_;  // while asking
  absl::Duration asked_;
  std::unique_ptr<NetworkTrial> network_;                      // while asking, once the hosts have answered
  Networks networks_;                                          // found last
  bool hosts_stay_ = false;                                    // behind their report, for the trial: one did
  std::map<std::string, std::string> left_out_;                // with why
  std::map<std::string, std::vector<std::string>> uncleared_;  // names of launches, by host
  std::vector<std::string> news_;
  bool spare_lacks_bf16_dot_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_POOL_H_
