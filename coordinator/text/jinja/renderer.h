#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/text/jinja/syntax/ast.h"
#include "coordinator/text/jinja/values/heap.h"

namespace stagecoach::jinja {

// JinjaTemplate::Render of a program, with the paths that lead to what counts as the template's.
absl::StatusOr<MarkedText> RenderProgram(const Program& program, const Json& variables,
                                         const std::vector<KeyPath>& template_paths, absl::Time now,
                                         const JinjaLimits& limits);

}  // namespace stagecoach::jinja

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_RENDERER_H_
