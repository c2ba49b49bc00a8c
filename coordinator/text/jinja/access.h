#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_ACCESS_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_ACCESS_H_

// What x.name, x[key], x[a:b] and loops take out of values. InvalidArgument, without a line, where there is nothing to
// take from; what is merely not there is undefined.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/jinja/heap.h"

namespace stagecoach::jinja {

// x.name: a method first, then the key. `name` lives as long as the value that comes back is used.
absl::StatusOr<Value> Attribute(Heap& heap, const Value& object, const std::string& name);

// x[key]: the key first, then, for a name, the method. `name` as in Attribute, or null when the template has none.
absl::StatusOr<Value> Item(Heap& heap, const Value& object, const Value& key, const std::string* name);

// x[begin:end:stride]; each may be none.
absl::StatusOr<Value> Slice(Heap& heap, const Value& object, const Value& begin, const Value& end, const Value& stride);

// x['a']['b'][0] for "a.b.0", as filters take attributes; an integer is an index.
absl::StatusOr<Value> AttributePath(Heap& heap, const Value& object, const Value& path);

// What a loop over it goes through: of a string its characters, of a dict its keys. A generator has nothing left after
// it.
absl::StatusOr<Items> Iterate(Heap& heap, const Value& iterable);

// len(). InvalidArgument for what has none.
absl::StatusOr<Integer> Length(const Value& value);

// The characters [begin, end) of a string.
absl::StatusOr<Value> Characters(Heap& heap, const String& string, size_t begin, size_t end);

// Where `part` begins in `text` from the byte `begin` on; npos when nowhere. Linear in the text, whatever the part is.
size_t FindText(absl::string_view text, absl::string_view part, size_t begin);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_ACCESS_H_
