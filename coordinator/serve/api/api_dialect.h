#ifndef STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_

// The APIs whose calls produce tokens. A new one is a file in dialects/ with its ApiDialect, and an entry in
// kApiDialects, which all else visits. Also here: what such a file fills (CallPlan), and what writes the answer
// (AnswerWriter).

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/json/json.h"
#include "coordinator/answer/answer.h"
#include "coordinator/serve/api/api_call.h"
#include "coordinator/serve/api/api_error.h"
#include "coordinator/serve/api/generation_fields.h"
#include "coordinator/serve/api/served_model.h"
#include "coordinator/text/output/output_parser.h"
#include "proto/engine.pb.h"

namespace stagecoach {

class AnswerWriter;
class ToolSet;

struct ApiDialect {
  const char* name;         // "chat", in metrics
  const char* path;         // that calls are POSTed to
  const char* id_prefix;    // of the answer's id, before CallContext::id
  const char* call_prefix;  // of the ids of a model's calls, see MakeCallId
  bool list_end;            // log-probabilities are given for the token that ended the answer, too
  FieldGroups groups;
  // Reads what the API has of its own, and the prompts. `fields` is the body.
  absl::Status (*read)(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan);
  std::unique_ptr<AnswerWriter> (*make_writer)(const CallPlan& plan);  // `plan` outlives it
  ErrorWriter* error_body;                                             // of a call that has no answer, or none yet
  const char* ping;  // what a stream that has nothing to say sends, so that its client waits on
};

extern const ApiDialect kCompletionsApi, kChatApi, kResponsesApi, kMessagesApi;
inline constexpr const ApiDialect* kApiDialects[] = {&kCompletionsApi, &kChatApi, &kResponsesApi, &kMessagesApi};

// The usual ApiDialect::ping: a comment, which readers of events skip.
inline constexpr char kPingComment[] = ":\n\n";

struct CallPrompt {
  std::vector<TokenId> tokens;  // never empty, until the call's requests are taken
  int64_t max_new_tokens = 0;
  bool fills_context = false;        // max_new_tokens is what the context leaves: less than was asked for, or not asked
  int64_t conversation_tokens = -1;  // see GenerationRequest
  std::string text;                  // with echo: what is put before the answer
};

// What the body of a call asks for, once it is read: all that it takes to run it and to write its answer.
struct CallPlan {
  const ApiDialect* api = nullptr;
  const ServedModel* model = nullptr;
  std::string id, request_id;  // of CallContext
  int64_t created = 0;
  std::string fingerprint;
  GenerationFields fields;
  std::vector<CallPrompt> prompts;  // each is answered fields.n times
  int64_t prompt_tokens = 0;        // of all prompts
  bool echo = false;

  // Of a conversation.
  std::optional<OutputFormat> output_format;        // absent: the text is the answer as it is
  std::string prompt_end;                           // a piece of the prompt's text, for the parser
  std::vector<std::string> answer_ends;             // texts before which every answer ends, whatever the call says
  std::shared_ptr<const ToolSet> tools;             // never null; of other calls it is
  std::shared_ptr<const OutputTools> output_tools;  // null: no calls are read
  std::set<std::string> call_ids;                   // of the calls in the conversation: new ones have others
  bool one_call = false;                            // the answer ends after its first call
  bool continues = false;                           // the prompt ends within the assistant's message
  std::shared_ptr<const Json> repeated;             // members of the body that the API's answers repeat; may be null

  std::shared_ptr<const std::string> grammar;              // see GenerationRequest; null: there is none
  std::shared_ptr<const std::vector<TokenId>> prediction;  // "

  std::vector<std::string> ignored;  // fields that mean nothing here
  std::vector<std::string> skipped;  // tools and parts of the conversation that were left out

  size_t choices() const { return prompts.size() * static_cast<size_t>(fields.n); }
  bool lists_tokens() const { return fields.sampling.logprobs >= 0; }
  // For what parses the answer, and what binds it.
  OutputStart output_start() const {
    return {.prompt_end = prompt_end,
            .reasoning_is_text = !model->reasoning.parse,
            .content_has_form = fields.form.has_value()};
  }
};

// What has become certain of a choice. A call is kCallStart, any number of kCallArguments, kCallEnd. kCallStart always
// has a call_id, which no other call of the choice or the conversation has. Its name is the one that the model used:
// CallPlan::tools knows what the client calls it, if it is one of its tools. Of a custom tool the arguments are its
// input.
struct AnswerPiece {
  std::vector<OutputDelta> deltas;  // no two neighbours of one kind; none is empty but kCallEnd
  std::vector<ListedToken> tokens;  // those whose last byte these deltas release
  bool empty() const { return deltas.empty() && tokens.empty(); }
};

// Why a choice ended.
struct AnswerEnd {
  enum class Reason { kStop, kLength, kToolCalls };
  Reason reason = Reason::kStop;
  std::string stop_string;    // kStop: the client's own that ended it; empty: the model did
  bool context_full = false;  // kLength: the context was full, and not what was asked for
};

struct AnswerTotals {
  ApiCall::Usage usage;
  bool timed = false;        // the times are wanted
  int64_t queue_us = 0;      // the longest time that a prompt waited at the engine
  int64_t prompt_us = 0;     // the longest time that the engine was at one
  int64_t predicted_us = 0;  // from the first token of any choice to the last of any
};

// Writes an answer, as a stream of events if plan.fields.stream, else as one body. Each call returns what is to be sent
// now; bodies return nothing before End or Fail. For each choice, from 0: Begin, Puts, EndChoice; End for the last. Not
// thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string Begin(size_t /*choice*/) { return ""; }
  virtual std::string Put(size_t choice, const AnswerPiece& piece) = 0;
  virtual std::string PutToken(size_t /*choice*/) { return ""; }  // a token that gives no text now
  virtual std::string PutProgress(size_t /*choice*/, const pb::PrefillProgress&) { return ""; }  // of the prompt
  // What a stream says after kIdleTime without anything, beside its pings.
  virtual std::string Idle() { return ""; }
  virtual std::string EndChoice(size_t choice, const AnswerEnd& end) = 0;
  virtual std::string End(size_t choice, const AnswerEnd& end, const AnswerTotals& totals) = 0;
  virtual std::string Fail(const ApiError& error) = 0;  // the answer cannot go on: its last bytes
};

// What answers tell of the time they took, under llama.cpp's names, and streams of the prompt's progress.
Json TimingsJson(const AnswerTotals& totals);
Json ProgressJson(const pb::PrefillProgress& progress);

// The id of a choice's call, both from 0, or of another part of an answer: `prefix` and 24 letters and digits, which
// depend on the plan's id, the choice, the index and the prefix alone.
std::string MakeCallId(absl::string_view prefix, absl::string_view plan_id, size_t choice, size_t index);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
