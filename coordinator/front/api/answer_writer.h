#ifndef STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_
#define STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_

// The form of an answer: one for each API, as a stream of events and as one body. What is returned is what is to be
// sent now; bodies return nothing before End.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/front/api/answer_text.h"
#include "coordinator/front/api/api_call.h"
#include "coordinator/front/api/call_plan.h"
#include "coordinator/text/tokenizer.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Of a call with several choices: the longest time that the engine was at a prompt, and from the first token of any
// choice to the last of any.
struct AnswerTimes {
  int64_t prompt_us = 0;
  int64_t predicted_us = 0;
};

struct AnswerTotals {
  ApiCall::Usage usage;
  std::optional<AnswerTimes> times;  // where they are wanted
};

// Not thread-safe. For each choice, from 0: Begin, any number of Put, EndChoice; for the last of them that ends End
// instead.
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
};

// `plan` outlives the writer.
std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan);
std::unique_ptr<AnswerWriter> MakeCompletionWriter(const CallPlan& plan);

// How the answers of an API call themselves.
struct AnswerNames {
  const char* id_prefix;
  const char* object;
};

// Streams of OpenAI's form: events "data: {id, object, created, model, choices, usage}", then [DONE]. What a choice
// looks like in them is for the derived class.
class StreamWriter : public AnswerWriter {
 public:
  std::string PutToken(size_t choice) final;
  std::string PutProgress(size_t choice, const pb::PrefillProgress& progress) final;
  std::string EndChoice(size_t choice, const std::string& finish_reason) final;
  std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) final;

 protected:
  StreamWriter(const CallPlan& plan, AnswerNames names);
  // A choice that says nothing new, but why it ended where it did.
  virtual Json EmptyChoice(size_t choice, Json finish_reason) const = 0;
  // An event with this one; `more`: further members of the event, each behind a comma.
  std::string Event(const Json& choice, absl::string_view more = "") const;

  const CallPlan& plan_;

 private:
  std::string start_;  // of each event, up to the choices
};

// Bodies of that form.
class BodyWriter : public AnswerWriter {
 public:
  std::string Begin(size_t) final { return ""; }
  std::string PutToken(size_t) final { return ""; }
  std::string PutProgress(size_t, const pb::PrefillProgress&) final { return ""; }
  std::string EndChoice(size_t choice, const std::string& finish_reason) final;
  std::string End(size_t choice, const std::string& finish_reason, const AnswerTotals& totals) final;

 protected:
  BodyWriter(const CallPlan& plan, AnswerNames names);
  // All that was put of a choice; once.
  virtual Json TakeChoice(size_t choice, const std::string& finish_reason) = 0;

  const CallPlan& plan_;

 private:
  const AnswerNames names_;
  std::vector<std::string> finish_reasons_;  // by choice
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_ANSWER_WRITER_H_
