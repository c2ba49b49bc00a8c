#include "coordinator/http/sse_reader.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace stagecoach {

absl::Status SseReader::Append(absl::string_view bytes, const std::function<void(const SseEvent&)>& on_event) {
  while (status_.ok() && !bytes.empty()) {
    // A line ends with CR LF, LF or CR; the LF of the first may come in the next piece.
    if (after_return_ && bytes[0] == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const absl::string_view piece = bytes.substr(0, end);
    if (line_.size() + event_.data.size() + piece.size() > most_event_bytes_) {
      status_ = absl::ResourceExhaustedError(absl::StrCat("an event has more than ", most_event_bytes_, " bytes"));
      break;
    }
    absl::StrAppend(&line_, piece);
    if (end == bytes.npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, std::string());
    Line(line, on_event);
  }
  return status_;
}

void SseReader::Line(absl::string_view line, const std::function<void(const SseEvent&)>& on_event) {
  if (line.empty()) {
    const SseEvent event = std::exchange(event_, SseEvent());
    if (std::exchange(has_data_, false)) on_event(event);
    return;
  }
  const size_t colon = line.find(':');
  const absl::string_view field = line.substr(0, colon);
  absl::string_view value = colon == line.npos ? "" : line.substr(colon + 1);
  absl::ConsumePrefix(&value, " ");
  if (field == "event") {
    event_.event = std::string(value);
  } else if (field == "data") {
    if (has_data_) event_.data.push_back('\n');
    absl::StrAppend(&event_.data, value);
    has_data_ = true;
  }
}

}  // namespace stagecoach
