#include "coordinator/cli/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr size_t kLongestLinesHeld = 4;

}  // namespace

LineReader::LineReader(int descriptor, size_t capacity, size_t max_line_bytes, std::function<void()> wake)
    : descriptor_(descriptor), capacity_(capacity), max_line_bytes_(max_line_bytes), wake_(std::move(wake)) {
  CHECK_EQ(pipe2(stop_pipe_, O_CLOEXEC | O_NONBLOCK), 0);
  current_.number = 1;
  thread_ = std::thread([this] { Run(); });
}

LineReader::~LineReader() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  room_.notify_all();
  close(stop_pipe_[1]);  // the other end becomes readable
  thread_.join();
  close(stop_pipe_[0]);
}

std::optional<LineReader::Line> LineReader::TryNext() {
  std::lock_guard lock(mu_);
  if (lines_.empty()) return std::nullopt;
  Line line = std::move(lines_.front());
  lines_.pop_front();
  held_bytes_ -= line.text.size();
  room_.notify_one();
  return line;
}

bool LineReader::finished() const {
  std::lock_guard lock(mu_);
  return ended_ && lines_.empty();
}

size_t LineReader::held_bytes() const {
  std::lock_guard lock(mu_);
  return held_bytes_;
}

absl::Status LineReader::status() const {
  std::lock_guard lock(mu_);
  return status_;
}

void LineReader::Run() {
  std::vector<char> buffer(1 << 16);
  while (true) {
    pollfd watched[2] = {{.fd = descriptor_, .events = POLLIN, .revents = 0},
                         {.fd = stop_pipe_[0], .events = POLLIN, .revents = 0}};
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return End(absl::InternalError(std::strerror(errno)));
    if (watched[1].revents != 0) return End(absl::OkStatus());
    if (watched[0].revents == 0) continue;
    const ssize_t got = read(descriptor_, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return End(absl::DataLossError(absl::StrCat("cannot read the input: ", std::strerror(errno))));
    if (got == 0) {
      if (current_started_) EndLine();
      return End(absl::OkStatus());
    }
    if (!TakeBytes(buffer.data(), static_cast<size_t>(got))) return End(absl::OkStatus());
  }
}

bool LineReader::TakeBytes(const char* bytes, size_t count) {
  while (count > 0) {
    const char* newline = static_cast<const char*>(std::memchr(bytes, '\n', count));
    const size_t part = newline != nullptr ? static_cast<size_t>(newline - bytes) : count;
    current_started_ = true;
    if (current_.too_long || current_.text.size() + part > max_line_bytes_) {
      current_.too_long = true;
      current_.text.clear();
    } else {
      current_.text.append(bytes, part);
    }
    taken_bytes_ += static_cast<int64_t>(part + (newline == nullptr ? 0 : 1));
    if (newline == nullptr) return true;
    if (!EndLine()) return false;
    bytes += part + 1;
    count -= part + 1;
  }
  return true;
}

bool LineReader::EndLine() {
  Line line = std::exchange(current_, Line());
  line.end = taken_bytes_;
  current_.number = line.number + 1;
  current_started_ = false;
  const bool blank = !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
  return blank || Push(std::move(line));
}

bool LineReader::Push(Line line) {
  {
    std::unique_lock lock(mu_);
    room_.wait(lock, [&] {
      const bool room = held_bytes_ + line.text.size() <= kLongestLinesHeld * max_line_bytes_;
      return stop_ || lines_.empty() || (lines_.size() < capacity_ && room);
    });
    if (stop_) return false;
    held_bytes_ += line.text.size();
    lines_.push_back(std::move(line));
  }
  wake_();
  return true;
}

void LineReader::End(absl::Status status) {
  {
    std::lock_guard lock(mu_);
    ended_ = true;
    status_ = std::move(status);
  }
  wake_();
}

}  // namespace stagecoach
