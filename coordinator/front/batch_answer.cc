#include "coordinator/front/batch_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/text/utf8.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

bool IsValidUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = DecodeUtf8(text, i);
    if (c.code_point == kReplacementCharacter && c.bytes == 1) return false;
    i += c.bytes;
  }
  return true;
}

Json LogprobsOf(const Completion& completion, const Tokenizer& tokenizer, int32_t wanted) {
  if (wanted < 0) return nullptr;
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array();
  for (const SampledToken& token : completion.tokens()) {
    tokens.push_back(TokenText(tokenizer, token.token));
    logprobs.push_back(FloatJson(token.logprob));
    Json top = Json::object();
    for (const TokenLogprob& entry : token.top) {
      const std::string text = TokenText(tokenizer, entry.token);
      if (!top.contains(text)) top[text] = FloatJson(entry.logprob);  // of tokens that look alike the most probable
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", wanted > 0 ? std::move(tops) : Json(nullptr)},
          {"text_offset", completion.text_offsets()}};
}

}  // namespace

std::string TokenText(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (char byte : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
  return text;
}

Json BatchAnswerJson(const std::string& id, const BatchLine& line, const std::string& model, int64_t created,
                     int64_t prompt_tokens, const Completion& completion, const Tokenizer& tokenizer) {
  const int64_t completion_tokens = static_cast<int64_t>(completion.tokens().size());
  const Json choice = {{"index", 0},
                       {"text", completion.text()},
                       {"finish_reason", completion.finish_reason()},
                       {"logprobs", LogprobsOf(completion, tokenizer, line.request.sampling.logprobs)}};
  const Json body = {{"id", absl::StrCat("cmpl-", id)},
                     {"object", "text_completion"},
                     {"created", created},
                     {"model", line.request.model.empty() ? model : line.request.model},
                     {"choices", Json::array({choice})},
                     {"usage",
                      {{"prompt_tokens", prompt_tokens},
                       {"completion_tokens", completion_tokens},
                       {"total_tokens", prompt_tokens + completion_tokens}}}};
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id},
          {"response", {{"status_code", 200}, {"request_id", absl::StrCat("req_", id)}, {"body", body}}},
          {"error", nullptr}};
}

Json BatchErrorJson(const std::string& id, const BatchLine& line) {
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id.empty() ? Json(nullptr) : Json(line.custom_id)},
          {"response", nullptr},
          {"error",
           {{"code", line.error->code},
            {"message", absl::StrCat("line ", line.number, ": ", line.error->message)},
            {"line", line.number}}}};
}

}  // namespace stagecoach
