#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_POOL_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_HOST_POOL_H_

// The hosts of a session over its launches: which can run stages, which are left out and why, what launches left.
//
// Before each launch the other hosts are asked (host_survey.h), which also ends what lost jobs left there: ranks that
// still run hold memory that the new ones need. Then TCP is tried between the hosts that answered (network_trial.h). A
// host that does not answer in time or is unreachable is left out of this launch: spare hosts replace it, else there
// are fewer stages. It is asked again before the next one.

#include <poll.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_choices.h"
#include "common/wire/handshake.h"
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

  // Starts asking. Hosts without an instruction set that suits the job are left out, and spare hosts that cannot read
  // its model. `again`: hosts that fail to answer are asked until patience ends, and any host that cannot read the
  // model is left out: after a reboot a file system may come later. (In the first launch its stage reports that.)
  void Ask(bool again, const pb::ConfigureJob& job);
  bool asking() const { return survey_ != nullptr; }
  void AddWaits(std::vector<pollfd>* waits) const;
  absl::Duration longest_wait() const;

  // While asking: handles answers, `waited` after the previous call. True when asking has ended: all hosts of the
  // previous launch (at first, all) answered and the others had their chance, or patience was over; TCP was tried. One
  // that is the draft's alone is among the others: the job can do without.
  bool Advance(absl::Duration waited);

  // On the hosts that are not left out; fewer stages than planned, possibly none, where slots are missing.
  Placement Place() const;

  // Changes since the previous launch, as sentences: hosts left out and why, hosts used again.
  std::vector<std::string> News() const { return news_; }
  // "node3: ...; node5: ..."
  std::string DescribeLeftOut() const;
  // A host that may take stages later has no BF16 dot, so no answer may be computed with it. A draft computes none.
  bool SpareLacksBf16Dot() const { return spare_lacks_bf16_dot_; }

  // A launch of this name (Launcher::name) uses these hosts.
  void Launched(const Placement& placement, const std::string& name);

  // Ends what the last launch left on other hosts, if they answer within a few seconds.
  void Clear();

 private:
  bool AllAsked(absl::Duration waited);
  void TryNetwork();
  void ApplyTrial();
  std::string WhyNot(const HostAnswer& answer) const;
  bool IsOfDraft(const std::string& host) const;  // and of no stage
  WantedIsa WantedOf(const std::string& host) const;
  // `hello`: of a host that can be used.
  void SetUsable(const std::string& host, const std::string& why_not, const pb::Hello& hello);

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
