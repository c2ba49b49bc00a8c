#include "common/net/tcp_trial.h"

#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/net/addresses.h"

namespace stagecoach {
namespace {

constexpr char kMagic[] = "SCNT";
constexpr size_t kTokenBytes = 16;
constexpr size_t kGreetingBytes = 4 + 1 + kTokenBytes;
constexpr char kAllHasCome[] = "!";

std::string Inverted(std::string token) {
  for (char& c : token) c = static_cast<char>(~c);
  return token;
}

TrialTurn Sends(std::string bytes) { return {.sends = true, .size = bytes.size(), .bytes = std::move(bytes)}; }
TrialTurn Receives(size_t size) { return {.sends = false, .size = size}; }

// Small messages leave at once, alone: what is lost is the large ones' fault.
void SendAtOnce(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

enum class Moved { kSome, kNone, kLost };

// As much of a turn as goes at once.
Moved MoveBytes(int socket, TrialTurn* turn) {
  char buffer[16 << 10];
  const ssize_t n =
      turn->sends ? send(socket, turn->bytes.data() + turn->sent, turn->size - turn->sent, MSG_NOSIGNAL | MSG_DONTWAIT)
                  : recv(socket, buffer, std::min(sizeof(buffer), turn->size - turn->bytes.size()), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Moved::kNone;
  if (n == 0) errno = ECONNRESET;
  if (n <= 0) return Moved::kLost;
  if (turn->sends) {
    turn->sent += static_cast<size_t>(n);
  } else {
    turn->bytes.append(buffer, static_cast<size_t>(n));
  }
  return Moved::kSome;
}

bool IsDone(const TrialTurn& turn) { return turn.sends ? turn.sent == turn.size : turn.bytes.size() == turn.size; }

short EventsOf(const std::vector<TrialTurn>& turns) { return turns.empty() || !turns.front().sends ? POLLIN : POLLOUT; }

constexpr size_t kLengthBytes = 4;

// Of the message that the bytes begin with; absent while they are too few.
std::optional<size_t> LengthOf(const std::string& bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<size_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return length;
}

}  // namespace

TcpTrial::TcpTrial(const std::string& address, int port, const std::string& token, TrialKind kind,
                   absl::Duration patience)
    : token_(token), kind_(kind), patience_(patience), progress_us_(MonotonicUs()) {
  const std::optional<SocketAddress> target = ParseAddress(address, port);
  if (!target.has_value() || token.size() != kTokenBytes) {
    Fail("no address of a trial");
    return;
  }
  socket_ = socket(target->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) {
    Fail(std::strerror(errno));
    return;
  }
  SendAtOnce(socket_);
  if (connect(socket_, target->get(), target->size) != 0 && errno != EINPROGRESS) Fail(std::strerror(errno));
}

TcpTrial::~TcpTrial() {
  if (socket_ >= 0) close(socket_);
}

void TcpTrial::AddWaits(std::vector<pollfd>* waits) const {
  if (ended()) return;
  waits->push_back({socket_, step_ == TrialStep::kConnecting ? short{POLLOUT} : EventsOf(turns_), 0});
}

void TcpTrial::Advance() {
  while (!ended() && AdvanceStep()) progress_us_ = MonotonicUs();
  if (!ended() && MonotonicUs() - progress_us_ >= absl::ToInt64Microseconds(patience_)) {
    Fail(absl::StrCat("no answer in ", absl::FormatDuration(patience_)));
  }
}

// Whether anything has moved.
bool TcpTrial::AdvanceStep() {
  if (step_ == TrialStep::kConnecting) {
    pollfd wait = {socket_, POLLOUT, 0};
    if (poll(&wait, 1, 0) <= 0) return false;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      Fail(std::strerror(error));
      return false;
    }
    step_ = TrialStep::kGreeting;
    BeginTurns();
    return true;
  }
  const Moved moved = MoveBytes(socket_, &turns_.front());
  if (moved == Moved::kLost) Fail(std::strerror(errno));
  if (moved != Moved::kSome) return false;
  if (!IsDone(turns_.front())) return true;
  if (step_ == TrialStep::kGreeting && !turns_.front().sends && turns_.front().bytes != Inverted(token_)) {
    Fail("another program answers");
    return false;
  }
  turns_.erase(turns_.begin());
  if (turns_.empty()) {
    step_ = static_cast<TrialStep>(static_cast<int>(step_) + 1);
    BeginTurns();
  }
  return true;
}

void TcpTrial::BeginTurns() {
  switch (step_) {
    case TrialStep::kGreeting:
      turns_ = {Sends(absl::StrCat(kMagic, std::string(1, static_cast<char>(kind_)), token_)), Receives(kTokenBytes)};
      return;
    case TrialStep::kSending: turns_ = {Sends(std::string(kTrialBytes, '\0')), Receives(1)}; return;
    case TrialStep::kReceiving: turns_ = {Receives(kTrialBytes)}; return;
    case TrialStep::kConnecting:
    case TrialStep::kPassed: return;
  }
}

void TcpTrial::Fail(const std::string& error) {
  error_ = error;
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

std::string TcpTrial::own_address() const {
  SocketAddress own;
  own.size = sizeof(own.storage);
  if (socket_ < 0 || getsockname(socket_, own.get(), &own.size) != 0) return "";
  return AddressText(own.get());
}

int TcpTrial::Release() { return std::exchange(socket_, -1); }

absl::StatusOr<std::unique_ptr<TrialServer>> TrialServer::Listen() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return absl::UnavailableError(absl::StrCat("no random bytes: ", std::strerror(errno)));
  }
  // Both families where there are both.
  for (const char* any : {"::", "0.0.0.0"}) {
    SocketAddress own = *ParseAddress(any, 0);
    const int listener = socket(own.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) continue;
    const int no = 0;
    if (own.get()->sa_family == AF_INET6) setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (bind(listener, own.get(), own.size) == 0 && listen(listener, SOMAXCONN) == 0 &&
        getsockname(listener, own.get(), &own.size) == 0) {
      const uint16_t port = own.get()->sa_family == AF_INET6
                                ? reinterpret_cast<const sockaddr_in6*>(own.get())->sin6_port
                                : reinterpret_cast<const sockaddr_in*>(own.get())->sin_port;
      return std::unique_ptr<TrialServer>(new TrialServer(listener, ntohs(port), std::move(token)));
    }
    close(listener);
  }
  return absl::UnavailableError(absl::StrCat("cannot listen: ", std::strerror(errno)));
}

TrialServer::~TrialServer() {
  close(listener_);
  for (const Connection& connection : connections_) close(connection.socket);
  for (const int control : controls_) close(control);
}

void TrialServer::AddWaits(std::vector<pollfd>* waits) const {
  waits->push_back({connections_.size() < kMostConnections ? listener_ : -1, POLLIN, 0});
  for (const Connection& connection : connections_)
    waits->push_back({connection.socket, EventsOf(connection.turns), 0});
}

void TrialServer::Accept() {
  while (connections_.size() < kMostConnections) {
    const int accepted = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) return;
    SendAtOnce(accepted);
    connections_.push_back({.socket = accepted, .turns = {Receives(kGreetingBytes)}, .progress_us = MonotonicUs()});
  }
}

void TrialServer::Advance() {
  Accept();
  for (size_t i = 0; i < connections_.size();) {
    Connection& connection = connections_[i];
    const bool goes_on = AdvanceConnection(&connection);
    if (goes_on && !connection.turns.empty()) {
      ++i;
      continue;
    }
    if (goes_on && connection.control) {
      controls_.push_back(connection.socket);
    } else {
      lost_controls_ += connection.control ? 1 : 0;
      close(connection.socket);
    }
    connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
  }
}

// Ends with no turns left when its trial has passed.
bool TrialServer::AdvanceConnection(Connection* connection) {
  std::vector<TrialTurn>& turns = connection->turns;
  while (!turns.empty()) {
    const Moved moved = MoveBytes(connection->socket, &turns.front());
    if (moved == Moved::kNone) {
      return MonotonicUs() - connection->progress_us < absl::ToInt64Microseconds(kTrialPatience);
    }
    if (moved == Moved::kLost) return false;
    connection->progress_us = MonotonicUs();
    if (!IsDone(turns.front())) continue;
    if (!std::exchange(connection->known, true)) {
      const std::string greeting = turns.front().bytes;
      const bool control = greeting[4] == static_cast<char>(TrialKind::kControl);
      const bool trial = greeting[4] == static_cast<char>(TrialKind::kTrial);
      if (!absl::StartsWith(greeting, kMagic) || greeting.substr(5) != token_ || (!control && !trial)) return false;
      connection->control = control;
      turns.push_back(Sends(Inverted(token_)));
      turns.push_back(Receives(kTrialBytes));
      turns.push_back(Sends(kAllHasCome));
      turns.push_back(Sends(std::string(kTrialBytes, '\0')));
    }
    turns.erase(turns.begin());
  }
  return true;
}

bool TrialServer::LostControls() const {
  return lost_controls_ > 0 && controls_.empty() &&
         std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.control; });
}

std::optional<int> TrialServer::TakeControl() {
  if (controls_.empty()) return std::nullopt;
  const int control = controls_.front();
  controls_.erase(controls_.begin());
  return control;
}

MessageChannel::~MessageChannel() { close(socket_); }

bool MessageChannel::Receive() {
  char buffer[4096];
  // What was read is taken before more is: a peer can make us hold two messages at most.
  while (received_.size() < kLengthBytes + kMostMessageBytes) {
    if (LengthOf(received_).value_or(0) > kMostMessageBytes) return false;
    const ssize_t n = recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    received_.append(buffer, static_cast<size_t>(n));
  }
  return LengthOf(received_).value_or(0) <= kMostMessageBytes;
}

std::optional<std::string> MessageChannel::Next() {
  const std::optional<size_t> length = LengthOf(received_);
  if (!length.has_value() || received_.size() - kLengthBytes < *length) return std::nullopt;
  std::string message = received_.substr(kLengthBytes, *length);
  received_.erase(0, kLengthBytes + *length);
  return message;
}

bool MessageChannel::Send(const std::string& message) {
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>((message.size() >> (8 * i)) & 0xff));
  bytes += message;
  return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace stagecoach
