#ifndef STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_
#define STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_

// The form of an answer: one for each API, as a stream of events and as one body. What is returned is what is to be
// sent now; bodies return nothing before End.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/front/api/answer_text.h"
#include "coordinator/front/api/api_call.h"
#include "coordinator/front/api/call_plan.h"
#include "coordinator/front/json.h"
#include "coordinator/text/tokenizer.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Not thread-safe. For each choice, from 0: Begin, any number of Put, EndChoice; then End once.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual std::string Begin(size_t choice) = 0;
  virtual std::string Put(size_t choice, const AnswerPiece& piece) = 0;
  // How far a choice's prompt is.
  virtual std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) = 0;
  virtual std::string EndChoice(size_t choice, const std::string& finish_reason) = 0;
  virtual std::string End(const ApiCall::Usage& usage) = 0;
};

// `plan` outlives the writer.
std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan);
std::unique_ptr<AnswerWriter> MakeCompletionWriter(const CallPlan& plan);

// {"id", "object", "created", "model", "system_fingerprint"}
Json AnswerHead(const CallPlan& plan, absl::string_view id_prefix, absl::string_view object);
Json UsageJson(const ApiCall::Usage& usage);

// The events of a stream of OpenAI's form: "data: {head, "choices": [...], "usage"}", and [DONE].
class ChunkStream {
 public:
  ChunkStream(const Json& head, bool include_usage);
  std::string Event(const Json& choice) const;
  // The same with "prompt_progress".
  std::string Event(const Json& choice, const pb::PrefillProgress& progress) const;
  std::string End(const ApiCall::Usage& usage) const;

 private:
  std::string start_;  // up to the choices
  bool include_usage_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_
