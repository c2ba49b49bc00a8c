#include "coordinator/launch/hosts/network_trial.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/host/host_info.h"
#include "common/net/addresses.h"

namespace stagecoach {
namespace {

// How long an address that would rather be taken is waited for once another one has answered.
constexpr int64_t kBetterAddressUs = 2'000'000;
// A host says itself when a trial has failed, after kTrialPatience; longer, and it is not there any more.
constexpr absl::Duration kOutcomePatience = absl::Seconds(10);
constexpr int kIpv4HeaderBytes = 28;  // of a ping, with ICMP's
constexpr int kIpv6HeaderBytes = 48;

const pb::HostAddress* EntryOf(const std::vector<pb::HostAddress>& addresses, const std::string& address) {
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const pb::HostAddress& entry) { return entry.address() == address; });
  return found == addresses.end() ? nullptr : &*found;
}

std::vector<pb::HostAddress> AddressesOf(const pb::HostReport& report) {
  return {report.addresses().begin(), report.addresses().end()};
}

std::string InterfaceText(const pb::HostAddress* entry, const std::string& address) {
  if (entry == nullptr) return address;
  return absl::StrCat(entry->interface(), " (", address, ", MTU ", entry->mtu(), ")");
}

}  // namespace

NetworkTrial::NetworkTrial(std::vector<LaunchHost> hosts, int stages, std::set<std::string> left_out,
                           const std::vector<HostAnswer>& answers)
    : hosts_(std::move(hosts)),
      stages_(stages),
      left_out_(std::move(left_out)),
      own_(OwnAddresses()),
      begin_us_(MonotonicUs()) {
  absl::StatusOr<std::unique_ptr<TrialServer>> server = TrialServer::Listen();
  if (server.ok()) server_ = *std::move(server);
  std::vector<HostInterfaces> interfaces = {{.addresses = own_, .used = {}}};
  for (const HostAnswer& answer : answers) {
    if (answer.report.has_value()) interfaces.push_back({.addresses = AddressesOf(*answer.report), .used = {}});
  }
  const std::set<std::string> shared = SharedAddresses(interfaces);
  for (const HostAnswer& answer : answers) {
    const bool listens = answer.report.has_value() && answer.report->trial_port() > 0 && !answer.ended;
    if (!listens || left_out_.contains(answer.host)) continue;
    Host host = {.name = answer.host, .report = *answer.report};
    host.candidates = AddressesToTry(AddressesOf(host.report), AddressesOfName(host.name), own_, shared);
    for (const std::string& address : host.candidates) {
      host.trials.push_back(std::make_unique<TcpTrial>(address, host.report.trial_port(), host.report.trial_token(),
                                                       TrialKind::kControl));
    }
    if (!host.candidates.empty()) tried_.push_back(std::move(host));
  }
  Advance();
}

void NetworkTrial::AddWaits(std::vector<pollfd>* waits) const {
  if (server_ != nullptr) server_->AddWaits(waits);
  for (const Host& host : tried_) {
    for (const auto& trial : host.trials) trial->AddWaits(waits);
    if (host.channel != nullptr) host.channel->AddWaits(waits);
  }
}

void NetworkTrial::Advance() {
  if (ended_) return;
  if (server_ != nullptr) {
    server_->Advance();
    while (const std::optional<int> stranger = server_->TakeControl()) MessageChannel closed(*stranger);
  }
  for (Host& host : tried_) {
    if (!host.trials.empty()) AdvanceConnecting(&host);
    if (host.channel != nullptr) ReadOutcomes(&host);
  }
  GiveUpOrders();
  if (Settled()) NextRound();
}

// Takes the best address that passes.
void NetworkTrial::AdvanceConnecting(Host* host) {
  for (const auto& trial : host->trials) trial->Advance();
  std::optional<size_t> passed;
  for (size_t i = 0; i < host->trials.size() && !passed.has_value(); ++i) {
    if (host->trials[i]->passed()) passed = i;
    if (!host->trials[i]->ended() && MonotonicUs() - begin_us_ < kBetterAddressUs) return;
  }
  if (passed.has_value()) return Choose(host, *passed);
  const bool all_ended =
      std::all_of(host->trials.begin(), host->trials.end(), [](const auto& t) { return t->ended(); });
  if (!all_ended) return;
  // The one that came furthest says most.
  size_t best = 0;
  for (size_t i = 1; i < host->trials.size(); ++i) {
    if (host->trials[i]->step() > host->trials[best]->step()) best = i;
  }
  host->address = host->candidates[best];
  host->own_address = AddressTowards(host->address);
  unreachable_[host->name] = Describe("", host->name, host->trials[best]->step(), host->trials[best]->error());
  host->trials.clear();
  host->settled = true;
}

void NetworkTrial::Choose(Host* host, size_t candidate) {
  host->address = host->candidates[candidate];
  host->own_address = host->trials[candidate]->own_address();
  host->channel = std::make_unique<MessageChannel>(host->trials[candidate]->Release());
  host->trials.clear();
  host->settled = true;
  if (server_ != nullptr) Send(host, "", host->own_address, server_->port(), server_->token());
}

void NetworkTrial::Send(const Host* from, const std::string& to, const std::string& address, int port,
                        const std::string& token) {
  pb::TrialOrder order;
  order.set_id(next_order_);
  order.set_address(address);
  order.set_port(port);
  order.set_token(token);
  orders_[next_order_++] = {from->name, to, MonotonicUs()};
  from->channel->Send(order.SerializeAsString());  // where that fails, so does reading
}

void NetworkTrial::ReadOutcomes(Host* host) {
  const bool is_there = host->channel->Receive();
  while (const std::optional<std::string> message = host->channel->Next()) {
    pb::TrialOutcome outcome;
    if (!outcome.ParseFromString(*message)) continue;
    const auto order = orders_.find(outcome.id());
    if (order == orders_.end() || order->second.from != host->name) continue;
    const Order ordered = order->second;
    orders_.erase(order);
    const int step = std::clamp(outcome.step(), 0, static_cast<int>(TrialStep::kPassed));
    TakeOutcome(ordered, static_cast<TrialStep>(step), outcome.error());
  }
  if (is_there) return;
  host->channel.reset();
  std::erase_if(orders_, [&](const auto& order) { return order.second.from == host->name; });
  unreachable_.emplace(host->name, "it went away while TCP was tried between the hosts; try again");
}

void NetworkTrial::GiveUpOrders() {
  const int64_t oldest_us = MonotonicUs() - absl::ToInt64Microseconds(kOutcomePatience);
  std::erase_if(orders_, [&](const auto& order) {
    const bool late = order.second.since_us <= oldest_us;
    if (late) {
      unreachable_.emplace(order.second.from,
                           absl::StrCat("it did not say for ", absl::FormatDuration(kOutcomePatience),
                                        " whether it reaches other hosts by TCP; try again"));
    }
    return late;
  });
}

void NetworkTrial::TakeOutcome(const Order& order, TrialStep step, const std::string& error) {
  if (step == TrialStep::kPassed) return;
  const std::string found = Describe(order.from, order.to, step, error);
  if (order.to.empty()) {
    unreachable_.emplace(order.from, found);
  } else {
    failures_[{order.from, order.to}] = found;
  }
}

bool NetworkTrial::Settled() const {
  return orders_.empty() && std::all_of(tried_.begin(), tried_.end(), [](const Host& host) { return host.settled; });
}

Placement NetworkTrial::Place() const {
  std::set<std::string> left_out = left_out_;
  for (const auto& [host, why] : unreachable_) left_out.insert(host);
  return PlaceStages(hosts_, stages_, left_out);
}

const NetworkTrial::Host* NetworkTrial::Find(const std::string& name) const {
  const auto found = std::find_if(tried_.begin(), tried_.end(), [&](const Host& host) { return host.name == name; });
  return found == tried_.end() ? nullptr : &*found;
}

// Orders the trials between those that would now be neighbours. Where all have been, the host with the most failures is
// left out, of two such the later one; without a failure, this was the last round.
void NetworkTrial::NextRound() {
  while (true) {
    const Placement placement = Place();
    std::map<std::string, int> failed;  // in how many trials
    std::vector<std::string> order;
    for (size_t i = 0; i < placement.hosts.size(); ++i) {
      order.push_back(placement.hosts[i].host);
      const Host* host = Find(order.back());
      const Host* next = i + 1 < placement.hosts.size() ? Find(placement.hosts[i + 1].host) : nullptr;
      const bool both = host != nullptr && next != nullptr && host->channel != nullptr && next->channel != nullptr;
      if (!both || host == next) continue;
      for (const auto& [from, to] : {std::pair(host, next), std::pair(next, host)}) {
        const Pair pair = {from->name, to->name};
        if (pairs_.insert(pair).second) {
          Send(from, to->name, to->address, to->report.trial_port(), to->report.trial_token());
        }
        if (!failures_.contains(pair)) continue;
        ++failed[from->name];
        ++failed[to->name];
      }
    }
    if (!orders_.empty()) return;
    if (failed.empty()) {
      ended_ = true;
      LogVerbose(absl::StrCat("TCP between this host and ", tried_.size(), " others was tried in ",
                              (MonotonicUs() - begin_us_) / 1000, " ms"));
      return;
    }
    std::string worst;
    for (const std::string& name : order) {
      if (failed.contains(name) && (worst.empty() || failed[name] >= failed[worst])) worst = name;
    }
    const auto failure = std::find_if(failures_.begin(), failures_.end(),
                                      [&](const auto& f) { return f.first.first == worst || f.first.second == worst; });
    unreachable_.emplace(worst, failure->second);
  }
}

// `from`, `to`: names; empty: this host.
std::string NetworkTrial::Describe(const std::string& from, const std::string& to, TrialStep step,
                                   const std::string& error) const {
  const auto shown = [](const std::string& name) { return name.empty() ? HostName() : name; };
  // What `name` has its connection to `peer` by.
  const auto address_of = [&](const std::string& name, const std::string& peer) {
    return name.empty() ? Find(peer)->own_address : Find(name)->address;
  };
  const auto mtu_of = [&](const std::string& name, const std::string& peer) {
    const std::vector<pb::HostAddress> addresses = name.empty() ? own_ : AddressesOf(Find(name)->report);
    const pb::HostAddress* entry = EntryOf(addresses, address_of(name, peer));
    return entry != nullptr ? entry->mtu() : 0;
  };
  const std::string answered = "its login answered, TCP did not: ";
  if (step == TrialStep::kConnecting || step == TrialStep::kGreeting) {
    return absl::StrCat(answered, shown(from), step == TrialStep::kConnecting ? " cannot connect to " : " connects to ",
                        shown(to), " (", address_of(to, from), "), ",
                        step == TrialStep::kConnecting ? "" : "but: ", error,
                        "; is it a firewall? hosts must let each other's TCP connections in, on all ports");
  }
  const std::string& sender = step == TrialStep::kSending ? from : to;
  const std::string& receiver = step == TrialStep::kSending ? to : from;
  const std::string address = address_of(receiver, sender);
  const int mtu = mtu_of(sender, receiver);
  const int ping = mtu - (IsIpv6(address) ? kIpv6HeaderBytes : kIpv4HeaderBytes);
  return absl::StrCat(answered, "small messages from ", shown(sender), " to ", shown(receiver), " (", address,
                      ") arrive, large ones do not: ", error, "; does the network on the way carry the ", mtu,
                      " bytes a packet (MTU) that ", shown(sender), " sends? try `ping -M do -s ", ping, " ", address,
                      "` there, and lower its MTU or raise the network's");
}

Networks NetworkTrial::networks() const {
  std::vector<HostInterfaces> hosts = {{.addresses = own_, .used = {}}};
  for (const PlacedStages& placed : Place().hosts) {
    if (placed.here) continue;
    const Host* host = Find(placed.host);
    if (host == nullptr) return {};
    hosts.front().used.insert(host->own_address);
    hosts.push_back({.addresses = AddressesOf(host->report), .used = {host->address}});
  }
  return hosts.size() > 1 ? ChooseNetworks(hosts) : Networks{};
}

std::map<std::string, std::string> NetworkTrial::Paths() const {
  std::map<std::string, std::string> paths;
  for (const Host& host : tried_) {
    if (unreachable_.contains(host.name)) continue;
    const std::vector<pb::HostAddress> addresses = AddressesOf(host.report);
    paths[host.name] = absl::StrCat("by ", InterfaceText(EntryOf(addresses, host.address), host.address), ", from ",
                                    InterfaceText(EntryOf(own_, host.own_address), host.own_address));
  }
  return paths;
}

TriedHosts AskAndTry(std::vector<HostQuestion> questions, const std::vector<LaunchHost>& hosts, int stages,
                     absl::Duration most) {
  HostSurvey survey(std::move(questions), /*again=*/absl::ZeroDuration());
  AwaitAnswers(&survey, most, /*tells=*/true);
  std::set<std::string> left_out;
  for (const HostAnswer& answer : survey.answers()) {
    if (!answer.report.has_value()) left_out.insert(answer.host);
  }
  NetworkTrial trial(hosts, stages, std::move(left_out), survey.answers());
  while (!trial.ended()) {
    std::vector<pollfd> waits;
    trial.AddWaits(&waits);
    poll(waits.data(), waits.size(), 50);
    trial.Advance();
  }
  return {survey.answers(), trial.unreachable(), trial.Paths(), trial.networks()};
}

}  // namespace stagecoach
