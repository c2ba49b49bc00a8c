#ifndef STAGECOACH_COORDINATOR_TEXT_MARKED_TEXT_H_
#define STAGECOACH_COORDINATOR_TEXT_MARKED_TEXT_H_

// What a chat template renders: text that knows of each byte whether the template wrote it or the request brought it. A
// control token's text becomes the token only where the template wrote all of it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

enum class TextOrigin : uint8_t { kTemplate, kRequest };

class MarkedText {
 public:
  // Bytes of one origin, from the end of the run before.
  struct Run {
    size_t end;  // one past its last byte
    TextOrigin origin;
    friend bool operator==(const Run&, const Run&) = default;
  };

  MarkedText() = default;
  MarkedText(absl::string_view text, TextOrigin origin);

  void Append(absl::string_view text, TextOrigin origin);
  void Append(const MarkedText& other);
  // The bytes [begin, begin + size) of another text; a range beyond its end is cut there.
  void Append(const MarkedText& other, size_t begin, size_t size);

  const std::string& text() const { return text_; }
  // None is empty, neighbours differ, and the last one ends where the text does; none for an empty text.
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // The text will have so many bytes; and what both that and the runs have room for now.
  void Reserve(size_t bytes) { text_.reserve(bytes); }
  size_t memory_bytes() const { return text_.capacity() + runs_.capacity() * sizeof(Run); }

  // Whether the template wrote all of [begin, end), which lies within the text; true for an empty range.
  bool IsTemplate(size_t begin, size_t end) const;

  // The bytes [begin, begin + size); a range beyond the text's end is cut there.
  MarkedText Substr(size_t begin, size_t size) const;

  friend bool operator==(const MarkedText&, const MarkedText&) = default;

 private:
  // The index of the run that `position`, which is less than size(), lies in.
  size_t RunAt(size_t position) const;

  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_MARKED_TEXT_H_
