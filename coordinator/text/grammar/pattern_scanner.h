#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_PATTERN_SCANNER_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_PATTERN_SCANNER_H_

// What regular expressions and GBNF texts have in common: characters, classes, quantifiers, and errors with a place.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/grammar/code_point_set.h"

namespace stagecoach {

inline constexpr size_t kMostGrammarTextBytes = 256 << 10;  // of a pattern, a GBNF text, a schema
inline constexpr int kMostGroupDepth = 50;                  // expressions of so many stay below kMaxExprDepth
inline constexpr int kMostRepeats = 65'536;                 // more than that no program has states for

class PatternScanner {
 public:
  struct Bounds {
    int min, max;  // max: kUnbounded where there is none
  };
  // Reads what follows a backslash: one character, or a class of them.
  using EscapeReader = absl::FunctionRef<absl::StatusOr<CodePointSet>()>;

  // `what` names the text in errors. Both outlive the scanner.
  PatternScanner(absl::string_view what, absl::string_view text) : what_(what), text_(text) {}

  // kResourceExhausted: it is too long. kInvalidArgument: it is no UTF-8. Nothing else holds for what is not OK.
  absl::Status CheckText() const;

  bool AtEnd() const { return position_ == text_.size(); }
  size_t position() const { return position_; }
  char Peek(size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  bool PeekIs(bool (*belongs)(char)) const { return !AtEnd() && belongs(Peek()); }
  bool Try(absl::string_view mark);  // reads it when it is there
  uint32_t Next();                   // one character; requires !AtEnd()
  absl::string_view While(bool (*belongs)(char));

  absl::StatusOr<uint32_t> ReadHex(int digits);
  // *, +, ?, {m}, {m,}, {m,n}; absent: something else stands there, also a brace without a number. {,n} is refused: it
  // means different things to different readers. `blanks`: some may stand within the braces.
  absl::StatusOr<std::optional<Bounds>> ReadQuantifier(bool blanks = false);
  // From after '[' to ']'.
  absl::StatusOr<CodePointSet> ReadClass(EscapeReader read_escape);

  // kInvalidArgument: "pattern: MESSAGE, at character 7 ('x')", in texts of several lines "at line 3, character 7".
  absl::Status Error(absl::string_view message) const { return ErrorAt(position_, message); }
  absl::Status ErrorAt(size_t position, absl::string_view message) const;

 private:
  absl::StatusOr<CodePointSet> ReadClassItem(EscapeReader read_escape);
  absl::StatusOr<int> ReadCount();

  absl::string_view what_;
  absl::string_view text_;
  size_t position_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_PATTERN_SCANNER_H_
