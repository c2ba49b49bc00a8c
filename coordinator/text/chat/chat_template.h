#ifndef STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_TEMPLATE_H_
#define STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_TEMPLATE_H_

// A conversation as the text that a model was trained to continue, written by a template in Jinja's language: the model
// file's, one that is given in its place, or a built-in one.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/gguf/gguf_file.h"
#include "common/json/json.h"
#include "coordinator/text/marked_text.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

class JinjaTemplate;

// The text of a template, and what messages call it: "'mine.jinja'".
struct ChatTemplateSource {
  std::string name;
  std::string text;
  std::string message_end = {};  // of a built-in one: what it writes behind each message
};

// What is to be used in place of the model file's template; by default nothing.
struct ChatTemplateChoice {
  std::optional<ChatTemplateSource> given;
  std::string built_in;  // one of BuiltInChatTemplates(); empty: none
};

// The names of those that are built in. "chatml": every message as <|im_start|>ROLE, newline, its text, <|im_end|>,
// newline; it knows no tools.
std::vector<std::string> BuiltInChatTemplates();

// The given template, else the built-in one, else the model file's: tokenizer.chat_template.tool_use with tools if it
// has that key, else tokenizer.chat_template. kNotFound: the file has none. kInvalidArgument: an unknown built-in one,
// or a key that is no text. The message says what can be done.
absl::StatusOr<ChatTemplateSource> ChooseChatTemplate(const ChatTemplateChoice& choice, const GgufMetadata& metadata,
                                                      bool with_tools);

// What a client sends, checked where it comes in: Render trusts it. kInvalidArgument names the place,
// "messages[2].role" (from 0), what was expected and what was found.
//   messages  a non-empty list of objects; whatever else they have is the template's affair
//   role      a non-empty string
//   content   a string, null, or a list of objects with a string `type` and, for type "text", a string `text`. An
//             assistant's may be absent; that of a tool (the roles tool, function, ipython) may be any value.
absl::Status CheckMessages(const Json& messages);
// A list of objects.
absl::Status CheckTools(const Json& tools);
// An object that sets nothing that Render sets itself: messages, tools, add_generation_prompt, bos_token, eos_token.
absl::Status CheckTemplateVariables(const Json& variables);

// What is pointed to outlives the rendering.
struct Conversation {
  const Json* messages;               // as CheckMessages asks for
  const Json* tools = nullptr;        // as CheckTools does; nullptr, null or an empty list: none
  bool add_generation_prompt = true;  // ends where the assistant is to speak
  // The last message begins what the assistant is to say: the text ends with its content, without a generation prompt.
  bool continue_final_message = false;
  // Whether to think before the answer; absent: what the template does by default.
  std::optional<bool> thinking;
  // Further variables, as CheckTemplateVariables asks for. Either name that templates have for `thinking` sets both.
  const Json* variables = nullptr;
};

// Whether the model is to be told of tools.
bool HasTools(const Conversation& conversation);

// Immutable and thread-safe. Copies are cheap.
class ChatTemplate {
 public:
  // bos_token and eos_token are those of the vocabulary; where it has none, empty. kInvalidArgument, with the source's
  // name, the line and the reason, when it does not parse.
  static absl::StatusOr<ChatTemplate> Parse(ChatTemplateSource source, const Tokenizer& tokenizer);

  // The conversation's text, for Tokenizer::EncodeMarked. The template's are what it wrote itself, bos_token,
  // eos_token, and the roles if all are usual words (system, developer, user, assistant, tool, function, ipython),
  // which some templates make control tokens of. All else is the request's. The date is `now`, in local time.
  //
  // Errors, with the source's name. kInvalidArgument: the template refuses the conversation (then JinjaRaised is true)
  // or cannot write it, or the last message cannot be continued: it is not an assistant's with a text, or calls tools,
  // or the template does not write its end. kResourceExhausted: one of JinjaLimits.
  absl::StatusOr<MarkedText> Render(const Conversation& conversation, absl::Time now) const;

  const std::string& name() const { return name_; }  // the source's

 private:
  ChatTemplate() = default;

  std::string name_;
  std::shared_ptr<const JinjaTemplate> program_;
  std::string bos_;
  std::string eos_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_TEMPLATE_H_
