#ifndef STAGECOACH_COMMON_NET_MESSAGE_CHANNEL_H_
#define STAGECOACH_COMMON_NET_MESSAGE_CHANNEL_H_

// Small messages over a connection whose trial has passed: each a u32 of its length (little-endian), then its bytes.
// Not thread-safe.

#include <poll.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

class MessageChannel {
 public:
  static constexpr size_t kMostMessageBytes = 4096;

  // Owns the socket, which does not block.
  explicit MessageChannel(int socket) : socket_(socket) {}
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;

  void AddWaits(std::vector<pollfd>* waits) const { waits->push_back({socket_, POLLIN, 0}); }

  // Reads what has come. False once the other end has closed, or sent what is no message.
  bool Receive();
  std::optional<std::string> Next();

  // False when it does not go at once: the other end does not read.
  bool Send(const std::string& message);

 private:
  const int socket_;
  std::string received_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_NET_MESSAGE_CHANNEL_H_
