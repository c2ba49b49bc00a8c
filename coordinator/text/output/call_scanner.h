#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_

// Finds markers in a text of which more may come, and reads a call from it.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

inline bool IsOutputSpace(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
size_t LeadingSpace(absl::string_view text);   // bytes
size_t TrailingSpace(absl::string_view text);  // bytes
absl::string_view WithoutSpaceAround(absl::string_view text);

enum class MarkerFit {
  kNo,
  kYes,
  kPerhaps,  // the text ends before that can be said
};
MarkerFit FitMarker(absl::string_view text, absl::string_view marker, bool at_end);

// The first of `markers` in a text of which more may come unless `at_end`. No marker begins another.
struct MarkerPlace {
  size_t position;           // of it; without one: where the end begins that may become one, or the end
  absl::string_view marker;  // empty: there is none
};
MarkerPlace FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers, bool at_end);

// A place in a text that is still being written.
//   Failing    Once the text ends too early (starved) or something else stands there (failed), everything does nothing
//              and returns nothing. Code is written as if all went well, and asks ok() before it keeps anything.
//   Steps      What is read between BeginStep() and EndStep() is read as a whole: a starved step is undone, and taken
//              again when more text has come. So a step is short (kMostHead) or takes what is there (Text, Take).
//   Certainty  A longer text never changes what has been read or failed.
class CallScanner {
 public:
  static constexpr size_t kMostHead = 512;  // bytes of a name and the like, and of white space within a step
  static constexpr size_t kMostDepth = 64;  // values within values

  // The text goes on: what was shown before, without what was forgotten, and more. at_end: no more will come.
  void Show(absl::string_view text, bool at_end);
  // The first bytes are not shown again. They have been read.
  void Forget(size_t bytes) { position_ -= bytes; }

  bool ok() const { return state_ == State::kGoing; }
  bool starved() const { return state_ == State::kStarved; }
  size_t position() const { return position_; }  // bytes of the text that have been read
  absl::string_view rest() const { return text_.substr(position_); }
  // No text is left but white space, which is not read, and none will come.
  bool AtEnd();

  void BeginStep() { step_begin_ = position_; }
  void EndStep();

  void Fail();
  void Skip(size_t bytes);  // of rest()
  void SkipSpace();
  bool Try(absl::string_view marker);  // reads it when it is there
  void Expect(absl::string_view marker);
  // A marker that may be missing, and what is read before it only together with it: white space.
  void TryAfterSpace(absl::string_view marker);
  char Peek();                                     // the next byte; 0: there is none (then this has starved)
  char Next();                                     // reads it
  absl::string_view While(bool (*belongs)(char));  // one byte or more, at most kMostHead
  // A name or the like, without space around; reads the marker too. Fails on '<', a brace or a line break within: the
  // marker is missing, and one of a later call was found.
  absl::string_view HeadUntil(absl::string_view marker);

  // Appends what there is of a text that ends before one of `ends`, as valid UTF-8: broken parts become U+FFFD, and a
  // character waits for its last byte. True: it is complete, and its end has been read. Starves on no text at all.
  bool Text(absl::Span<const absl::string_view> ends, std::string* text);
  // The same for the next bytes, a byte or more; `complete`: they end between two characters whatever they are.
  void Take(size_t bytes, bool complete, std::string* text);

  // Bytes that have been looked at, those of steps that were taken again too: what reading has cost.
  uint64_t scanned_bytes() const { return scanned_bytes_; }

 private:
  enum class State { kGoing, kStarved, kFailed };
  absl::string_view Starve();

  absl::string_view text_;
  bool at_end_ = false;
  size_t position_ = 0;
  size_t step_begin_ = 0;
  State state_ = State::kGoing;
  uint64_t scanned_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_
