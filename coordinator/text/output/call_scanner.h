#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_

// Finds markers in a text of which more may come, and reads a call from it.

#include <string>
#include <vector>

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

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object's text
  std::string id;         // empty: the model gave none
};

struct CallReading {
  enum class State {
    kMore,  // what is there is the beginning of a call as far as it goes
    kDone,
    kBad,  // this is no call, whatever follows
  };
  State state;
  size_t bytes = 0;             // that were read: the call with its markers (kDone), or up to what is no call (kBad)
  std::vector<ToolCall> calls;  // kDone
};

// Each step reads on from where the one before ended, and does nothing once one has failed: the text ends too early, or
// something else stands there. Result says what came of it; a longer text never changes what was decided.
class CallScanner {
 public:
  static constexpr size_t kMostHead = 512;  // bytes of a name and the like
  static constexpr int kMostDepth = 64;     // values within values

  CallScanner(absl::string_view text, bool at_end) : text_(text), at_end_(at_end) {}

  bool ok() const { return state_ == State::kGoing; }
  absl::string_view rest() const { return text_.substr(position_); }
  // No text is left, and none will come.
  bool AtEnd();

  void SkipSpace();
  bool Try(absl::string_view marker);  // reads it when it is there
  void Expect(absl::string_view marker);
  // A marker that may be missing, and what is read before it only together with it: white space.
  void TryAfterSpace(absl::string_view marker);
  char Peek();                                            // the next byte; 0: there is none (then this has failed)
  char Next();                                            // reads it
  absl::string_view Until(absl::string_view marker);      // reads the marker too
  absl::string_view HeadUntil(absl::string_view marker);  // the same within kMostHead bytes, without space around
  absl::string_view While(bool (*belongs)(char));         // one byte or more, and the text goes on after them
  // An object or a list, valid as a whole.
  absl::string_view JsonValue();
  absl::string_view Fail();  // gives nothing, as what fails does

  CallReading Result(std::vector<ToolCall> calls) const;

 private:
  enum class State { kGoing, kStarved, kFailed };
  absl::string_view Starve();

  absl::string_view text_;
  bool at_end_;
  size_t position_ = 0;
  State state_ = State::kGoing;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_SCANNER_H_
