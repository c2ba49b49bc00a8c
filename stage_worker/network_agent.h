#ifndef STAGECOACH_STAGE_WORKER_NETWORK_AGENT_H_
#define STAGECOACH_STAGE_WORKER_NETWORK_AGENT_H_

// The part of `stage_worker --host-report --network SECONDS`: after its report the host stays to be tried by TCP, and
// to try other hosts as the front tells it (coordinator/launch/network_trial.h).

#include <memory>

#include "absl/time/time.h"
#include "common/net/tcp_trial.h"
#include "proto/control.pb.h"

namespace stagecoach {

// Not thread-safe.
class NetworkAgent {
 public:
  // However the front ends, and whatever is lost on the way.
  static constexpr absl::Duration kLongestService = absl::Minutes(2);

  // Listens. `awaits`: how long for the front's first connection.
  explicit NetworkAgent(absl::Duration awaits);

  // This host's addresses, and where it listens.
  void Announce(pb::HostReport* report) const;

  // Until the front has closed its connections, none came in time, or nobody reads this program's output any more (its
  // login has ended).
  void Serve();

 private:
  const absl::Duration awaits_;
  std::unique_ptr<TrialServer> server_;  // nullptr: it cannot listen
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_NETWORK_AGENT_H_
