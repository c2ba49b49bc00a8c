#ifndef STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_

// The APIs whose calls produce tokens. A new one is a file with its ApiDialect, and an entry in kApiDialects, which all
// else visits. Also here: what such a file fills (CallPlan), and what writes the answer (AnswerWriter).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

// Answers have OpenAI's form: a stream is events "data: {id, object, created, model, choices, usage}" and then [DONE],
// or an event with the error and nothing after it; a body has the same members. ErrorBody is the form of a failure.
struct ApiDialect {
  const char* name;       // "chat", in metrics
  const char* path;       // that calls are POSTed to
  const char* id_prefix;  // of the answer's id, before CallContext::id
  bool list_end;          // log-probabilities are given for the token that ended the answer, too
  // Reads what the API has of its own, and the prompts. `fields` is the body.
  absl::Status (*read)(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan);

  const char* stream_object;  // the `object` of a stream's events
  const char* body_object;
  Json (*first)(size_t choice);  // in the first event of a stream; null: there is none before the first piece
  // A choice in an event: one delta, or nothing new where that is null.
  Json (*part)(const CallPlan& plan, size_t choice, const OutputDelta* delta, Json logprobs, Json finish_reason);
  // A choice in a body.
  Json (*whole)(const CallPlan& plan, size_t choice, const std::string& content, const std::string& reasoning,
                Json logprobs, const std::string& finish_reason);
  // Appends tokens to `logprobs`, which is null before the first.
  void (*list)(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs);
};

extern const ApiDialect kCompletionsApi, kChatApi;
inline constexpr const ApiDialect* kApiDialects[] = {&kCompletionsApi, &kChatApi};

struct CallPrompt {
  std::vector<TokenId> tokens;  // never empty
  int64_t max_new_tokens = 0;
  int64_t conversation_tokens = -1;  // see GenerationRequest
  std::string text;                  // with echo: what is put before the answer
};

// What the body of a call asks for, once it is read: all that it takes to run it and to write its answer.
struct CallPlan {
  const ApiDialect* api = nullptr;
  const ServedModel* model = nullptr;
  std::string id;
  int64_t created = 0;
  std::string fingerprint;
  GenerationFields fields;
  std::vector<CallPrompt> prompts;  // each is answered fields.n times
  bool echo = false;
  // Absent: the text is the answer as it is.
  std::optional<OutputFormat> output_format;
  std::string prompt_end;                // a piece of the prompt's text, for the parser
  std::vector<std::string> answer_ends;  // texts before which every answer ends, whatever the call says
  std::vector<std::string> ignored;

  size_t choices() const { return prompts.size() * static_cast<size_t>(fields.n); }
  bool lists_tokens() const { return fields.sampling.logprobs >= 0; }
};

// What has become certain of a choice.
struct AnswerPiece {
  std::vector<OutputDelta> deltas;  // no two neighbours of one kind; none is empty
  std::vector<ListedToken> tokens;  // those whose last byte these deltas release
  bool empty() const { return deltas.empty() && tokens.empty(); }
};

struct AnswerTotals {
  ApiCall::Usage usage;
  bool timed = false;        // the times are wanted
  int64_t prompt_us = 0;     // the longest time that the engine was at a prompt
  int64_t predicted_us = 0;  // from the first token of any choice to the last of any
};

// Writes an answer as a stream of events or as one body. Each call returns what is to be sent now; bodies return
// nothing before End or Fail. For each choice, from 0: Begin, Puts, EndChoice; End for the last. Not thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string Begin(size_t /*choice*/) { return ""; }
  virtual std::string Put(size_t choice, const AnswerPiece& piece) = 0;
  virtual std::string PutToken(size_t /*choice*/) { return ""; }  // a token that gives no text now
  virtual std::string PutProgress(size_t /*choice*/, const pb::PrefillProgress&) { return ""; }  // of the prompt
  virtual std::string EndChoice(size_t choice, const std::string& finish_reason) = 0;
  virtual std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) = 0;
  virtual std::string Fail(const ApiError& error) = 0;  // the answer cannot go on: its last bytes
};
std::unique_ptr<AnswerWriter> MakeAnswerWriter(const CallPlan& plan);  // `plan` outlives it

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
