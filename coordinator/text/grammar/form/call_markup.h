#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_CALL_MARKUP_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_CALL_MARKUP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/form/format_text.h"
#include "coordinator/text/grammar/rules.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

// A function that an answer may call.
struct CallableTool {
  std::string name;            // of letters, digits, '_', '.' and '-'
  Json parameters;             // a JSON schema; null: any object
  bool bind_arguments = true;  // by `parameters`; else any object will do
};

// Calls as models of a format write them.
struct MarkedCalls {
  std::string begin;   // the mark that they begin with
  ExprId after_begin;  // what follows it
};

enum class CallCount {
  kOne,
  kSeveral,     // one or more, between which the format's own text alone stands
  kOneSection,  // where the format encloses calls, one enclosure with one or more; else one call
};

// Whether AddCalls knows how they write them.
bool CallsCanBeBound(OutputFormat format);

// The ways in which calls of these tools, which are not none, may begin: one for each mark that the format has for
// them. The function is one of the tools, its arguments are as AddArguments has them.
//
// In formats that write each argument in tags of its own, an argument that is a text is any text without the closing
// tag, or one of those that enum or const name; other arguments are JSON without '<', with which tags begin; and
// arguments come in the order of the schema.
//
// Errors name the format or the tool.
//   kUnimplemented      calls of this format cannot be bound, or none of a required argument's values or its name can
//                       be written in it
//   kResourceExhausted  as AddArguments
absl::StatusOr<std::vector<MarkedCalls>> AddCalls(OutputFormat format, absl::Span<const CallableTool> tools,
                                                  CallCount count, const FormatText& text, GrammarRules* rules);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_CALL_MARKUP_H_
