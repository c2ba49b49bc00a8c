#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_PRINTING_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_PRINTING_H_

// Values as text. Strings keep their marks; what a number, a list or a dict adds (digits, brackets, quotes) has the
// value's own origin.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VALUES_PRINTING_H_
