#ifndef STAGECOACH_COORDINATOR_HTTP_SSE_READER_H_
#define STAGECOACH_COORDINATOR_HTTP_SSE_READER_H_

// Parts the body of a text/event-stream answer into its events, wherever the pieces that arrive are cut. Not
// thread-safe.

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

struct SseEvent {
  std::string event;  // of `event:`; empty without one
  std::string data;   // the `data:` lines, joined by newlines

  bool done() const { return data == "[DONE]"; }  // the end, as chat and completions say it
};

class SseReader {
 public:
  // Calls `on_event` for every event that is complete. Comments, ids and events without data are dropped.
  // kResourceExhausted: an event longer than `most_event_bytes`; once not OK, always the same.
  explicit SseReader(size_t most_event_bytes = 16 << 20) : most_event_bytes_(most_event_bytes) {}
  absl::Status Append(absl::string_view bytes, const std::function<void(const SseEvent&)>& on_event);

 private:
  void Line(absl::string_view line, const std::function<void(const SseEvent&)>& on_event);

  const size_t most_event_bytes_;
  std::string line_;  // what came of a line without its end
  bool after_return_ = false;
  SseEvent event_;
  bool has_data_ = false;
  absl::Status status_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SSE_READER_H_
