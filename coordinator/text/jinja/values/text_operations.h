#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_TEXT_OPERATIONS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_TEXT_OPERATIONS_H_

// Values as text (printing.cc), and what filters and methods do with strings, as Python's str does it. Each byte that
// is copied keeps its origin. What replaces a request's bytes counts as the request's. What a number, a list or a dict
// adds (digits, brackets, quotes) has the value's own origin.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/values/heap.h"

namespace stagecoach::jinja {

// How many bytes of a string are looked at between looks at the budget.
inline constexpr size_t kMostAtOnce = 65536;

// str(): what {{ }} prints.
absl::Status AppendText(const Value& value, TextBuilder* out);
// The same as a value; a string is itself.
absl::StatusOr<Value> ToText(Heap& heap, const Value& value);

// repr(): how a list shows what it holds.
absl::Status AppendRepr(const Value& value, int depth, TextBuilder* out);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool on_lines = false;  // every item on a line of its own
  MarkedText indent;      // of a level, where on_lines
  MarkedText item_separator{", ", TextOrigin::kTemplate};
  MarkedText key_separator{": ", TextOrigin::kTemplate};
};

// json.dumps(). InvalidArgument for a value that JSON has no form for.
absl::StatusOr<Value> ToJson(Heap& heap, const Value& value, const JsonStyle& style);

// `text` is a string. Without the characters of `set` (null: white space) at its left and right end.
absl::StatusOr<Value> Strip(Heap& heap, const Value& text, const String* set, bool left, bool right);

// The first `count` occurrences; all when it is negative.
absl::StatusOr<Value> Replace(Heap& heap, const String& text, const String& part, const String& with, Integer count);

enum class LetterCase {
  kUpper,
  kLower,
  kCapitalize,  // the first letter upper, all others lower
  kTitle,       // as str.title: what follows a letter is lower, other letters are upper
  kTitleWords,  // as jinja2's filter: what follows white space or one of -({[< is upper
};
absl::StatusOr<Value> ChangeCase(Heap& heap, const String& text, LetterCase to);

// At `separator` (null: at runs of white space), at most `count` times unless negative, from the end if `from_right`.
absl::StatusOr<Value> Split(Heap& heap, const String& text, const String* separator, Integer count, bool from_right);

// str.splitlines, without the ends of the lines.
absl::StatusOr<Items> SplitLines(Heap& heap, const String& text);

// The items as text, with `separator` between them.
absl::StatusOr<Value> Join(Heap& heap, const MarkedText& separator, const Items& items);

// The bytes from the last to the first, in which a search from the left is one from the right.
inline std::string Reversed(absl::string_view text) { return std::string(text.rbegin(), text.rend()); }

// format % values, which are a tuple, a dict for %(name)s, or one: %s %r %d %i %x %o %f %e %g, flags, width, precision.
absl::StatusOr<Value> PercentFormat(Heap& heap, const String& format, const Value& values);

// format.format(...): {}, {0} and {name}, with !s or !r, but without attributes and format specifications.
absl::StatusOr<Value> BraceFormat(Heap& heap, const String& format, const Arguments& arguments);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_TEXT_OPERATIONS_H_
