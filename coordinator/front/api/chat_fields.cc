#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/step/sampling_limits.h"
#include "coordinator/front/api/call_plan.h"
#include "coordinator/front/api/chat_messages.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {
namespace {

// How hard to think: whether at all, and what a template reads.
absl::Status ReadEffort(FieldReader* fields, std::optional<bool>* thinking, Json* variables) {
  constexpr char kField[] = "reasoning_effort";
  std::string effort;
  RETURN_IF_ERROR(fields->String(kField, &effort));
  if (effort.empty()) return absl::OkStatus();
  *thinking = effort != "none";
  for (const auto& [name, level] : {std::pair{"none", ""},
                                    {"minimal", "low"},
                                    {"low", "low"},
                                    {"medium", "medium"},
                                    {"high", "high"},
                                    {"xhigh", "high"},
                                    {"max", "high"}}) {
    if (effort != name) continue;
    if (**thinking) (*variables)[kField] = level;
    return absl::OkStatus();
  }
  return WrongField(
      kField, absl::StrCat("expected none, minimal, low, medium, high, xhigh or max, found ", ShownValue(effort)));
}

absl::Status ReadTemplateVariables(FieldReader* fields, Json* variables) {
  constexpr char kField[] = "chat_template_kwargs";
  const Json* given = fields->Find(kField);
  if (given == nullptr) return absl::OkStatus();
  if (!given->is_object()) return WrongType(kField, "an object", *given);
  if (absl::Status status = CheckTemplateVariables(*given); !status.ok()) return WrongField(kField, status.message());
  variables->update(*given);
  return absl::OkStatus();
}

// What a template said of a conversation.
absl::Status TemplateFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition: return ApiStatus(ApiErrorCode::kChatTemplateUnusable, status.message());
    case absl::StatusCode::kResourceExhausted: return ApiStatus(ApiErrorCode::kTemplateLimit, status.message());
    default: return ApiStatus(ApiErrorCode::kTemplateError, status.message(), "messages");
  }
}

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

// max_completion_tokens, else max_tokens.
absl::Status ReadMaxTokens(FieldReader* fields, std::optional<int64_t>* out) {
  for (const char* field : {"max_tokens", "max_completion_tokens"}) {
    const Json* value = fields->Find(field);
    if (value == nullptr) continue;
    int64_t tokens = 0;
    RETURN_IF_ERROR(ReadInteger(field, *value, kMaxNewTokensRange, &tokens));
    *out = tokens;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RenderedConversation> ReadConversation(FieldReader* fields, const ServedModel& model, absl::Time now,
                                                      const PromptRoom& room) {
  const Json* given = fields->Find("messages");
  if (given == nullptr) return MissingField("messages");
  ASSIGN_OR_RETURN(const Json messages, ReadMessages(*given));
  ASSIGN_OR_RETURN(ToolFields tools, ReadTools(fields));
  Conversation conversation = {.messages = &messages};
  conversation.tools = &tools.tools;
  Json variables = Json::object();
  RETURN_IF_ERROR(ReadEffort(fields, &conversation.thinking, &variables));
  RETURN_IF_ERROR(ReadTemplateVariables(fields, &variables));
  conversation.variables = &variables;
  RETURN_IF_ERROR(fields->Bool("continue_final_message", &conversation.continue_final_message));
  if (model.chat == nullptr) {
    return ApiStatus(ApiErrorCode::kChatTemplateUnusable, "conversations are not answered here");
  }
  const absl::StatusOr<MarkedText> text = model.chat->Render(conversation, now);
  if (!text.ok()) return TemplateFailure(text.status());
  RenderedConversation rendered;
  rendered.text = text->text();
  auto tokens = model.tokenizer->EncodeMarkedUpTo(room.most_counted(), *text, /*add_bos=*/true);
  if (!tokens.has_value()) return room.TooLong();
  rendered.tokens = *std::move(tokens);
  rendered.ignored = std::move(tools.ignored);
  // A template that leaves them out has no error for it.
  if (!tools.tools.empty() && !model.chat->abilities(/*with_tools=*/true).tools) rendered.ignored.push_back("tools");
  if (!rendered.tokens.empty()) return rendered;
  return ApiStatus(ApiErrorCode::kTemplateError, "the chat template makes nothing of this conversation", "messages");
}

size_t PromptRoom::most_counted() const { return context_ <= 0 ? SIZE_MAX : 2 * static_cast<size_t>(most()); }

// Clients look for this form, whatever stands behind it.
absl::Status PromptRoom::TooLong(int64_t tokens, absl::string_view more) const {
  return ApiStatus(ApiErrorCode::kContextLengthExceeded,
                   absl::StrCat("prompt is too long: ", tokens, " tokens > ", most(), " maximum", more));
}

absl::Status PromptRoom::TooLong() const { return TooLong(2 * most() + 1, ", and more that were not counted"); }

absl::StatusOr<int64_t> PromptRoom::ForAnswer(int64_t prompt_tokens) const {
  if (context_ <= 0) return asked_.value_or(kMaxNewTokensRange.max);
  if (prompt_tokens > most()) return TooLong(prompt_tokens, "");
  const int64_t left = context_ - prompt_tokens;
  return std::min(asked_.value_or(left), left);
}

absl::Status ReadChatFields(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan) {
  RETURN_IF_ERROR(ReadChatLogprobs(fields, &plan->fields.sampling.logprobs));
  std::optional<int64_t> asked = model.chat_tokens;
  RETURN_IF_ERROR(ReadMaxTokens(fields, &asked));
  RETURN_IF_ERROR(CheckMinTokens(plan->fields, asked));
  const PromptRoom room(asked, context.context_tokens);
  ASSIGN_OR_RETURN(RenderedConversation conversation, ReadConversation(fields, model, context.now, room));
  CallPrompt prompt;
  prompt.tokens = std::move(conversation.tokens);
  ASSIGN_OR_RETURN(prompt.max_new_tokens, room.ForAnswer(static_cast<int64_t>(prompt.tokens.size())));
  plan->prompts.push_back(std::move(prompt));
  if (model.reasoning.parse) {
    plan->output_format = model.output_format;
  } else if (fields->Find("skip_special_tokens") == nullptr) {
    plan->fields.render_control = true;  // the markup that stays in the text is made of them
  }
  plan->prompt_end = OutputStart::After(conversation.text).prompt_end;
  plan->answer_ends = model.chat->answer_ends();
  plan->ignored.insert(plan->ignored.end(), conversation.ignored.begin(), conversation.ignored.end());
  return absl::OkStatus();
}

}  // namespace stagecoach
