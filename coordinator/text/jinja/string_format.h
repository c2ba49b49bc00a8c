#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_STRING_FORMAT_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_STRING_FORMAT_H_

// The two ways in which Python's strings take in values.

#include "absl/status/statusor.h"
#include "coordinator/text/jinja/builtins.h"
#include "coordinator/text/jinja/heap.h"

namespace stagecoach::jinja {

// format % values, where values are a tuple, a dict for %(name)s, or one value: %s %r %d %i %x %o %f %e %g with flags,
// width and precision.
absl::StatusOr<Value> PercentFormat(Heap& heap, const String& format, const Value& values);

// format.format(...): {}, {0} and {name}, with !s or !r, but without attributes and format specifications.
absl::StatusOr<Value> BraceFormat(Heap& heap, const String& format, const Arguments& arguments);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_STRING_FORMAT_H_
