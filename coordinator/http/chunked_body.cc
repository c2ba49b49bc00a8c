#include "coordinator/http/chunked_body.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace stagecoach {

absl::StatusOr<size_t> ChunkedBody::Read(absl::string_view bytes, int64_t most_bytes, std::string* body) {
  const size_t all = bytes.size();
  while (!bytes.empty() && !done()) {
    if (state_ == State::kData) {
      const size_t taken = std::min<uint64_t>(bytes.size(), left_);
      body->append(bytes.data(), taken);
      bytes.remove_prefix(taken);
      left_ -= taken;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const size_t end = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() > kMostLineBytes) return absl::InvalidArgumentError("a chunk's line is too long");
    absl::StrAppend(&line_, piece);
    if (end == bytes.npos) return all;
    bytes.remove_prefix(end + 1);
    RETURN_IF_ERROR(TakeLine(most_bytes));
    line_.clear();
  }
  return all - bytes.size();
}

absl::Status ChunkedBody::TakeLine(int64_t most_bytes) {
  absl::string_view line = line_;
  if (!absl::ConsumeSuffix(&line, "\r") || line.find('\r') != line.npos) {
    return absl::InvalidArgumentError("a chunk's line does not end with CR LF");
  }
  if (state_ == State::kDataEnd) {
    if (!line.empty()) return absl::InvalidArgumentError("a chunk is longer than its size says");
    state_ = State::kSize;
    return absl::OkStatus();
  }
  if (state_ == State::kTrailer) {
    trailer_bytes_ += line.size() + 2;
    if (trailer_bytes_ > kMostLineBytes) return absl::InvalidArgumentError("the trailers are too long");
    if (line.empty()) state_ = State::kDone;
    return absl::OkStatus();
  }
  const absl::string_view size = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find(';')));
  if (size.empty() || size.size() > 16 || !std::all_of(size.begin(), size.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError("a chunk's size is no hexadecimal number");
  }
  uint64_t bytes = 0;
  if (!absl::SimpleHexAtoi(size, &bytes)) return absl::InvalidArgumentError("a chunk's size is no hexadecimal number");
  if (bytes > static_cast<uint64_t>(most_bytes) - static_cast<uint64_t>(announced_)) {
    return absl::ResourceExhaustedError(absl::StrCat("the body has more than ", most_bytes, " bytes"));
  }
  announced_ += static_cast<int64_t>(bytes);
  left_ = bytes;
  state_ = bytes == 0 ? State::kTrailer : State::kData;
  return absl::OkStatus();
}

}  // namespace stagecoach
