// OpenAI's Responses: answers to conversations that come whole with every request, for nothing is stored.

#include "coordinator/serve/api/dialects/responses.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation/chat_request.h"
#include "coordinator/serve/api/conversation/conversation.h"
#include "coordinator/serve/api/dialects/responses_input.h"
#include "coordinator/serve/api/dialects/responses_writer.h"

namespace stagecoach {
namespace {

constexpr RefusedField kRefusedResponsesFields[] = {
    {"previous_response_id", "\"\"", "responses are not stored here; send the whole conversation as input"},
    {"conversation", "\"\"", "conversations are not stored here; send the whole conversation as input"},
    {"background", "false", "an answer lasts as long as its request; send stream, and read it to its end"},
    {"prompt", "null", "prompts are not stored here; send their text as instructions and input"},
};

// include and top_logprobs: lists of tokens, which only the former asks for.
absl::Status ReadIncluded(FieldReader* fields, GenerationFields* out) {
  int32_t top = 0;
  RETURN_IF_ERROR(fields->Number("top_logprobs", kTopLogprobsRange, &top));
  bool wanted = false;
  if (const Json* include = fields->Find("include"); include != nullptr) {
    if (!include->is_array()) return WrongType("include", "a list of strings", *include);
    for (const Json& name : *include) {
      if (!name.is_string()) return WrongType("include", "a list of strings", name);
      wanted = wanted || name == "message.output_text.logprobs";
    }
  }
  if (wanted) out->sampling.logprobs = top;
  if (top > 0 && !wanted) out->ignored.push_back("top_logprobs");
  return absl::OkStatus();
}

// reasoning.effort; `effort` is null without it.
absl::Status ReadEffort(FieldReader* fields, ChatRequest* request, Json* effort) {
  ASSIGN_OR_RETURN(const Json* reasoning, fields->FindObject("reasoning"));
  if (reasoning == nullptr || Member(*reasoning, "effort") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(*effort, StringMember("reasoning", *reasoning, "effort"));
  return SetEffort("reasoning.effort", effort->get_ref<const std::string&>(), request);
}

// The conversation and all that decides its prompt.
absl::StatusOr<ChatRequest> ReadResponsesRequest(FieldReader* fields, Json* effort) {
  ChatRequest request;
  RETURN_IF_ERROR(ReadResponsesInput(fields, &request));
  RETURN_IF_ERROR(ReadEffort(fields, &request, effort));
  RETURN_IF_ERROR(ReadTemplateVariables(fields, &request));
  return request;
}

// What the response repeats of its request, once that is known to be right.
absl::StatusOr<Json> RepeatedMembers(FieldReader* fields, Json effort) {
  ASSIGN_OR_RETURN(const Json* metadata, fields->FindObject("metadata"));
  const Json* text = fields->Find("text");
  const Json* format = text == nullptr ? nullptr : Member(*text, "format");
  const auto given = [fields](const char* name, Json otherwise) {
    const Json* value = fields->Find(name);
    if (value != nullptr) otherwise = *value;
    return otherwise;
  };
  return Json{{"instructions", given("instructions", nullptr)},
              {"max_output_tokens", given("max_output_tokens", nullptr)},
              {"metadata", metadata == nullptr ? Json::object() : *metadata},
              {"parallel_tool_calls", given("parallel_tool_calls", true)},
              {"reasoning", {{"effort", std::move(effort)}, {"summary", nullptr}}},
              {"text", {{"format", format == nullptr ? Json{{"type", "text"}} : *format}}},
              {"tool_choice", given("tool_choice", "auto")},
              {"tools", given("tools", Json::array())}};
}

absl::Status ReadResponses(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  fields->Find("truncation");  // a prompt that is too long is refused in any case
  RETURN_IF_ERROR(ReadIncluded(fields, &plan->fields));
  std::optional<int64_t> asked = model.chat_tokens;
  RETURN_IF_ERROR(ReadMaxTokens(fields, {"max_output_tokens"}, &asked));
  Json effort;
  ASSIGN_OR_RETURN(ChatRequest request, ReadResponsesRequest(fields, &effort));
  ASSIGN_OR_RETURN(Json repeated, RepeatedMembers(fields, std::move(effort)));
  plan->repeated = std::make_shared<const Json>(std::move(repeated));
  return PlanConversation(std::move(request), asked, fields, model, context, plan);
}

absl::StatusOr<Json> CountInputTokens(absl::string_view text, const ServedModel& model, const CallContext& context) {
  ASSIGN_OR_RETURN(const Json body, ParseBody(text));
  FieldReader fields(&body);
  GenerationFields unused;
  RETURN_IF_ERROR(ReadGenerationFields(&fields, kResponsesApi.groups, model, context, &unused));
  Json effort;
  ASSIGN_OR_RETURN(const ChatRequest request, ReadResponsesRequest(&fields, &effort));
  ASSIGN_OR_RETURN(const int64_t tokens, CountPromptTokens(request, model, context));
  return Json{{"object", "response.input_tokens"}, {"input_tokens", tokens}};
}

}  // namespace

BodyAnswer CountInputTokensBody(absl::string_view body, const ServedModel& model, const CallContext& context) {
  const absl::StatusOr<Json> counted = CountInputTokens(body, model, context);
  if (!counted.ok()) return {.body = "", .error = ApiErrorOf(counted.status())};
  return {.body = CompactJson(*counted), .error = std::nullopt};
}

const ApiDialect kResponsesApi = {.name = "responses",
                                  .path = "/v1/responses",
                                  .id_prefix = "resp_",
                                  .call_prefix = "call_",
                                  .list_end = false,
                                  .groups = {.penalties = false,
                                             .ends = false,
                                             .choices = false,
                                             .stream_options = false,
                                             .form = FormSpelling::kTextFormat,
                                             .refused = kRefusedResponsesFields},
                                  .read = ReadResponses,
                                  .make_writer = MakeResponsesWriter,
                                  .error_body = ErrorBody,
                                  .ping = kPingComment};

}  // namespace stagecoach
