#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_FORM_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_FORM_H_

// What a request asks of the form of its answer, as rules for all that the model writes.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/form/call_markup.h"
#include "coordinator/text/grammar/rules.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

struct ContentForm {
  enum class Kind {
    kJsonObject,  // any object
    kJsonSchema,  // json/json_schema.h
    kRegex,       // regex.h
    kChoice,      // one of some texts
    kGrammar,     // gbnf.h
  };

  Kind kind;
  Json schema;                       // kJsonSchema
  std::string text;                  // kRegex, kGrammar
  std::vector<std::string> choices;  // kChoice
};

struct CallForm {
  std::vector<CallableTool> tools;  // that may be called; not none
  bool required = false;            // the answer is calls, else it may hold some
  bool several = true;              // where they are required: more than one
};

struct AnswerForm {
  std::optional<ContentForm> content;  // absent: any text
  std::optional<CallForm> calls;       // absent: none that this knows of
};

// What the rules of an answer depend on of its prompt.
enum class ReasoningAtStart {
  kMayCome,   // if the model begins it
  kHasBegun,  // by the prompt
  kIsOver,    // or there is none, or it is text
};
ReasoningAtStart ReasoningAt(OutputFormat format, const OutputStart& start);

// Rules for an answer in this format to a prompt with this end (`start`, as for OutputParser):
//   reasoning   any text up to the mark that ends it, then at most 4 characters of white space; before content of a
//               form, line breaks. Where the prompt has not begun it, the model may, if its format lets it.
//   content     then, in this form, within the marks that the format has for it. With calls that are not required,
//               either this or calls. Its reader is told by OutputStart::content_has_form.
//   calls       in the format's own markup. Without a form of content, and not required: any text, in which the mark of
//               a call begins one. kLlama3Json has no such mark: an answer that begins with a brace is a call.
// Where the output is not parsed (completions), the format is kPlain and the start empty: the answer is the content.
//
// Control tokens of the vocabulary stand for their texts in marks. They are allowed nowhere else.
//
// What is read is what was written, except that
//   - content that begins with line breaks loses them where reasoning may come first;
//   - a regular expression, a choice or a grammar may allow a mark of the format, which is read as that: reasoning's at
//     the beginning, a call's there beside tools, and kHarmony's and OutputGrammar::silent anywhere. In JSON these are
//     written with an escape; not so kLlama3Json's call beside tools, which is an object with a tool's name.
//
// Errors say what is wrong with what the request asks, as AddJsonSchema, AddRegex, AddGbnf and AddCalls;
// kInvalidArgument also for a choice among nothing, kResourceExhausted for one of more than kMostGrammarTextBytes.
// CompileGrammar finds others.
absl::StatusOr<GrammarRules> RulesOfAnswer(const AnswerForm& form, OutputFormat format, const OutputStart& start,
                                           const Tokenizer& tokenizer);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_ANSWER_FORM_H_
