#ifndef STAGECOACH_COORDINATOR_SERVE_API_BOUND_ANSWER_H_
#define STAGECOACH_COORDINATOR_SERVE_API_BOUND_ANSWER_H_

// Answers that are held to a form: what bodies ask for, and the grammar that comes of it. Errors are those of ApiStatus
// and name the place.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/text/grammar/form/answer_form.h"

namespace stagecoach {

struct CallPlan;

// Where the bodies of an API ask for the form of an answer's content.
enum class FormSpelling {
  // response_format {"type": "text", "json_object" or "json_schema", "json_schema": {name, schema, strict}}, vLLM's
  // structured_outputs {json, regex, choice or grammar} or their older names guided_json and so on, or llama.cpp's
  // grammar and json_schema.
  kResponseFormat,
  kTextFormat,    // text.format {"type", name, schema, strict}
  kOutputConfig,  // the same as output_config.format, or under its older name output_format
};

struct AskedForm {
  ContentForm content;
  std::string place;  // "response_format.json_schema.schema"
};

// Absent: any text. `ignored`: names of what stands inside and has no effect.
absl::Status ReadAskedForm(FieldReader* fields, FormSpelling spelling, std::optional<AskedForm>* form,
                           std::vector<std::string>* ignored);

// Sets plan->grammar where the body binds the answer: by fields.form, a choice of tools that asks for a call, or tools
// whose arguments follow their schema. The last of a plan's parts, as it depends on all others. Compiles: not for a
// thread that others wait for.
//   content          with tools that may be called: either that or calls
//   strict tools     plan->ignored says where they have no effect: in a family that AddCalls does not know, where the
//                    last message is continued, and with schemas that are too much for a grammar. There calls that are
//                    asked for, too, have any arguments
//   a call is asked  400 where nobody reads calls, or nobody knows how to bind them
absl::Status BindAnswer(CallPlan* plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_BOUND_ANSWER_H_
