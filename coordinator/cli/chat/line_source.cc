#include "coordinator/cli/chat/line_source.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/chat/chat_input.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr size_t kMostLineBytes = kMostMessageBytes + 2;  // with a backslash or a fence, and still too long

}  // namespace

absl::StatusOr<LineRead> PipedLines::Read(const std::string&, const AwaitInput& await) {
  while (true) {
    const size_t newline = bytes_.find('\n', searched_);
    if (newline != std::string::npos) {
      LineRead line = {LineRead::Kind::kLine, bytes_.substr(0, newline)};
      bytes_.erase(0, newline + 1);
      searched_ = 0;
      if (std::exchange(cut_, false)) continue;
      if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
      return line;
    }
    searched_ = bytes_.size();
    if (cut_) bytes_.clear(), searched_ = 0;
    if (ended_ || bytes_.size() > kMostLineBytes) {
      if (bytes_.empty()) return LineRead{LineRead::Kind::kEnd, ""};
      searched_ = 0;
      cut_ = !ended_;
      return LineRead{LineRead::Kind::kLine, std::exchange(bytes_, "")};
    }
    ASSIGN_OR_RETURN(const Awaited awaited, await(descriptor_));
    if (awaited == Awaited::kSignal) return LineRead{LineRead::Kind::kSignal, ""};
    if (awaited != Awaited::kReadable) continue;
    char buffer[1 << 16];
    const ssize_t got = read(descriptor_, buffer, sizeof(buffer));
    if (got > 0) bytes_.append(buffer, static_cast<size_t>(got));
    if (got == 0) ended_ = true;
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      return InputFileError(absl::StrCat("cannot read standard input: ", std::strerror(errno)));
    }
  }
}

}  // namespace stagecoach
