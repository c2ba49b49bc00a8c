#ifndef STAGECOACH_COORDINATOR_FRONT_LAUNCHED_SESSION_H_
#define STAGECOACH_COORDINATOR_FRONT_LAUNCHED_SESSION_H_

// A session whose jobs this process launches, watches and replaces.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/front/missing_ranks.h"
#include "coordinator/front/relaunch_policy.h"
#include "coordinator/front/session_core.h"
#include "coordinator/front/start_watch.h"
#include "coordinator/launch/host_pool.h"
#include "coordinator/launch/launcher.h"

namespace stagecoach {

class LaunchedSession : public SessionCore {
 public:
  LaunchedSession(const LaunchOptions& options, LaunchPlan plan);
  int relaunches() const override { return relaunches_; }

  // The first launch; later ones happen in Next.
  absl::Status Start();

 protected:
  absl::Status Prepare() override;
  absl::Status Supervise(absl::Duration waited, absl::Span<const pollfd> waits) override;
  absl::Status OnLost(const std::string& what) override;
  void AddWaits(std::vector<pollfd>* waits) const override;
  absl::Duration longest_wait() const override;
  void AwaitJobEnd() override;

 private:
  // A launch: asks the other hosts, if there are any, then starts the ranks.
  absl::Status Begin();
  absl::Status OnHostsAsked();
  absl::Status SuperviseStart(absl::Duration waited);
  absl::Status StartRanks(const Placement& placement);
  absl::Status OnLauncherEnded(int exit_code);
  absl::Status Lose(const std::string& what, bool accusing = false, std::optional<int> stage = std::nullopt);
  absl::Status Lose(const RankDeath& death);
  std::string NameOf(int rank) const;
  void AwaitLastWords(absl::Duration most);
  std::string DescribeRanks() const;
  std::string DescribeOtherHosts() const;  // for a job that does not come up

  const LaunchPlan plan_;
  const absl::Duration startup_timeout_;
  const absl::Duration silence_timeout_;
  const int max_losses_;
  const absl::Duration relaunch_timeout_;
  std::string (*const wording_)(absl::string_view);
  const std::string launcher_args_;

  HostPool hosts_;
  Placement placement_;                 // of the present job, or the one before
  std::unique_ptr<Launcher> launcher_;  // of the present job; none between a loss and the next launch
  absl::Duration starting_;             // time since the launch
  absl::Duration startup_time_;         // after which it is lost unless it has reported
  MissingRanks missing_ranks_;          // of the present job, while it starts
  std::optional<StartWatch> watch_;     // likewise
  bool end_seen_ = false;               // the launcher has ended, and its engine was given a last chance to be heard
  int launches_ = 0;                    // of ranks
  int relaunches_ = 0;
  RelaunchPolicy policy_;
  uint64_t progress_seen_ = 0;
  int64_t next_launch_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_LAUNCHED_SESSION_H_
