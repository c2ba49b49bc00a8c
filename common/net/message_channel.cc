#include "common/net/message_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace stagecoach {
namespace {

constexpr size_t kLengthBytes = 4;

// Of the message that the bytes begin with; absent while they are too few.
std::optional<size_t> LengthOf(const std::string& bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<size_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return length;
}

}  // namespace

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
