#include "coordinator/serve/api/conversation/conversation.h"

#include <memory>
#include <set>
#include <utility>

#include "common/base/status_macros.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {
namespace {

// What a template said of a conversation.
absl::Status TemplateFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition: return ApiStatus(ApiErrorCode::kChatTemplateUnusable, status.message());
    case absl::StatusCode::kResourceExhausted: return ApiStatus(ApiErrorCode::kTemplateLimit, status.message());
    default: return ApiStatus(ApiErrorCode::kTemplateError, status.message(), "messages");
  }
}

std::set<std::string> CallIdsOf(const Json& messages) {
  std::set<std::string> ids;
  for (const Json& message : messages) {
    const Json* calls = Member(message, "tool_calls");
    if (calls == nullptr) continue;
    for (const Json& call : *calls) ids.insert(TextOf(call, "id"));
  }
  return ids;
}

// How the answer is read.
void PlanAnswer(const ChatRequest& request, const RenderedConversation& conversation, FieldReader* fields,
                const ServedModel& model, CallPlan* plan) {
  const bool tools = !request.tools.empty();
  const OutputFormat format = tools ? model.tool_format : model.output_format;
  const bool calls = tools && model.parse_calls && format != OutputFormat::kPlain;
  if (model.reasoning.parse || calls) plan->output_format = format;
  const bool has_markup = !model.reasoning.parse || (tools && !calls);  // that stays in the text
  if (has_markup && fields->Find("skip_special_tokens") == nullptr) plan->fields.render_control = true;
  if (calls) {
    plan->output_tools = std::make_shared<const OutputTools>(request.tools.ForTemplate());
    plan->call_ids = CallIdsOf(request.messages);
  }
  plan->one_call = calls && !request.tools.parallel;
  plan->prompt_end = OutputStart::After(conversation.text).prompt_end;
  plan->answer_ends = model.chat->answer_ends();
  plan->continues = request.continue_final_message;
}

// What of the conversation means nothing here.
void NoteIgnored(const ChatRequest& request, const ServedModel& model, CallPlan* plan) {
  const ToolSet& tools = request.tools;
  plan->skipped.insert(plan->skipped.end(), tools.skipped.begin(), tools.skipped.end());
  plan->skipped.insert(plan->skipped.end(), request.skipped.begin(), request.skipped.end());
  // A template that leaves them out has no error for it.
  if (!tools.empty() && !model.chat->abilities(/*with_tools=*/true).tools) plan->ignored.push_back("tools");
}

}  // namespace

absl::StatusOr<RenderedConversation> RenderConversation(const ChatRequest& request, const ServedModel& model,
                                                        absl::Time now, const PromptRoom& room) {
  if (model.chat == nullptr) {
    return ApiStatus(ApiErrorCode::kChatTemplateUnusable, "conversations are not answered here");
  }
  const Json tools = request.tools.ForTemplate();
  Conversation conversation = {.messages = &request.messages};
  conversation.tools = &tools;
  conversation.continue_final_message = request.continue_final_message;
  conversation.thinking = request.thinking;
  conversation.variables = &request.variables;
  const absl::StatusOr<MarkedText> text = model.chat->Render(conversation, now);
  if (!text.ok()) return TemplateFailure(text.status());
  RenderedConversation rendered;
  rendered.text = text->text();
  auto tokens = model.tokenizer->EncodeMarkedUpTo(room.most_counted(), *text, /*add_bos=*/true);
  if (!tokens.has_value()) return room.TooLong();
  rendered.tokens = *std::move(tokens);
  if (model.recurrent) {
    const auto all = static_cast<int64_t>(rendered.tokens.size());
    rendered.conversation_tokens = model.chat->TokensBeforeAnswer(conversation, now, *text, all);
  }
  if (!rendered.tokens.empty()) return rendered;
  return ApiStatus(ApiErrorCode::kTemplateError, "the chat template makes nothing of this conversation", "messages");
}

absl::StatusOr<int64_t> CountPromptTokens(const ChatRequest& request, const ServedModel& model,
                                          const CallContext& context) {
  const int64_t most = context.context_tokens > 0 ? context.context_tokens : static_cast<int64_t>(kMostTextTokens);
  const PromptRoom room(/*asked=*/1, most);
  ASSIGN_OR_RETURN(const RenderedConversation conversation, RenderConversation(request, model, context.now, room));
  return static_cast<int64_t>(conversation.tokens.size());
}

absl::Status PlanConversation(ChatRequest request, std::optional<int64_t> asked, FieldReader* fields,
                              const ServedModel& model, const CallContext& context, CallPlan* plan) {
  RETURN_IF_ERROR(CheckMinTokens(plan->fields, asked));
  const PromptRoom room(asked, context.context_tokens);
  ASSIGN_OR_RETURN(RenderedConversation conversation, RenderConversation(request, model, context.now, room));
  PlanAnswer(request, conversation, fields, model, plan);
  NoteIgnored(request, model, plan);
  CallPrompt prompt;
  prompt.tokens = std::move(conversation.tokens);
  prompt.conversation_tokens = conversation.conversation_tokens;
  ASSIGN_OR_RETURN(prompt.max_new_tokens, room.ForAnswer(static_cast<int64_t>(prompt.tokens.size())));
  prompt.fills_context = prompt.max_new_tokens != asked;
  plan->prompts.push_back(std::move(prompt));
  plan->tools = std::make_shared<const ToolSet>(std::move(request.tools));
  return absl::OkStatus();
}

}  // namespace stagecoach
