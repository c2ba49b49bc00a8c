#include "coordinator/serve/http/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "coordinator/serve/http/boost.h"
#include "coordinator/serve/http/connection.h"

namespace stagecoach {
namespace {

using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kMostRefused = 64;  // connections beyond the limit that are told so; more are closed without a word
constexpr std::chrono::milliseconds kStopCheck(5);

std::chrono::microseconds Chrono(absl::Duration duration) {
  return std::chrono::microseconds(absl::ToInt64Microseconds(duration));
}

// As it stands in a URL: "127.0.0.1", "[::1]".
std::string UrlHost(const boost::asio::ip::address& address) {
  ErrorCode error;
  const std::string text = address.to_string(error);
  return address.is_v6() ? absl::StrCat("[", text, "]") : text;
}

absl::StatusOr<tcp::acceptor> ListenOnOne(boost::asio::io_context* io, const tcp::endpoint& endpoint, bool v6_only) {
  tcp::acceptor acceptor(*io);
  ErrorCode error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && v6_only && endpoint.address().is_v6()) acceptor.set_option(boost::asio::ip::v6_only(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (!error) return acceptor;
  const std::string where = absl::StrCat("cannot listen on ", UrlHost(endpoint.address()), ":", endpoint.port(), ": ");
  if (error == boost::asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(where, "the port is in use by another program; choose another port, or 0 for any that is free"));
  }
  if (error == boost::asio::error::access_denied) {
    return absl::PermissionDeniedError(absl::StrCat(where, "not permitted; choose a port of at least 1024"));
  }
  return absl::InvalidArgumentError(absl::StrCat(where, error.message(), "; choose an address of this machine"));
}

// All addresses of a name (localhost has two), or the one of an address, with or without brackets. kInvalidArgument.
absl::StatusOr<std::vector<tcp::endpoint>> ResolveHost(absl::string_view host, int port) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("the port has to be from 0 to 65535, found ", port));
  }
  absl::string_view name = host;
  if (absl::ConsumePrefix(&name, "[")) absl::ConsumeSuffix(&name, "]");
  boost::asio::io_context io;
  tcp::resolver resolver(io);
  ErrorCode error;
  std::vector<tcp::endpoint> endpoints;
  if (!name.empty()) {
    for (const auto& entry :
         resolver.resolve(std::string(name), absl::StrCat(port), tcp::resolver::numeric_service, error)) {
      if (std::find(endpoints.begin(), endpoints.end(), entry.endpoint()) == endpoints.end()) {
        endpoints.push_back(entry.endpoint());
      }
    }
  }
  if (endpoints.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on host '", host,
                                                   "': ", error ? error.message() : "it has no address",
                                                   "; expected an address or a name of this machine"));
  }
  return endpoints;
}

// Listens on each of them, with one port for all; those that this machine lacks are left out as long as one remains.
// kAlreadyExists, kPermissionDenied, kInvalidArgument: the address, and what next.
absl::StatusOr<std::vector<tcp::acceptor>> ListenOn(boost::asio::io_context* io, std::vector<tcp::endpoint> endpoints) {
  std::vector<tcp::acceptor> acceptors;
  absl::Status lacking;
  for (tcp::endpoint& endpoint : endpoints) {
    ErrorCode error;
    if (!acceptors.empty()) endpoint.port(acceptors.front().local_endpoint(error).port());
    auto acceptor = ListenOnOne(io, endpoint, endpoints.size() > 1);
    if (acceptor.ok()) {
      acceptors.push_back(*std::move(acceptor));
    } else if (absl::IsInvalidArgument(acceptor.status())) {
      lacking = acceptor.status();
    } else {
      return acceptor.status();
    }
  }
  if (acceptors.empty()) return lacking;
  return acceptors;
}

class AsioServer : public HttpServer {
 public:
  AsioServer(HttpServerOptions options, HttpHandler* handler, bool loopback)
      : loopback_(loopback),
        state_(std::move(options), handler, loopback),
        work_(boost::asio::make_work_guard(state_.io)),
        ticker_(state_.io),
        stop_timer_(state_.io) {}
  ~AsioServer() override { AsioServer::Stop(absl::ZeroDuration()); }

  absl::Status Open(std::vector<tcp::endpoint> endpoints);

  int port() const override { return port_; }
  std::string address() const override { return address_; }
  bool loopback() const override { return loopback_; }
  absl::Status Start() override;
  void Post(std::function<void()> work) override;
  void PostAfter(absl::Duration delay, std::function<void()> work) override;
  void ReadBodies(bool on) override;
  void Stop(absl::Duration flush) override;
  HttpCounters counters() const override;

 private:
  void Run();
  void RunPosted();
  void Tick();
  void Accept(tcp::acceptor* acceptor);
  void Take(tcp::socket socket);
  bool CloseLongestIdle();
  bool MakeRoom();
  std::vector<std::shared_ptr<Connection>> Connections() const {
    return {state_.connections.begin(), state_.connections.end()};
  }
  void CloseAcceptors();
  void BeginStop(absl::Duration flush);
  void FinishStop(int64_t deadline_us);
  void CloseAll();

  // Constant once it is open.
  const bool loopback_;
  int port_ = 0;
  std::string address_;

  // Of the I/O thread.
  ServerState state_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  std::vector<tcp::acceptor> acceptors_;
  std::vector<tcp::acceptor*> resting_acceptors_;  // could not accept; again at the next tick
  boost::asio::steady_timer ticker_, stop_timer_;
  std::list<boost::asio::steady_timer> timers_;  // of PostAfter, those to come

  std::thread thread_;
  std::mutex mu_;
  std::vector<std::function<void()>> posted_;  // guarded by mu_
  bool ended_ = false;                         // guarded by mu_: nothing is posted any more
};

absl::Status AsioServer::Open(std::vector<tcp::endpoint> endpoints) {
  ASSIGN_OR_RETURN(acceptors_, ListenOn(&state_.io, std::move(endpoints)));
  ErrorCode error;
  const tcp::endpoint first = acceptors_.front().local_endpoint(error);
  if (error) return absl::InternalError(absl::StrCat("cannot read the address that was bound: ", error.message()));
  port_ = first.port();
  address_ = absl::StrCat("http://", UrlHost(first.address()), ":", port_);
  return absl::OkStatus();
}

absl::Status AsioServer::Start() {
  try {
    for (tcp::acceptor& acceptor : acceptors_) Accept(&acceptor);
    boost::asio::post(state_.io, [this] { Tick(); });
    thread_ = std::thread([this] { Run(); });
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("the HTTP server cannot start: ", error.what()));
  }
  return absl::OkStatus();
}

// What is thrown here is memory that is not there, or a handler's own mistake: that event is lost, the server goes on.
void AsioServer::Run() {
  while (true) {
    try {
      state_.io.run();
      return;
    } catch (const std::exception& error) {
      LogError(absl::StrCat("http: an event was dropped: ", error.what()));
    } catch (...) {
      LogError("http: an event was dropped");
    }
  }
}

void AsioServer::Post(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (ended_) return;
  posted_.push_back(std::move(work));
  if (posted_.size() == 1) boost::asio::post(state_.io, [this] { RunPosted(); });
}

void AsioServer::RunPosted() {
  std::vector<std::function<void()>> batch;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    batch.swap(posted_);
  }
  for (const std::function<void()>& work : batch) {
    try {
      work();
    } catch (const std::exception& error) {
      LogError(absl::StrCat("http: an event was dropped: ", error.what()));
    }
  }
}

void AsioServer::PostAfter(absl::Duration delay, std::function<void()> work) {
  if (!work_) return;
  const auto timer = timers_.emplace(timers_.end(), state_.io, Chrono(delay));
  timer->async_wait([this, timer, work = std::move(work)](const ErrorCode& error) {
    timers_.erase(timer);
    if (!error && work_) Post(work);
  });
}

// What goes wrong with one event must not be the end of those after it: the next one is asked for first.
void AsioServer::Tick() {
  ticker_.expires_after(Chrono(state_.options.tick));
  ticker_.async_wait([this](const ErrorCode& error) {
    if (!error && work_) Tick();
  });
  const int64_t now_us = MonotonicUs();
  for (const auto& connection : Connections()) connection->Tick(now_us);
  for (tcp::acceptor* acceptor : std::exchange(resting_acceptors_, {})) Accept(acceptor);
  state_.handler->OnTick();
}

void AsioServer::Accept(tcp::acceptor* acceptor) {
  if (!acceptor->is_open()) return;
  acceptor->async_accept([this, acceptor](const ErrorCode& error, tcp::socket socket) {
    if (!acceptor->is_open()) return;
    // The system takes a descriptor before it looks whether somebody waits: one is kept free by this.
    const bool again =
        !error || error == boost::asio::error::connection_aborted || (error.value() == EMFILE && CloseLongestIdle());
    if (!again) {
      resting_acceptors_.push_back(acceptor);  // the next try would fail as well
      return;
    }
    Accept(acceptor);
    if (!error) Take(std::move(socket));
  });
}

void AsioServer::Take(tcp::socket socket) {
  ++state_.counters.accepted;
  const auto limit = static_cast<size_t>(state_.options.limits.connections);
  const bool room = state_.connections.size() < limit || MakeRoom();
  if (!room && state_.connections.size() >= limit + kMostRefused) {
    ++state_.counters.refused_connections;
    return;
  }
  auto connection = std::make_shared<Connection>(std::move(socket), &state_);
  state_.connections.insert(connection);
  if (room) {
    connection->Start();
  } else {
    connection->RefuseForRoom();
  }
}

// Whether there was one.
bool AsioServer::CloseLongestIdle() {
  std::shared_ptr<Connection> longest;
  for (const auto& connection : state_.connections) {
    const auto since = connection->idle_since_us();
    if (since && (longest == nullptr || *since < *longest->idle_since_us())) longest = connection;
  }
  if (longest == nullptr) return false;
  ++state_.counters.idle_closed;
  longest->Close();
  return true;
}

// Whether there is room now.
bool AsioServer::MakeRoom() {
  return CloseLongestIdle() && state_.connections.size() < static_cast<size_t>(state_.options.limits.connections);
}

void AsioServer::ReadBodies(bool on) {
  if (std::exchange(state_.bodies_on, on) == on || !on) return;
  // Not from within whoever calls this.
  boost::asio::post(state_.io, [this] {
    for (const auto& connection : Connections()) connection->Advance();
  });
}

void AsioServer::CloseAcceptors() {
  ErrorCode error;
  for (tcp::acceptor& acceptor : acceptors_) acceptor.close(error);
  state_.accepting = false;
  for (const auto& connection : Connections()) connection->Advance();
}

void AsioServer::BeginStop(absl::Duration flush) {
  state_.stopping = true;
  CloseAcceptors();
  for (const auto& connection : Connections()) {
    connection->Stop();
  }
  ticker_.cancel();
  for (boost::asio::steady_timer& timer : timers_) timer.cancel();
  work_.reset();  // the thread ends when there is nothing left to wait for
  FinishStop(MonotonicUs() + absl::ToInt64Microseconds(flush));
}

// Looks every few milliseconds whether everything has left.
void AsioServer::FinishStop(int64_t deadline_us) {
  if (state_.connections.empty() || MonotonicUs() >= deadline_us) return CloseAll();
  stop_timer_.expires_after(kStopCheck);
  stop_timer_.async_wait([this, deadline_us](const ErrorCode&) { FinishStop(deadline_us); });
}

void AsioServer::CloseAll() {
  for (const auto& connection : Connections()) connection->Close();
}

void AsioServer::Stop(absl::Duration flush) {
  if (!thread_.joinable()) {
    CloseAll();
    return;
  }
  Post([this, flush] { BeginStop(flush); });
  thread_.join();
  std::vector<std::function<void()>> dropped;
  const std::lock_guard<std::mutex> lock(mu_);
  ended_ = true;
  dropped.swap(posted_);
}

HttpCounters AsioServer::counters() const {
  HttpCounters counters = state_.counters;
  for (const auto& connection : state_.connections) connection->Count(&counters);
  counters.streams = state_.streams;
  counters.pending_bytes = state_.pending_bytes;
  counters.body_bytes = state_.bodies_bytes;
  return counters;
}

}  // namespace

int DescriptorRoom(int wanted) {
  const int64_t needed = int64_t{wanted} + kOtherDescriptors;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(needed)) return wanted;
  // No further than needed: launchers close every number up to the limit, one after the other.
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(static_cast<rlim_t>(needed), limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  const auto descriptors = static_cast<int64_t>(limit.rlim_cur);
  // Where there are few of them the others get half.
  const int64_t room = std::max(descriptors - kOtherDescriptors, descriptors / 2);
  return static_cast<int>(std::clamp<int64_t>(room, 1, wanted));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(HttpServerOptions options, HttpHandler* handler) {
  try {
    const int wanted = options.limits.connections;
    options.limits.connections = DescriptorRoom(wanted);
    if (options.limits.connections < wanted) {
      LogInfo(absl::StrCat("warning: the system lets this process open few files: at most ", options.limits.connections,
                           " connections are served at once instead of ", wanted, "; for all of them, `ulimit -n ",
                           wanted + kOtherDescriptors, "` before the start (systemd: LimitNOFILE=)"));
    }
    ASSIGN_OR_RETURN(std::vector<tcp::endpoint> endpoints, ResolveHost(options.host, options.port));
    const bool loopback = std::all_of(endpoints.begin(), endpoints.end(),
                                      [](const tcp::endpoint& endpoint) { return endpoint.address().is_loopback(); });
    auto server = std::make_unique<AsioServer>(std::move(options), handler, loopback);
    RETURN_IF_ERROR(server->Open(std::move(endpoints)));
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("the HTTP server cannot start: ", error.what()));
  }
}

}  // namespace stagecoach
