// OpenAI's chat completions: answers to conversations.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/conversation/chat_messages.h"
#include "coordinator/serve/api/conversation/conversation.h"
#include "coordinator/serve/api/dialects/choice_writer.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/serve/api/token_text.h"

namespace stagecoach {
namespace {

// logprobs and top_logprobs.
absl::Status ReadChatLogprobs(FieldReader* fields, int32_t* out) {
  bool wanted = false;
  RETURN_IF_ERROR(fields->Bool("logprobs", &wanted));
  int32_t top = 0;
  RETURN_IF_ERROR(fields->Number("top_logprobs", kTopLogprobsRange, &top));
  if (top > 0 && !wanted) return WrongField("top_logprobs", "is there without 'logprobs': true, expected both");
  *out = wanted ? top : -1;
  return absl::OkStatus();
}

// The text of `prediction`, whose parts are put together.
absl::StatusOr<std::string> PredictedText(const Json& prediction) {
  if (!prediction.is_object()) return WrongType("prediction", "an object with type and content", prediction);
  ASSIGN_OR_RETURN(const std::string type, StringMember("prediction", prediction, "type"));
  if (type != "content") {
    return Misplaced("prediction.type", absl::StrCat("expected content, found ", ShownValue(type)));
  }
  const Json* content = Member(prediction, "content");
  if (content == nullptr) return MissingAt("prediction.content");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return MisplacedType("prediction.content", "a string or a list of parts", *content);
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string place = absl::StrCat("prediction.content[", i, "]");
    const Json& part = (*content)[i];
    if (!part.is_object()) return MisplacedType(place, "an object with type and text", part);
    ASSIGN_OR_RETURN(const std::string part_type, StringMember(place, part, "type"));
    if (part_type != "text") return RefusePart(absl::StrCat(place, ".type"), part_type);
    ASSIGN_OR_RETURN(const std::string part_text, StringMember(place, part, "text"));
    text += part_text;
  }
  return text;
}

// As answers are made of them: no control token stands in their text.
absl::Status ReadPrediction(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  const Json* given = fields->Find("prediction");
  if (given == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, PredictedText(*given));
  const size_t most = context.context_tokens > 0 ? static_cast<size_t>(context.context_tokens) : kMostTextTokens;
  auto tokens = model.tokenizer->EncodeUpTo(most, text, /*add_special=*/false, /*parse_special=*/false);
  if (!tokens.has_value()) {
    return WrongField("prediction",
                      absl::StrCat("has more than ", most, " tokens, expected at most that; leave out what the ",
                                   "answer will not repeat"));
  }
  if (!tokens->empty()) plan->prediction = std::make_shared<const std::vector<TokenId>>(*std::move(tokens));
  return absl::OkStatus();
}

absl::Status ReadChat(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  RETURN_IF_ERROR(ReadChatLogprobs(fields, &plan->fields.sampling.logprobs));
  std::optional<int64_t> asked = model.chat_tokens;
  RETURN_IF_ERROR(ReadMaxTokens(fields, {"max_tokens", "max_completion_tokens"}, &asked));
  ASSIGN_OR_RETURN(ChatRequest request, ReadChatRequest(fields));
  RETURN_IF_ERROR(ReadPrediction(fields, model, context, plan));
  return PlanConversation(std::move(request), asked, fields, model, context, plan);
}

void ListChatTokens(const CallPlan& plan, const std::vector<ListedToken>& tokens, Json* logprobs) {
  if (logprobs->is_null()) *logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
  for (const ListedToken& token : tokens) {
    (*logprobs)["content"].push_back(TokenJson(*plan.model->tokenizer, token));
  }
}

void SetReasoning(const ReasoningOptions& options, const std::string& text, Json* message) {
  if (options.as_reasoning_content) (*message)["reasoning_content"] = text;
  if (options.as_reasoning) (*message)["reasoning"] = text;
}

Json DeltaJson(size_t choice, Json delta, Json logprobs, Json finish_reason) {
  return {{"index", choice},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish_reason)}};
}

Json FirstChatPart(size_t choice) {
  return DeltaJson(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

// {"function": {"name", "arguments"}}, under the client's names. Only the first part of a call has a name.
void SetCall(const ChoiceCall& call, Json* json) {
  const bool custom = call.tool != nullptr && call.tool->kind == OfferedTool::Kind::kCustom;
  Json called = Json::object();
  if (!call.name.empty()) called["name"] = call.tool == nullptr ? call.name : call.tool->own_name;
  if (!call.name.empty() && call.tool != nullptr && !call.tool->name_space.empty()) {
    called["namespace"] = call.tool->name_space;
  }
  called[custom ? "input" : "arguments"] = call.arguments;
  const char* type = custom ? "custom" : "function";
  if (!call.id.empty()) {
    (*json)["id"] = call.id;
    (*json)["type"] = type;
  }
  (*json)[type] = std::move(called);
}

Json ChatPart(const CallPlan& plan, size_t choice, const OutputDelta* delta, const ChoiceCall& call, Json logprobs,
              Json finish_reason) {
  const OutputKind kind = delta == nullptr ? OutputKind::kContent : delta->kind;
  // A string in every delta, as clients want it.
  Json json = {{"content", delta != nullptr && kind == OutputKind::kContent ? delta->text : ""}};
  if (kind == OutputKind::kReasoning) {
    SetReasoning(plan.model->reasoning, delta->text, &json);
  } else if (kind != OutputKind::kContent) {
    Json part = {{"index", call.index}};
    SetCall(call, &part);
    json["tool_calls"] = Json::array({std::move(part)});
  }
  return DeltaJson(choice, std::move(json), std::move(logprobs), std::move(finish_reason));
}

Json WholeChat(const CallPlan& plan, size_t choice, WholeChoice said) {
  Json message = {{"role", "assistant"}, {"content", said.content}, {"refusal", nullptr}};
  if (!said.reasoning.empty()) SetReasoning(plan.model->reasoning, said.reasoning, &message);
  if (!said.calls.empty()) {
    if (said.content.empty()) message["content"] = nullptr;
    Json calls = Json::array();
    for (const ChoiceCall& call : said.calls) SetCall(call, &calls.emplace_back(Json::object()));
    message["tool_calls"] = std::move(calls);
  }
  return {{"index", choice},
          {"finish_reason", said.finish_reason},
          {"logprobs", std::move(said.logprobs)},
          {"message", std::move(message)}};
}

constexpr ChoiceForm kChatForm = {.stream_object = "chat.completion.chunk",
                                  .body_object = "chat.completion",
                                  .first = FirstChatPart,
                                  .part = ChatPart,
                                  .whole = WholeChat,
                                  .list = ListChatTokens};

std::unique_ptr<AnswerWriter> MakeChatWriter(const CallPlan& plan) { return MakeChoiceWriter(kChatForm, plan); }

}  // namespace

const ApiDialect kChatApi = {.name = "chat",
                             .path = "/v1/chat/completions",
                             .id_prefix = "chatcmpl-",
                             .call_prefix = "call_",
                             .list_end = false,
                             .groups = {.refused = kRefusedChoiceFields},
                             .read = ReadChat,
                             .make_writer = MakeChatWriter,
                             .error_body = ErrorBody,
                             .ping = kPingComment};

}  // namespace stagecoach
