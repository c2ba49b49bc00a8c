#include "coordinator/serve/api/dialects/messages.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation/conversation.h"
#include "coordinator/serve/api/dialects/messages_request.h"
#include "coordinator/serve/api/dialects/messages_writer.h"

namespace stagecoach {
namespace {

absl::Status ReadMessagesCall(FieldReader* fields, const ServedModel& model, const CallContext& context,
                              CallPlan* plan) {
  std::optional<int64_t> asked;
  RETURN_IF_ERROR(ReadMaxTokens(fields, {"max_tokens"}, &asked));
  if (!asked.has_value()) return MissingField("max_tokens");
  ASSIGN_OR_RETURN(ChatRequest request, ReadMessagesRequest(fields, model.keep_client_stamp, &plan->ignored));
  return PlanConversation(std::move(request), asked, fields, model, context, plan);
}

absl::StatusOr<int64_t> CountMessagesTokens(absl::string_view text, const ServedModel& model,
                                            const CallContext& context) {
  ASSIGN_OR_RETURN(const Json body, ParseBody(text));
  FieldReader fields(&body);
  GenerationFields unused;
  RETURN_IF_ERROR(ReadGenerationFields(&fields, kMessagesApi.groups, model, context, &unused));
  ASSIGN_OR_RETURN(const ChatRequest request, ReadMessagesRequest(&fields, model.keep_client_stamp, &unused.ignored));
  return CountPromptTokens(request, model, context);
}

}  // namespace

BodyAnswer CountTokensBody(absl::string_view body, const ServedModel& model, const CallContext& context) {
  const absl::StatusOr<int64_t> counted = CountMessagesTokens(body, model, context);
  if (!counted.ok()) return {.body = "", .error = ApiErrorOf(counted.status())};
  return {.body = CompactJson({{"input_tokens", *counted}}), .error = std::nullopt};
}

const ApiDialect kMessagesApi = {.name = "messages",
                                 .path = "/v1/messages",
                                 .id_prefix = "msg_",
                                 .call_prefix = "toolu_",
                                 .list_end = false,
                                 .groups = {.stop = "stop_sequences",
                                            .min_p = false,
                                            .penalties = false,
                                            .ends = false,
                                            .choices = false,
                                            .stream_options = false,
                                            .reports = false,
                                            .form = FormSpelling::kOutputConfig},
                                 .read = ReadMessagesCall,
                                 .make_writer = MakeMessagesWriter,
                                 .error_body = MessagesErrorBody,
                                 .ping = kMessagesPing};

}  // namespace stagecoach
