#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_VARIABLES_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/heap.h"

namespace stagecoach::jinja {

// The names of keys from a variable on, to something that counts as the template's: {"messages", "role"}.
using KeyPath = std::vector<absl::string_view>;

// The paths of `paths` that lead through `key`, without it.
std::vector<KeyPath> PathsThrough(const std::vector<KeyPath>& paths, absl::string_view key);

// A JSON value as a template sees it: the request's, but for what `paths` lead to (an empty path: to the value itself).
// ResourceExhausted when it is nested too deep or too large.
absl::StatusOr<Value> ValueOfJson(Heap& heap, const Json& json, const std::vector<KeyPath>& paths, int depth);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_VARIABLES_H_
