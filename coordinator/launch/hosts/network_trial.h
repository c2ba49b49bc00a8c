#ifndef STAGECOACH_COORDINATOR_LAUNCH_HOSTS_NETWORK_TRIAL_H_
#define STAGECOACH_COORDINATOR_LAUNCH_HOSTS_NETWORK_TRIAL_H_

// Tries TCP between the hosts of a launch before ranks start there, with what a rank needs: any port, large messages,
// both ways (common/net/tcp_trial.h). Firewalls that permit logins may block MPI, and a job would hang silently.
//
//   this host ── control ──> each host, which listens since its report (stage_worker/host_report.h)
//   each host ─────────────> this host
//   host of stage k <──────> host of stage k+1, as the control connections order it
//
// A host that fails is left out and the stages are placed again, until all neighbours have been tried. That takes
// milliseconds if everything passes, else kTrialPatience for each round.

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/net/tcp_trial.h"
#include "coordinator/launch/hosts/host_networks.h"
#include "coordinator/launch/hosts/host_survey.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// Not thread-safe. Never blocks: its owner polls.
class NetworkTrial {
 public:
  // `hosts`, `stages`: of the launch. `left_out`: hosts that cannot be used. `answers`: of the others; hosts without
  // an address to try are used untried.
  NetworkTrial(std::vector<LaunchHost> hosts, int stages, std::set<std::string> left_out,
               const std::vector<HostAnswer>& answers);

  void AddWaits(std::vector<pollfd>* waits) const;
  absl::Duration longest_wait() const { return absl::Milliseconds(100); }
  void Advance();
  bool ended() const { return ended_; }

  // After the end: the hosts that cannot take part, with who cannot reach whom and what to do.
  const std::map<std::string, std::string>& unreachable() const { return unreachable_; }
  // For the launch that the others make.
  Networks networks() const;

  // By which interfaces a host is reached: "by eth0 (10.1.2.3, MTU 1500) from eth0 (10.1.2.1)"; for those that pass.
  std::map<std::string, std::string> Paths() const;

 private:
  struct Host {
    std::string name;
    pb::HostReport report;
    std::vector<std::string> candidates;            // addresses, best first
    std::vector<std::unique_ptr<TcpTrial>> trials;  // of these, until one is chosen
    std::string address, own_address;               // of the connection, once there is one
    std::unique_ptr<MessageChannel> channel;
    bool settled = false;  // it is reached, or is known not to be
  };
  struct Order {
    std::string from, to;  // names; `to` empty: this host
    int64_t since_us = 0;
  };
  using Pair = std::pair<std::string, std::string>;

  void AdvanceConnecting(Host* host);
  void Choose(Host* host, size_t candidate);
  void ReadOutcomes(Host* host);
  void GiveUpOrders();
  void Send(const Host* from, const std::string& to, const std::string& address, int port, const std::string& token);
  void TakeOutcome(const Order& order, TrialStep step, const std::string& error);
  bool Settled() const;
  void NextRound();
  std::string Describe(const std::string& from, const std::string& to, TrialStep step, const std::string& error) const;
  Placement Place() const;
  const Host* Find(const std::string& name) const;  // nullptr: it is not tried

  const std::vector<LaunchHost> hosts_;
  const int stages_;
  const std::set<std::string> left_out_;
  const std::vector<pb::HostAddress> own_;
  const int64_t begin_us_;
  std::unique_ptr<TrialServer> server_;  // nullptr: this host cannot listen
  std::vector<Host> tried_;
  std::map<int, Order> orders_;  // without an outcome
  int next_order_ = 0;
  std::set<Pair> pairs_;                  // between hosts, that were ordered
  std::map<Pair, std::string> failures_;  // of these, with what was found
  std::map<std::string, std::string> unreachable_;
  bool ended_ = false;
};

// Asks each host once, waits for all, at most so long, and tries TCP between those that answer.
struct TriedHosts {
  std::vector<HostAnswer> answers;
  std::map<std::string, std::string> unreachable, paths;  // as of NetworkTrial
  Networks networks;
};
TriedHosts AskAndTry(std::vector<HostQuestion> questions, const std::vector<LaunchHost>& hosts, int stages,
                     absl::Duration most);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_HOSTS_NETWORK_TRIAL_H_
