#include "stage_worker/network_agent.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/addresses.h"
#include "common/net/message_channel.h"

namespace stagecoach {
namespace {

constexpr size_t kMostTrials = 256;  // at a time, of one front

// A front's connection, and what it has ordered.
struct Control {
  struct Ordered {
    int id;
    std::unique_ptr<TcpTrial> trial;
  };
  explicit Control(int socket) : channel(socket) {}

  // False once the front has gone.
  bool Advance() {
    if (!channel.Receive()) return false;
    while (const std::optional<std::string> message = channel.Next()) {
      pb::TrialOrder order;
      if (!order.ParseFromString(*message) || trials.size() >= kMostTrials) return false;
      trials.push_back(
          {order.id(), std::make_unique<TcpTrial>(order.address(), order.port(), order.token(), TrialKind::kTrial)});
    }
    for (const Ordered& ordered : trials) {
      ordered.trial->Advance();
      if (!ordered.trial->ended()) continue;
      pb::TrialOutcome outcome;
      outcome.set_id(ordered.id);
      outcome.set_step(static_cast<int>(ordered.trial->step()));
      outcome.set_error(ordered.trial->error());
      if (!channel.Send(outcome.SerializeAsString())) return false;
    }
    std::erase_if(trials, [](const Ordered& ordered) { return ordered.trial->ended(); });
    return true;
  }

  MessageChannel channel;
  std::vector<Ordered> trials;
};

}  // namespace

NetworkAgent::NetworkAgent(absl::Duration awaits) : awaits_(awaits) {
  absl::StatusOr<std::unique_ptr<TrialServer>> server = TrialServer::Listen();
  if (server.ok()) {
    server_ = *std::move(server);
  } else {
    LogError(server.status().message());
  }
}

void NetworkAgent::Announce(pb::HostReport* report) const {
  for (pb::HostAddress& address : OwnAddresses()) *report->add_addresses() = std::move(address);
  if (server_ == nullptr) return;
  report->set_trial_port(server_->port());
  report->set_trial_token(server_->token());
}

void NetworkAgent::Serve() {
  if (server_ == nullptr) return;
  const int64_t begin_us = MonotonicUs();
  std::vector<std::unique_ptr<Control>> controls;
  bool had_control = false;
  while (true) {
    const absl::Duration served = absl::Microseconds(MonotonicUs() - begin_us);
    if (served >= kLongestService || (!had_control && served >= awaits_)) return;
    std::vector<pollfd> waits = {{STDOUT_FILENO, 0, 0}};
    server_->AddWaits(&waits);
    for (const auto& control : controls) {
      control->channel.AddWaits(&waits);
      for (const Control::Ordered& ordered : control->trials) ordered.trial->AddWaits(&waits);
    }
    poll(waits.data(), waits.size(), 100);
    if ((waits.front().revents & (POLLERR | POLLHUP)) != 0) return;
    server_->Advance();
    while (const std::optional<int> socket = server_->TakeControl()) {
      controls.push_back(std::make_unique<Control>(*socket));
      had_control = true;
    }
    std::erase_if(controls, [](const std::unique_ptr<Control>& control) { return !control->Advance(); });
    if (controls.empty() && (had_control || server_->LostControls())) return;
  }
}

}  // namespace stagecoach
