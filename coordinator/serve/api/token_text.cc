#include "coordinator/serve/api/token_text.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "coordinator/text/utf8.h"

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

// Of each token of a prompt: how many code points of `text`, which it was made of, come before it.
//
// A token's text is sought where the last one's ended, or behind the replacement characters there: they stand for
// tokens that are no UTF-8. Neither the tokens that the vocabulary adds at the ends nor the space that it puts before a
// text are in it. A character that several tokens make up counts with its last byte, as in an answer.
std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt,
                                   absl::string_view text) {
  constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";
  const auto inside_character = [text](size_t at) { return at < text.size() && CodePoints(text.substr(at, 1)) == 0; };
  std::vector<int64_t> offsets;
  size_t at = 0, behind = 0;  // the end of the replacement characters that begin at `at`, once they were gone through
  int64_t code_points = 0;
  for (const TokenId token : prompt) {
    const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
    while (absl::StartsWith(text.substr(behind), kReplacement)) behind += kReplacement.size();
    absl::string_view sought = bytes;
    const auto stands = [&](size_t place) { return absl::StartsWith(text.substr(place), sought); };
    bool found = stands(at) || stands(behind);
    if (!found && absl::ConsumePrefix(&sought, " ")) found = stands(at) || stands(behind);
    if (found && !stands(at)) {
      code_points += CodePoints(text.substr(at, behind - at));
      at = behind;
    }
    offsets.push_back(code_points - (inside_character(at) ? 1 : 0));
    if (!found) continue;
    code_points += CodePoints(sought);
    at += sought.size();
    behind = std::max(behind, at);
  }
  return offsets;
}

// What clients that want a number are given for a probability of 0.
constexpr double kLeastLogprob = -9999.0;

Json LogprobJson(float logprob) {
  Json json = FloatJson(logprob);
  return json.is_null() ? Json(kLeastLogprob) : json;
}

// The bytes are exact where the text cannot be.
Json OneTokenJson(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string text = tokenizer.TokenBytes(token, /*render_control=*/true);
  return {{"token", text}, {"logprob", LogprobJson(logprob)}, {"bytes", BytesJson(text)}};
}

}  // namespace

std::string TokenText(const Tokenizer& tokenizer, TokenId token) {
  std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  return IsValidUtf8(bytes) ? bytes : TokenBytesText(tokenizer, token);
}

std::string TokenBytesText(const Tokenizer& tokenizer, TokenId token) {
  std::string text = "bytes:";
  for (const char byte : tokenizer.TokenBytes(token, /*render_control=*/true)) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
  }
  return text;
}

Json BytesJson(absl::string_view bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

Json TokenJson(const Tokenizer& tokenizer, const ListedToken& token) {
  Json json = OneTokenJson(tokenizer, token.token, token.logprob.value_or(0));
  Json top = Json::array();
  for (const TokenLogprob& entry : token.top) top.push_back(OneTokenJson(tokenizer, entry.token, entry.logprob));
  json["top_logprobs"] = std::move(top);
  return json;
}

PromptEcho::PromptEcho(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, const std::string& text,
                       bool scored) {
  if (!text.empty()) piece_.deltas.push_back({OutputKind::kContent, text, ""});
  if (!scored) return;
  const std::vector<int64_t> offsets = PromptOffsets(tokenizer, prompt, text);
  for (size_t i = 0; i < prompt.size(); ++i) {
    ListedToken& token = piece_.tokens.emplace_back();
    token.token = prompt[i];
    token.text_offset = offsets[i];
  }
  missing_ = prompt.size() - 1;
}

void PromptEcho::Take(const std::vector<TargetLogprobs>& scores) {
  for (const TargetLogprobs& rows : scores) {
    const size_t tops = rows.logprobs.empty() ? 0 : rows.top.size() / rows.logprobs.size();
    for (size_t i = 0; i < rows.logprobs.size(); ++i) {
      // A row says how probable the token behind it was.
      const size_t place = static_cast<size_t>(rows.start) + i + 1;
      if (rows.start < 0 || place >= piece_.tokens.size() || piece_.tokens[place].logprob.has_value()) continue;
      ListedToken& token = piece_.tokens[place];
      token.logprob = rows.logprobs[i];
      for (const TokenLogprob& top : absl::MakeConstSpan(rows.top).subspan(i * tops, tops)) {
        if (top.token != kNoToken) token.top.push_back(top);
      }
      --missing_;
    }
  }
}

}  // namespace stagecoach
