#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_CHOICE_WRITER_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_CHOICE_WRITER_H_

// Answers in the form of OpenAI's completions and chat completions: a stream is events
// "data: {id, object, created, model, choices, usage}" and then [DONE], or an event with the error and nothing after
// it; a body has the same members.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation/tools.h"

namespace stagecoach {

// A call of a tool, or a piece of one.
struct ChoiceCall {
  size_t index = 0;  // of the choice's calls
  std::string id, name, arguments;
  const OfferedTool* tool = nullptr;  // null: the model invented it
};

// All that was said in a choice.
struct WholeChoice {
  std::string content, reasoning;
  std::vector<ChoiceCall> calls;
  std::string finish_reason;
  Json logprobs;
};

// In what the two differ.
struct ChoiceForm {
  const char* stream_object;  // the `object` of a stream's events
  const char* body_object;
  Json (*first)(size_t choice);  // in the first event of a stream; null: there is none before the first piece
  // A choice in an event: one delta, or nothing new where that is null. A part of a call has `call`, whose members are
  // those that this delta brings.
  Json (*part)(const CallPlan& plan, size_t choice, const OutputDelta* delta, const ChoiceCall& call, Json logprobs,
               Json finish_reason);
  // A choice in a body.
  Json (*whole)(const CallPlan& plan, size_t choice, WholeChoice said);
  // Appends tokens to `logprobs`, which is null before the first.
  void (*list)(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs);
};

// What is pointed to outlives it.
std::unique_ptr<AnswerWriter> MakeChoiceWriter(const ChoiceForm& form, const CallPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_CHOICE_WRITER_H_
