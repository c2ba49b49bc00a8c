#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_JINJA_RENDERING_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_JINJA_RENDERING_H_

// Renders a template in one call.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/jinja_template.h"

namespace stagecoach::testing {

// A Thursday; local time.
inline absl::Time RenderingTime() {
  return absl::FromCivil(absl::CivilMinute(2026, 1, 15, 12, 0), absl::LocalTimeZone());
}

// The usual limits, but for the time: a sanitizer, or another test beside this one, takes more.
inline JinjaLimits WithoutHurry() { return {.time = absl::Minutes(1)}; }

inline absl::StatusOr<MarkedText> RenderMarked(absl::string_view source, const std::string& variables = "{}",
                                               const JinjaLimits& limits = WithoutHurry()) {
  const absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(Json::parse(variables), {"bos_token", "eos_token", "messages.role"}, RenderingTime(), limits);
}

// What the template gives for the variables, which are JSON; or the error.
inline std::string Render(absl::string_view source, const std::string& variables = "{}") {
  const absl::StatusOr<MarkedText> text = RenderMarked(source, variables);
  return text.ok() ? text->text() : std::string(text.status().ToString());
}

inline absl::Status RenderError(absl::string_view source, const std::string& variables = "{}",
                                const JinjaLimits& limits = WithoutHurry()) {
  return RenderMarked(source, variables, limits).status();
}

inline std::string ErrorText(absl::string_view source, const std::string& variables = "{}") {
  return std::string(RenderError(source, variables).message());
}

// The text with the request's parts in [ ].
inline std::string Marks(absl::string_view source, const std::string& variables) {
  const absl::StatusOr<MarkedText> text = RenderMarked(source, variables);
  if (!text.ok()) return std::string(text.status().ToString());
  std::string marks;
  size_t begin = 0;
  for (const MarkedText::Run& run : text->runs()) {
    const std::string part = text->text().substr(begin, run.end - begin);
    marks += run.origin == TextOrigin::kRequest ? "[" + part + "]" : part;
    begin = run.end;
  }
  return marks;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_JINJA_RENDERING_H_
