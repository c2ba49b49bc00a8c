#ifndef STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_ABILITIES_H_
#define STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_ABILITIES_H_

// What a chat template can do. Nothing but its program says so, and clients write conversations in one form whatever
// the model: samples are rendered, and their text shows what became of them.

#include "coordinator/text/chat/chat_template.h"

namespace stagecoach {

// How a template takes the arguments of a call.
enum class ArgumentsForm {
  kAny,     // it writes no calls, as far as can be seen
  kObject,  // as an object, whether or not it takes a text too
  kText,    // as a JSON text alone
};

// Where a template looks for what the assistant thought before it spoke.
enum class ReasoningForm {
  kNone,              // nowhere
  kReasoningContent,  // reasoning_content, beside content
  kThinking,          // thinking, beside content
  kReasoning,         // reasoning, beside content
  kParts,             // a part {"type": "thinking", "thinking": TEXT} at the front of content
};

// The defaults are those of a template that does not write even what a user said, so that nothing can be learnt of it.
struct ChatAbilities {
  bool string_content = true;  // content that is a text
  bool typed_content = true;   // content that is a list of parts
  bool null_content = true;    // content that is null, beside calls
  bool system = true;          // a system message at the beginning
  bool late_system = true;     // and one after others
  bool developer = true;       // the role developer is more to it than any word
  bool tools = true;           // tells the model of tools
  bool parallel_calls = true;  // more than one call in a message
  ArgumentsForm arguments = ArgumentsForm::kAny;
  ReasoningForm reasoning = ReasoningForm::kNone;
  bool reasoning_with_content_and_calls = true;  // all three in one message
};

// Renders some twenty small conversations. One that reaches a limit of rendering ends the probing, and what is not
// known then has its default: a hostile template costs the time of one rendering.
ChatAbilities ProbeAbilities(const ChatTemplate& chat_template);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_CHAT_CHAT_ABILITIES_H_
