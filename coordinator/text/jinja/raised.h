#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_RAISED_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_RAISED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach::jinja {

// What raise_exception(message) ends a rendering with: JinjaRaised knows it, and it keeps its text when lines are put
// before others'.
absl::Status RaisedError(absl::string_view message);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_RAISED_H_
