#include "coordinator/channel/engine_channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
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

void AppendLength(uint32_t length, std::string* out) {
  for (size_t i = 0; i < kLengthBytes; ++i) out->push_back(static_cast<char>((length >> (8 * i)) & 0xff));
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

EngineChannel::EngineChannel(int descriptor) : descriptor_(descriptor) {
  CHECK_GE(descriptor, 0);
  const int flags = fcntl(descriptor_, F_GETFL);
  CHECK(flags >= 0 && fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK) == 0);
}

EngineChannel::~EngineChannel() { close(descriptor_); }

absl::Status EngineChannel::Send(const pb::EngineMessage& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message between front and engine has ", size, " bytes, expected at most ", kMaxMessageBytes));
  }
  AppendLength(static_cast<uint32_t>(size), &outgoing_);
  CHECK(message.AppendToString(&outgoing_));
  return Flush();
}

absl::Status EngineChannel::Flush() {
  while (sent_ < outgoing_.size()) {
    const ssize_t n = send(descriptor_, outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      const std::string reason = ErrnoText();
      outgoing_.clear();  // nobody will take it
      sent_ = 0;
      return absl::UnavailableError(absl::StrCat("the other end of the engine's socket is gone: ", reason));
    }
    sent_ += static_cast<size_t>(n);
  }
  outgoing_.clear();
  sent_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<pb::EngineMessage>> EngineChannel::TakeBuffered() {
  const size_t available = incoming_.size() - taken_;
  if (available < kLengthBytes) return std::nullopt;
  const uint32_t length = LoadLength(incoming_.data() + taken_);
  if (length > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the engine's socket announces a message of ", length,
                                                   " bytes, expected at most ", kMaxMessageBytes));
  }
  if (available - kLengthBytes < length) return std::nullopt;
  pb::EngineMessage message;
  if (!message.ParseFromArray(incoming_.data() + taken_ + kLengthBytes, static_cast<int>(length))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the engine's socket gave ", length, " bytes that are no message; do front and engine have one version?"));
  }
  taken_ += kLengthBytes + length;
  if (taken_ == incoming_.size()) {
    incoming_.clear();
    taken_ = 0;
  }
  return message;
}

absl::StatusOr<std::optional<pb::EngineMessage>> EngineChannel::Receive() {
  // A peer that is gone shows below, after everything it sent.
  Flush().IgnoreError();
  while (true) {
    ASSIGN_OR_RETURN(std::optional<pb::EngineMessage> message, TakeBuffered());
    if (message.has_value()) return message;
    if (closed_) return absl::UnavailableError("the other end closed the engine's socket");
    incoming_.erase(0, taken_);
    taken_ = 0;
    const size_t had = incoming_.size();
    incoming_.resize(had + kReadBytes);
    const ssize_t n = recv(descriptor_, incoming_.data() + had, kReadBytes, 0);
    const int error = errno;
    incoming_.resize(had + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n > 0) continue;
    if (n < 0 && error == EINTR) continue;
    if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return std::nullopt;
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
