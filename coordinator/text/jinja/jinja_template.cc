#include "coordinator/text/jinja/jinja_template.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/text/jinja/builtins/builtins.h"
#include "coordinator/text/jinja/renderer.h"
#include "coordinator/text/jinja/syntax/parser.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kRaisedPayload = "stagecoach/jinja_raised";

}  // namespace

namespace jinja {

absl::Status RaisedError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

}  // namespace jinja

bool JinjaRaised(const absl::Status& status) { return status.GetPayload(kRaisedPayload).has_value(); }

absl::StatusOr<JinjaTemplate> JinjaTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::shared_ptr<const jinja::Program> program, jinja::ParseTemplate(source));
  return JinjaTemplate(std::move(program));
}

absl::StatusOr<MarkedText> JinjaTemplate::Render(const Json& variables,
                                                 absl::Span<const absl::string_view> template_variables, absl::Time now,
                                                 const JinjaLimits& limits) const {
  if (!variables.is_object()) return absl::InvalidArgumentError("the variables of a template are an object");
  std::vector<jinja::KeyPath> template_paths;
  for (const absl::string_view names : template_variables) {
    const jinja::KeyPath path = absl::StrSplit(names, '.');
    template_paths.push_back(path);
  }
  return jinja::RenderProgram(*program_, variables, template_paths, now, limits);
}

}  // namespace stagecoach
