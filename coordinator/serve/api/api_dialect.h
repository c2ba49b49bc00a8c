#ifndef STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_

// The APIs whose calls produce tokens. A new one is a file that ends with its ApiDialect, and its entry in
// kApiDialects; everything else visits that table. Also here: what such a file fills (CallPlan) and writes with
// (AnswerWriter).

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
#include "coordinator/text/output/output_format.h"
#include "proto/engine.pb.h"

namespace stagecoach {

class AnswerWriter;

struct ApiDialect {
  const char* name;       // "chat", in metrics
  const char* path;       // that calls are POSTed to
  const char* id_prefix;  // of the answer's id, before CallContext::id
  bool list_end;          // log-probabilities are given for the token that ended the answer, too
  // Reads what the API has of its own, and the prompts. `fields` is the body.
  absl::Status (*read)(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan);
  // `plan` outlives the writer.
  std::unique_ptr<AnswerWriter> (*write)(const CallPlan& plan);
  std::string (*error)(const ApiError& error);  // the body of an answer that failed
};

extern const ApiDialect kCompletionsApi, kChatApi;
inline constexpr const ApiDialect* kApiDialects[] = {&kCompletionsApi, &kChatApi};

struct CallPrompt {
  std::vector<TokenId> tokens;  // never empty
  int64_t max_new_tokens = 0;
  std::string text;  // with echo: what is put before the answer
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

// The form of an answer, as a stream of events or as one body. What is returned is to be sent now; bodies return
// nothing before End or Fail. For each choice, from 0: Begin, any number of Put, EndChoice; for the last of them that
// ends End instead. Not thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string Begin(size_t choice) = 0;
  virtual std::string Put(size_t choice, const AnswerPiece& piece) = 0;
  // A token came that gives no text now.
  virtual std::string PutToken(size_t choice) = 0;
  // How far a choice's prompt is.
  virtual std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) = 0;
  virtual std::string EndChoice(size_t choice, const std::string& finish_reason) = 0;
  virtual std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) = 0;
  // The answer cannot go on: its last bytes.
  virtual std::string Fail(const ApiError& error) = 0;
};

// What a choice looks like in answers of OpenAI's form.
struct OpenAiForm {
  const char* stream_object;  // what the events of a stream call themselves
  const char* body_object;
  Json (*first)(size_t choice);  // in the first event of a stream; null: there is none before the first piece
  // In an event: one delta, or nothing new where that is null.
  Json (*part)(const CallPlan& plan, size_t choice, const OutputDelta* delta, Json logprobs, Json finish_reason);
  // In a body.
  Json (*whole)(const CallPlan& plan, size_t choice, const std::string& content, const std::string& reasoning,
                Json logprobs, const std::string& finish_reason);
  // Appends tokens to `logprobs`, which is null before the first.
  void (*list)(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs);
};

// Of streams, "data: {id, object, created, model, choices, usage}" and then [DONE], or an event with the error and
// nothing after it; and of bodies with the same members. All outlive the writer.
std::unique_ptr<AnswerWriter> WriteOpenAi(const OpenAiForm& form, const CallPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_API_DIALECT_H_
