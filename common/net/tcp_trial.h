#ifndef STAGECOACH_COMMON_NET_TCP_TRIAL_H_
#define STAGECOACH_COMMON_NET_TCP_TRIAL_H_

// Whether one host reaches another by TCP as a job needs it: on any port, with messages larger than a packet, both
// ways.
//
//   client ── magic, kind, token of the server ──> server      kConnecting, then kGreeting
//   client <────────────── the token, inverted ─── server
//   client ── kTrialBytes ───────────────────────> server      kSending: one byte acknowledges all of them
//   client <─────────────────────── kTrialBytes ── server      kReceiving
//
// A trial then ends; a control connection stays open for messages (MessageChannel). The server's token travels another
// way: it keeps strangers out, and tells hosts with one address apart. Nothing here waits: the owner polls. Not
// thread-safe.

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace stagecoach {

inline constexpr size_t kTrialBytes = 64 << 10;
// A trial fails after this time without progress. A lost packet is resent after 1 s, then after 2 s more.
inline constexpr absl::Duration kTrialPatience = absl::Seconds(6);

// How far a trial has come; the values travel (TrialOutcome.step).
enum class TrialStep { kConnecting = 0, kGreeting = 1, kSending = 2, kReceiving = 3, kPassed = 4 };
enum class TrialKind : uint8_t { kTrial = 't', kControl = 'c' };

// One direction's bytes.
struct TrialTurn {
  bool sends = false;
  size_t size = 0;
  std::string bytes;  // to be sent, or those that have come
  size_t sent = 0;
};

class TcpTrial {
 public:
  // Starts to connect. What cannot even be begun is a failure of the trial, too.
  TcpTrial(const std::string& address, int port, const std::string& token, TrialKind kind,
           absl::Duration patience = kTrialPatience);
  ~TcpTrial();
  TcpTrial(const TcpTrial&) = delete;

  void AddWaits(std::vector<pollfd>* waits) const;
  void Advance();

  bool ended() const { return step_ == TrialStep::kPassed || !error_.empty(); }
  bool passed() const { return step_ == TrialStep::kPassed; }
  TrialStep step() const { return step_; }  // that it has come to
  const std::string& error() const { return error_; }
  std::string own_address() const;  // of this end, once connected

  // The connection of a passed one, which the caller then owns.
  int Release();

 private:
  bool AdvanceStep();
  void BeginTurns();
  void Fail(const std::string& error);

  const std::string token_;
  const TrialKind kind_;
  const absl::Duration patience_;
  int socket_ = -1;
  TrialStep step_ = TrialStep::kConnecting;
  std::vector<TrialTurn> turns_;  // of this step, those left
  std::string error_;
  int64_t progress_us_;
};

// Answers trials of clients that know its token, on a port of all addresses. Closes connections of strangers, and those
// without progress for kTrialPatience. At most kMostConnections at a time.
class TrialServer {
 public:
  static constexpr size_t kMostConnections = 256;

  // kUnavailable: what the system says.
  static absl::StatusOr<std::unique_ptr<TrialServer>> Listen();
  ~TrialServer();
  TrialServer(const TrialServer&) = delete;

  int port() const { return port_; }
  const std::string& token() const { return token_; }

  void AddWaits(std::vector<pollfd>* waits) const;
  void Advance();

  // A control connection whose trial has passed; the caller then owns it.
  std::optional<int> TakeControl();
  // Whether there were control connections, and all of them ended before they passed.
  bool LostControls() const;

 private:
  struct Connection {
    int socket = -1;
    bool control = false;
    bool known = false;            // it has shown the token
    std::vector<TrialTurn> turns;  // those left
    int64_t progress_us = 0;       // when something moved
  };
  TrialServer(int listener, int port, std::string token) : listener_(listener), port_(port), token_(std::move(token)) {}
  void Accept();
  bool AdvanceConnection(Connection* connection);  // false: it is to be closed

  const int listener_;
  const int port_;
  const std::string token_;
  std::vector<Connection> connections_;
  std::vector<int> controls_;
  int lost_controls_ = 0;
};

// Small messages over a connection whose trial has passed: a u32 length (little-endian), then the bytes.
class MessageChannel {
 public:
  static constexpr size_t kMostMessageBytes = 4096;

  // Owns the socket, which does not block.
  explicit MessageChannel(int socket) : socket_(socket) {}
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;

  void AddWaits(std::vector<pollfd>* waits) const { waits->push_back({socket_, POLLIN, 0}); }

  // Reads what has arrived. False: the peer has closed, or sent no message.
  bool Receive();
  std::optional<std::string> Next();

  // False if it cannot be sent at once: the peer does not read.
  bool Send(const std::string& message);

 private:
  const int socket_;
  std::string received_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_NET_TCP_TRIAL_H_
