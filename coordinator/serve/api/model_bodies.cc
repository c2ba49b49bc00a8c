#include "coordinator/serve/api/model_bodies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/conversation/chat_messages.h"
#include "coordinator/serve/api/conversation/conversation.h"
#include "coordinator/serve/api/generation_fields.h"
#include "coordinator/serve/api/token_text.h"
#include "coordinator/text/chat/chat_format.h"

namespace stagecoach {
namespace {

Json NumberOrNull(int64_t number) { return number > 0 ? Json(number) : Json(nullptr); }

Json OpenAiModel(const ServedModel& model, int64_t context_tokens, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "stagecoach"},
          {"root", model.names.front()},
          {"max_model_len", NumberOrNull(context_tokens)},
          {"meta",
           {{"n_params", model.parameters},
            {"size", model.file_bytes},
            {"n_ctx_train", model.trained_context},
            {"n_vocab", model.vocab}}}};
}

Json AnthropicModel(const ServedModel& model, const std::string& name) {
  const std::string created =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(model.created), absl::UTCTimeZone());
  return {{"id", name}, {"type", "model"}, {"display_name", name}, {"created_at", created}};
}

BodyAnswer Failed(const absl::Status& status) { return {.body = "", .error = ApiErrorOf(status)}; }

absl::Status CheckReplyBytes(size_t bytes) {
  if (bytes <= kMostTextReplyBytes) return absl::OkStatus();
  return ApiStatus(ApiErrorCode::kTooLarge,
                   absl::StrCat("the answer has ", bytes, " bytes, at most ", kMostTextReplyBytes, " are sent"));
}

BodyAnswer Answered(absl::string_view body, absl::FunctionRef<absl::StatusOr<Json>(FieldReader*)> answer_of) {
  const absl::StatusOr<Json> given = ParseBody(body);
  if (!given.ok()) return Failed(given.status());
  FieldReader fields(&*given);
  const absl::StatusOr<Json> json = answer_of(&fields);
  if (!json.ok()) return Failed(json.status());
  BodyAnswer answer = {.body = CompactJson(*json)};
  if (const absl::Status status = CheckReplyBytes(answer.body.size()); !status.ok()) return Failed(status);
  return answer;
}

// The conversation of a body, with no more tokens than are given out.
absl::StatusOr<RenderedConversation> ConversationOf(FieldReader* fields, const ServedModel& model, absl::Time now) {
  const PromptRoom room(/*asked=*/0, kMostTextTokens);
  ASSIGN_OR_RETURN(const ChatRequest request, ReadChatRequest(fields));
  absl::StatusOr<RenderedConversation> conversation = RenderConversation(request, model, now, room);
  const bool has_room = conversation.ok() ? room.ForAnswer(static_cast<int64_t>(conversation->tokens.size())).ok()
                                          : ApiErrorOf(conversation.status()).code !=
                                                MakeApiError(ApiErrorCode::kContextLengthExceeded, "").code;
  // It is this route's limit; clients take the other error's number for the model's.
  if (!has_room) {
    return WrongField("messages", absl::StrCat("have more than ", kMostTextTokens, " tokens, expected at most that"));
  }
  return conversation;
}

// A text, or its bytes where it is none.
Json PieceJson(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  return TokenText(tokenizer, token) == bytes ? Json(bytes) : BytesJson(bytes);
}

// The two ways to ask for the tokens of a text, by the names of the field and of its switch.
struct TextForm {
  const char* text;
  const char* add_special;
  bool adds_special;
};
constexpr TextForm kTextForms[] = {{"prompt", "add_special_tokens", true}, {"content", "add_special", false}};

absl::StatusOr<std::vector<TokenId>> TokensOf(FieldReader* fields, const ServedModel& model, absl::Time now) {
  for (const TextForm& form : kTextForms) {
    const Json* value = fields->Find(form.text);
    if (value == nullptr) continue;
    std::string text;
    bool add_special = form.adds_special, parse_special = model.parse_special;
    RETURN_IF_ERROR(ReadString(form.text, *value, &text));
    RETURN_IF_ERROR(fields->Bool(form.add_special, &add_special));
    RETURN_IF_ERROR(fields->Bool("parse_special", &parse_special));
    auto tokens = model.tokenizer->EncodeUpTo(kMostTextTokens, text, add_special, parse_special);
    if (tokens.has_value()) return *std::move(tokens);
    return WrongField(form.text, absl::StrCat("has more than ", kMostTextTokens, " tokens, expected at most that; its ",
                                              text.size(), " bytes can be asked about in parts"));
  }
  if (fields->Find("messages") == nullptr) {
    return ApiStatus(ApiErrorCode::kMissingParameter, "expected one of 'prompt', 'content' and 'messages'", "prompt");
  }
  ASSIGN_OR_RETURN(RenderedConversation conversation, ConversationOf(fields, model, now));
  return std::move(conversation.tokens);
}

absl::StatusOr<Json> Tokenize(FieldReader* fields, const ServedModel& model, const CallContext& context) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(fields, model, context.now));
  bool strings = false, pieces = false;
  RETURN_IF_ERROR(fields->Bool("return_token_strs", &strings));
  RETURN_IF_ERROR(fields->Bool("with_pieces", &pieces));
  if ((strings || pieces) && tokens.size() > kMostListedTokens) {
    return WrongField(
        strings ? "return_token_strs" : "with_pieces",
        absl::StrCat("the text has ", tokens.size(), " tokens, whose texts are listed up to ", kMostListedTokens));
  }
  Json answer = {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", NumberOrNull(context.context_tokens)}};
  if (strings) {
    Json list = Json::array();
    for (const TokenId token : tokens) list.push_back(TokenText(*model.tokenizer, token));
    answer["token_strs"] = std::move(list);
  }
  if (pieces) {
    Json list = Json::array();
    for (const TokenId token : tokens) list.push_back({{"id", token}, {"piece", PieceJson(*model.tokenizer, token)}});
    answer["pieces"] = std::move(list);
  }
  return answer;
}

absl::StatusOr<Json> Detokenize(FieldReader* fields, const ServedModel& model) {
  const Json* given = fields->Find("tokens");
  if (given == nullptr) return MissingField("tokens");
  if (!given->is_array()) return WrongType("tokens", "a list of token ids", *given);
  RETURN_IF_ERROR(CheckSize("tokens", given->size(), "token ids", kMostTextTokens));
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(ReadTokens("tokens", *given, model.vocab, &tokens));
  const std::string text = model.tokenizer->Decode(tokens, /*render_control=*/true);
  RETURN_IF_ERROR(CheckReplyBytes(text.size()));
  return Json{{"prompt", text}, {"content", text}};
}

absl::StatusOr<Json> ApplyTemplate(FieldReader* fields, const ServedModel& model, const CallContext& context) {
  ASSIGN_OR_RETURN(const RenderedConversation conversation, ConversationOf(fields, model, context.now));
  RETURN_IF_ERROR(CheckReplyBytes(conversation.text.size()));
  Json answer = Json::object();
  answer["prompt"] = conversation.text;
  return answer;
}

}  // namespace

std::string TokenizerInfoBody(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const auto text = [&tokenizer](TokenId token) {
    return token == kNoToken ? Json(nullptr) : Json(tokenizer.TokenBytes(token, /*render_control=*/true));
  };
  const std::string chat_template = model.chat == nullptr ? "" : model.chat->source(/*with_tools=*/false);
  return CompactJson({{"bos_token", text(tokenizer.bos())},
                      {"eos_token", text(tokenizer.eos())},
                      {"pad_token", text(tokenizer.pad())},
                      {"chat_template", chat_template.empty() ? Json(nullptr) : Json(chat_template)}});
}

std::string ModelsBody(const ServedModel& model, int64_t context_tokens, bool anthropic) {
  Json data = Json::array();
  for (const std::string& name : model.names) {
    data.push_back(anthropic ? AnthropicModel(model, name) : OpenAiModel(model, context_tokens, name));
  }
  if (anthropic) {
    return CompactJson({{"data", std::move(data)},
                        {"has_more", false},
                        {"first_id", model.names.front()},
                        {"last_id", model.names.back()}});
  }
  // A client for code reads `models` as a catalog of its own, and complains without it.
  return CompactJson({{"object", "list"}, {"data", std::move(data)}, {"models", Json::array()}});
}

BodyAnswer ModelBody(const ServedModel& model, int64_t context_tokens, absl::string_view name, bool anthropic) {
  if (std::find(model.names.begin(), model.names.end(), name) == model.names.end()) {
    return Failed(ApiStatus(ApiErrorCode::kModelNotFound,
                            absl::StrCat("the model ", ShownValue(std::string(name)), " is not served here"), "model"));
  }
  return {.body = CompactJson(anthropic ? AnthropicModel(model, std::string(name))
                                        : OpenAiModel(model, context_tokens, std::string(name)))};
}

BodyAnswer TokenizeBody(absl::string_view body, const ServedModel& model, const CallContext& context) {
  return Answered(body, [&](FieldReader* fields) { return Tokenize(fields, model, context); });
}

BodyAnswer DetokenizeBody(absl::string_view body, const ServedModel& model) {
  return Answered(body, [&](FieldReader* fields) { return Detokenize(fields, model); });
}

BodyAnswer ApplyTemplateBody(absl::string_view body, const ServedModel& model, const CallContext& context) {
  return Answered(body, [&](FieldReader* fields) { return ApplyTemplate(fields, model, context); });
}

}  // namespace stagecoach
