#ifndef STAGECOACH_COORDINATOR_SERVE_API_SERVED_MODEL_H_
#define STAGECOACH_COORDINATOR_SERVE_API_SERVED_MODEL_H_

// What calls are read and answered with: the model, what the caller allows, and the moment.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/step/step.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

class AnswerGrammars;
class ChatFormat;

// How the reasoning in answers to conversations is handed out.
struct ReasoningOptions {
  bool parse = true;                 // false: the model's markup stays in the text
  bool as_reasoning_content = true;  // names of the field; both may be
  bool as_reasoning = false;
};

// Immutable facts of the one model that is served, the same for all calls. What is pointed to outlives them.
struct ServedModel {
  const Tokenizer* tokenizer = nullptr;
  const ChatFormat* chat = nullptr;    // may be null where no call is a conversation
  AnswerGrammars* grammars = nullptr;  // of the tokenizer; may be null where no answer is held to a form
  int64_t vocab = 0;                   // token ids are below it
  bool recurrent = false;  // has layers with a state: prompts say where their conversation's next turn parts

  std::vector<std::string> names;  // the first is shown; never empty
  bool any_name = true;            // a request may call it whatever it likes
  int64_t created = 0;             // seconds since 1970
  std::string hash;                // of the file's headers
  // For lists of models.
  int64_t parameters = 0;
  int64_t file_bytes = 0;
  int64_t trained_context = 0;

  // What holds for requests that do not say otherwise. The seed is drawn for each call: CallContext.
  SamplingParams sampling;
  bool ignore_eos = false;
  bool parse_special = true;           // control tokens written in a prompt's text become tokens
  int64_t completion_tokens = 16;      // most of an answer to a prompt
  std::optional<int64_t> chat_tokens;  // ... to a conversation; absent: the room left
  // How the model marks its reasoning and calls, in conversations without tools and with them.
  OutputFormat output_format = OutputFormat::kPlain;
  OutputFormat tool_format = OutputFormat::kPlain;
  bool parse_calls = true;  // false: their text is content
  ReasoningOptions reasoning;
  // System texts of Messages keep what a client's billing begins them with, see ReadMessagesRequest.
  bool keep_client_stamp = false;
};

// What a caller takes. The defaults are a server's.
struct CallRules {
  bool refuse_unknown_fields = false;  // else they are ignored, and ApiCall::ignored() names them
  bool streams = true;
  bool several_answers = true;          // n > 1, several prompts, echo
  bool engine_ranges = false;           // what the engine can do, where an API's own range is narrower
  bool answer_with_given_name = false;  // `model` in the answer is what the request had
  static CallRules Batch();
};

// Of one call.
struct CallContext {
  std::string id;              // unique; answers are called "chatcmpl-<id>", "cmpl-<id>"
  std::string request_id;      // of HTTP, for errors that repeat it
  absl::Time now;              // of acceptance: `created`, and the date that a template may write
  int64_t context_tokens = 0;  // most tokens of a prompt and its answer; 0: not known, the engine judges
  int max_choices = 16;        // largest n
  int max_requests = 1024;     // choices of all prompts together
  uint64_t seed = 0;           // of a call without one: drawn by the caller
  std::string fingerprint;     // system_fingerprint of the answer; empty: it has none
  int32_t priority_class = 1;  // of a call that does not say: 0 is served first, 2 last
  int32_t first_class = 0;     // the first that it may ask for
  CallRules rules;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_SERVED_MODEL_H_
