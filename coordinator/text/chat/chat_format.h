#ifndef STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_
#define STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_

// A model's chat templates, with and without tools: what they can do, and messages in the shape they take.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/json/json.h"
#include "coordinator/text/chat/chat_template.h"
#include "coordinator/text/marked_text.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// How a template takes the arguments of a call.
enum class ArgumentsForm {
  kAny,     // it writes no calls, as far as can be seen
  kObject,  // as an object, whether or not it takes a text too
  kText,    // as a JSON text alone
};

// Where a template reads an assistant's reasoning.
enum class ReasoningForm {
  kNone,              // nowhere
  kReasoningContent,  // reasoning_content, beside content
  kThinking,          // thinking, beside content
  kReasoning,         // reasoning, beside content
  kParts,             // a part {"type": "thinking", "thinking": TEXT} at the front of content
};

// What a chat template can do, found by rendering samples. Defaults apply where that shows nothing.
struct ChatAbilities {
  bool string_content = true;  // content that is a text
  bool typed_content = true;   // content that is a list of parts
  bool null_content = true;    // content that is null, beside calls
  bool system = true;          // a system message at the beginning
  bool late_system = true;     // and one after others
  bool developer = true;       // gives the role "developer" a meaning of its own
  bool tools = true;           // tells the model of tools
  bool bare_tools = true;      // ... also of those without a description, which else get an empty one
  bool repeated_users = true;  // two messages of the user's in a row
  bool parallel_calls = true;  // more than one call in a message
  bool any_call_id = true;     // else nine letters and digits
  ArgumentsForm arguments = ArgumentsForm::kAny;
  bool text_arguments = true;  // a call whose arguments are a text does not fail
  ReasoningForm reasoning = ReasoningForm::kNone;
  bool reasoning_with_content_and_calls = true;  // all three in one message
};

// Renders some twenty small conversations. A rendering limit ends the probing, so a hostile template costs one
// rendering; abilities not probed yet keep their defaults.
ChatAbilities ProbeAbilities(const ChatTemplate& chat_template);

// The same messages in the shape that the template takes. Requires and returns what CheckMessages asks for; other
// roles than the user's that do not alternate are not mended. What the template takes as it is stays; else
// * content     a list of text parts becomes one text, joined by newlines, or a text such a list. Other lists stay.
// * developer   becomes `system` where it is only a word to the template.
// * system      where it would be refused or left out, joins the user's message before it, else the one after it, an
//               empty line between; between others it becomes a message of the user's. Several at the beginning become
//               one where the template takes one. What follows later changes none of this.
// * user        messages in a row become one, an empty line between. Lists that are not only text stay.
// * ids         of calls become nine letters and digits, which depend on the given ones alone.
// * calls       of one message become a message each, with the results behind theirs, where only one is written.
// Content
//               and reasoning are the first one's.
// * arguments   become an object or a text. A text that holds no object (of a call that was cut off) stays, or where a
//               text would fail becomes the member `arguments` of an object.
// * null        or absent content of an assistant becomes "", except beside calls where null is taken. Calls that are
//               null or an empty list are removed.
// * reasoning   (`reasoning_content`, `reasoning` or `thinking`, the first that is a text) goes where it is read. Where
//               reasoning, content and calls are not taken together, the content follows in the same text.
Json ShapeMessages(const Json& messages, const ChatAbilities& abilities);

// The point `content`, for one message.
void ShapeContent(const ChatAbilities& abilities, Json* message);

// Immutable and thread-safe. Copies are cheap.
class ChatFormat {
 public:
  // Probes the templates. Never fails: a model without a usable template can do all else. `tokenizer` outlives this.
  ChatFormat(const ChatTemplateChoice& choice, const GgufMetadata& metadata, const Tokenizer* tokenizer);

  // OK, or why conversations with tools, or without, cannot be written and what can be done. kNotFound: there is no
  // template. kInvalidArgument: it does not parse.
  absl::Status usable(bool with_tools) const { return Of(with_tools).made.status(); }

  // The text of a conversation in OpenAI's form, shaped by ShapeMessages, and its tokens, with exactly one BOS token
  // where the model wants one. Requires what CheckMessages, CheckTools and CheckTemplateVariables ask for.
  //
  // What messages say never becomes a control token. It can become a user-defined one (type 4), which is taken wherever
  // it stands, also where a file's chat markers are of that type.
  //
  // Errors: those of ChatTemplate::Render, and kFailedPrecondition with usable()'s message.
  absl::StatusOr<MarkedText> Render(const Conversation& conversation, absl::Time now) const;
  absl::StatusOr<std::vector<TokenId>> Encode(const Conversation& conversation, absl::Time now) const;

  // How many of a conversation's tokens its next turn is likely to begin with: those before what asks for the answer.
  // `text` is what Render gave for it, `tokens` how many tokens that has. -1: all, or it cannot be told. Renders again.
  int64_t TokensBeforeAnswer(const Conversation& conversation, absl::Time now, const MarkedText& text,
                             int64_t tokens) const;

  const ChatAbilities& abilities(bool with_tools) const { return Of(with_tools).abilities; }

  // Texts that end an answer: a built-in template's message end if no token is, so that the model spells it out.
  const std::vector<std::string>& answer_ends() const { return answer_ends_; }

  // The template itself, from which the form of the model's output can be told. Empty where there is none.
  const std::string& source(bool with_tools) const { return Of(with_tools).source; }

 private:
  struct Template {
    std::string source;
    absl::StatusOr<ChatTemplate> made;
    ChatAbilities abilities;
  };

  static Template Make(absl::StatusOr<ChatTemplateSource> source, const Tokenizer& tokenizer);
  const Template& Of(bool with_tools) const { return with_tools ? with_tools_ : without_tools_; }

  const Tokenizer* tokenizer_;
  std::vector<std::string> answer_ends_;
  Template without_tools_;
  Template with_tools_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_FORMAT_H_
