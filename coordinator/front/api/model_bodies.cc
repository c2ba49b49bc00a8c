#include "coordinator/front/api/model_bodies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "coordinator/front/api/call_plan.h"
#include "coordinator/front/api/field_reader.h"
#include "coordinator/front/api/token_text.h"
#include "coordinator/front/json_input.h"
#include "nlohmann/json.hpp"

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

BodyAnswer Failed(const absl::Status& status) {
  BodyAnswer answer;
  answer.error = ApiErrorOf(status);
  answer.body = ErrorBody(*answer.error);
  return answer;
}

BodyAnswer Answered(const absl::StatusOr<Json>& json) {
  if (!json.ok()) return Failed(json.status());
  return {.body = CompactJson(*json)};
}

absl::StatusOr<Json> ParseBody(absl::string_view body) {
  absl::StatusOr<Json> json = ParseJson(body);
  if (!json.ok()) return ApiStatus(ApiErrorCode::kInvalidJson, json.status().message());
  if (json->is_object()) return json;
  return ApiStatus(ApiErrorCode::kInvalidJson, absl::StrCat("expected an object, found ", json->type_name()));
}

// What is listed one by one takes a hundred times the memory of the body that asks for it.
constexpr size_t kMostListedTokens = size_t{1} << 18;

// A text, or its bytes where it is none.
Json PieceJson(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  if (TokenText(tokenizer, token) == bytes) return bytes;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

// The two ways to ask for the tokens of a text, by the names of the field and of its switches.
struct TextForm {
  const char* text;
  const char* add_special;
  bool adds_special;
  bool parses_special;
};
constexpr TextForm kTextForms[] = {{"prompt", "add_special_tokens", true, false},
                                   {"content", "add_special", false, true}};

absl::StatusOr<std::vector<TokenId>> TokensOf(FieldReader* fields, const ServedModel& model, absl::Time now) {
  for (const TextForm& form : kTextForms) {
    const Json* value = fields->Find(form.text);
    if (value == nullptr) continue;
    std::string text;
    bool add_special = form.adds_special, parse_special = form.parses_special;
    RETURN_IF_ERROR(ReadString(form.text, *value, &text));
    RETURN_IF_ERROR(fields->Bool(form.add_special, &add_special));
    RETURN_IF_ERROR(fields->Bool("parse_special", &parse_special));
    return model.tokenizer->Encode(text, add_special, parse_special);
  }
  if (fields->Find("messages") == nullptr) {
    return ApiStatus(ApiErrorCode::kMissingParameter, "expected one of 'prompt', 'content' and 'messages'", "prompt");
  }
  ASSIGN_OR_RETURN(RenderedConversation conversation, ReadConversation(fields, model, now, PromptRoom()));
  return std::move(conversation.tokens);
}

absl::StatusOr<Json> Tokenize(absl::string_view body, const ServedModel& model, const CallContext& context) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  FieldReader fields(&json);
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(&fields, model, context.now));
  bool strings = false, pieces = false;
  RETURN_IF_ERROR(fields.Bool("return_token_strs", &strings));
  RETURN_IF_ERROR(fields.Bool("with_pieces", &pieces));
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

absl::StatusOr<Json> Detokenize(absl::string_view body, const ServedModel& model) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  FieldReader fields(&json);
  const Json* given = fields.Find("tokens");
  if (given == nullptr) return MissingField("tokens");
  if (!given->is_array()) return WrongType("tokens", "a list of token ids", *given);
  if (given->size() > kMostListedTokens) {
    return WrongField("tokens",
                      absl::StrCat("has ", given->size(), " token ids, expected at most ", kMostListedTokens));
  }
  std::vector<TokenId> tokens;
  for (const Json& element : *given) {
    int32_t token = 0;
    RETURN_IF_ERROR(ReadInteger("tokens", element, {0, model.vocab - 1}, &token));
    tokens.push_back(token);
  }
  const std::string text = model.tokenizer->Decode(tokens, /*render_control=*/true);
  Json answer = {{"prompt", text}, {"content", text}};
  return answer;
}

absl::StatusOr<Json> ApplyTemplate(absl::string_view body, const ServedModel& model, const CallContext& context) {
  ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  FieldReader fields(&json);
  ASSIGN_OR_RETURN(const RenderedConversation conversation,
                   ReadConversation(&fields, model, context.now, PromptRoom()));
  Json answer = Json::object();
  answer["prompt"] = conversation.text;
  return answer;
}

}  // namespace

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
  return Answered(Tokenize(body, model, context));
}

BodyAnswer DetokenizeBody(absl::string_view body, const ServedModel& model) {
  return Answered(Detokenize(body, model));
}

BodyAnswer ApplyTemplateBody(absl::string_view body, const ServedModel& model, const CallContext& context) {
  return Answered(ApplyTemplate(body, model, context));
}

}  // namespace stagecoach
