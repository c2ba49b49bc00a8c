#include "coordinator/channel/engine_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr uint32_t kMaxMessageBytes = 64 << 20;
constexpr size_t kReadBytes = 64 << 10;

std::string ErrnoText() { return std::strerror(errno); }

uint32_t LoadLength(const char* bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return length;
}

void StoreLength(uint32_t length, char* out) {
  for (size_t i = 0; i < kLengthBytes; ++i) out[i] = static_cast<char>((length >> (8 * i)) & 0xff);
}

absl::StatusOr<sockaddr_un> LocalAddress(const std::string& path) {
  sockaddr_un address;
  std::memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' has ", path.size(),
                                                   " bytes, expected 1 to ", sizeof(address.sun_path) - 1,
                                                   "; set TMPDIR to a shorter directory"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

char* ByteQueue::Reserve(size_t bytes) {
  const size_t needed = size() + bytes;
  if (capacity_ - end_ < bytes) {
    // Moving what waits to the front is paid for by at least as many bytes taken since the last move.
    if (needed <= capacity_ && size() <= begin_) {
      if (!empty()) std::memmove(memory_.get(), data(), size());
      end_ = size();
      begin_ = 0;
    } else {
      MoveTo(std::max(kMinCapacity, 2 * needed));
    }
  }
  return memory_.get() + end_;
}

void ByteQueue::Take(size_t bytes) {
  CHECK_LE(bytes, size());
  begin_ += bytes;
  if (empty()) begin_ = end_ = 0;
  if (capacity_ > kMinCapacity && capacity_ > 4 * size()) MoveTo(std::max(kMinCapacity, 2 * size()));
}

void ByteQueue::MoveTo(size_t capacity) {
  std::unique_ptr<char[]> memory(new char[capacity]);
  const size_t rest = size();
  if (rest > 0) std::memcpy(memory.get(), data(), rest);
  memory_ = std::move(memory);
  capacity_ = capacity;
  begin_ = 0;
  end_ = rest;
}

EngineChannel::EngineChannel(int descriptor) : descriptor_(descriptor) {
  CHECK_GE(descriptor, 0);
  const int flags = fcntl(descriptor_, F_GETFL);
  CHECK(flags >= 0 && fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK) == 0);
}

EngineChannel::~EngineChannel() { close(descriptor_); }

absl::Status EngineChannel::Send(const pb::EngineMessage& message) {
  RETURN_IF_ERROR(Queue(message));
  return Flush();
}

absl::Status EngineChannel::Queue(const pb::EngineMessage& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message between front and engine has ", size, " bytes, expected at most ", kMaxMessageBytes));
  }
  char* out = outgoing_.Reserve(kLengthBytes + size);
  StoreLength(static_cast<uint32_t>(size), out);
  CHECK(message.SerializeToArray(out + kLengthBytes, static_cast<int>(size)));
  outgoing_.Append(kLengthBytes + size);
  return absl::OkStatus();
}

absl::Status EngineChannel::Flush() {
  while (!outgoing_.empty()) {
    const ssize_t n = send(descriptor_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      const std::string reason = ErrnoText();
      outgoing_.Take(outgoing_.size());  // nobody will
      return absl::UnavailableError(absl::StrCat("the other end of the engine's socket is gone: ", reason));
    }
    outgoing_.Take(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status EngineChannel::FlushWithin(absl::Duration most) {
  const int64_t deadline_us =
      most == absl::InfiniteDuration() ? INT64_MAX : MonotonicUs() + absl::ToInt64Microseconds(most);
  while (WritePending() && MonotonicUs() < deadline_us) {
    RETURN_IF_ERROR(Flush());
    pollfd descriptor{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    if (WritePending()) poll(&descriptor, 1, 100);
  }
  return absl::OkStatus();
}

bool EngineChannel::Wait(absl::Duration most) const {
  pollfd descriptor{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (WritePending()) descriptor.events |= POLLOUT;
  return poll(&descriptor, 1, static_cast<int>(absl::ToInt64Milliseconds(most))) > 0;
}

absl::Status EngineChannel::CheckPeer() const {
  pollfd descriptor{.fd = descriptor_, .events = POLLRDHUP, .revents = 0};
  const bool gone = poll(&descriptor, 1, 0) > 0 && (descriptor.revents & (POLLRDHUP | POLLHUP)) != 0;
  return gone ? absl::UnavailableError("the front is gone") : absl::OkStatus();
}

bool EngineChannel::Buffered() const {
  if (incoming_.size() < kLengthBytes) return false;
  const uint32_t length = LoadLength(incoming_.data());
  return length > kMaxMessageBytes || incoming_.size() - kLengthBytes >= length;  // the former is an error at once
}

absl::StatusOr<std::optional<pb::EngineMessage>> EngineChannel::TakeBuffered() {
  if (!Buffered()) return std::nullopt;
  const uint32_t length = LoadLength(incoming_.data());
  if (length > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the engine's socket announces a message of ", length,
                                                   " bytes, expected at most ", kMaxMessageBytes));
  }
  pb::EngineMessage message;
  if (!message.ParseFromArray(incoming_.data() + kLengthBytes, static_cast<int>(length))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the engine's socket gave ", length, " bytes that are no message; do front and engine have one version?"));
  }
  incoming_.Take(kLengthBytes + length);
  return message;
}

absl::StatusOr<std::optional<pb::EngineMessage>> EngineChannel::Receive() {
  // A peer that is gone shows below, after everything it sent.
  Flush().IgnoreError();
  while (true) {
    ASSIGN_OR_RETURN(std::optional<pb::EngineMessage> message, TakeBuffered());
    if (message.has_value()) return message;
    if (closed_) return absl::UnavailableError("the other end closed the engine's socket");
    const ssize_t n = recv(descriptor_, incoming_.Reserve(kReadBytes), kReadBytes, 0);
    if (n > 0) {
      incoming_.Append(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    closed_ = true;  // end of stream, or a reset: the peer died with our messages unread
  }
}

absl::StatusOr<int> ListenLocal(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, LocalAddress(path));
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return absl::InternalError(absl::StrCat("cannot make a local socket: ", ErrnoText()));
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(descriptor, 1) != 0) {
    const std::string reason = ErrnoText();
    close(descriptor);
    return absl::InternalError(absl::StrCat("cannot listen at '", path, "': ", reason));
  }
  return descriptor;
}

absl::StatusOr<int> ConnectLocal(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, LocalAddress(path));
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return absl::InternalError(absl::StrCat("cannot make a local socket: ", ErrnoText()));
  int result = 0;
  do {
    result = connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const std::string reason = ErrnoText();
    close(descriptor);
    return absl::UnavailableError(absl::StrCat("cannot connect to the front at '", path, "': ", reason));
  }
  return descriptor;
}

}  // namespace stagecoach
