#ifndef STAGECOACH_COORDINATOR_TEXT_JINJA_JINJA_TEMPLATE_H_
#define STAGECOACH_COORDINATOR_TEXT_JINJA_JINJA_TEMPLATE_H_

// Chat templates: the part of Jinja that model files carry, as Hugging Face's transformers sets it up (trim_blocks,
// lstrip_blocks, loop controls, `generation`, tojson without HTML escapes, raise_exception, strftime_now, lists that
// can be changed). Neither a hostile template nor hostile variables can do more than fail: a template reaches nothing
// but its variables, and time, memory, depth and output are bounded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/json/json_value.h"
#include "coordinator/text/marked_text.h"

namespace stagecoach {

namespace jinja {
struct Program;
}

struct JinjaLimits {
  size_t output_bytes = 16 << 20;
  int64_t loop_rounds = 1'000'000;  // of all loops together; also the longest range
  int depth = 64;                   // of macros that call each other, and of values within values
  size_t memory_bytes = 128 << 20;  // of all that a rendering holds, the variables among it
  absl::Duration time = absl::Seconds(2);
};

// Immutable once parsed: any number of threads may render at the same time. A copy shares the program.
class JinjaTemplate {
 public:
  // InvalidArgument "line 12: unknown filter 'foo'; ..." (lines from 1) when the source is no template, or uses what we
  // do not have outside of conditions. Statements and expressions may be nested 64 deep.
  static absl::StatusOr<JinjaTemplate> Parse(absl::string_view source);

  // `variables` is an object. Every string and number within counts as the request's, and so does what is computed from
  // it, except for values that the caller chooses and names in `template_variables`: "bos_token" the variable,
  // "messages.role" the key `role` of the elements of the list `messages`. A name covers everything below it.
  // strftime_now formats `now`, in local time.
  //
  // Errors, without any output. InvalidArgument: the template called raise_exception (the message is its text alone,
  // and JinjaRaised is true), or a value cannot be used as it is ("line 12: ..."). ResourceExhausted: a limit.
  absl::StatusOr<MarkedText> Render(const Json& variables, absl::Span<const absl::string_view> template_variables,
                                    absl::Time now, const JinjaLimits& limits = {}) const;

 private:
  explicit JinjaTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const jinja::Program> program_;
};

// Whether `status` is the template's own refusal of its variables, by raise_exception.
bool JinjaRaised(const absl::Status& status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_JINJA_JINJA_TEMPLATE_H_
