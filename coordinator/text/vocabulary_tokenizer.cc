#include "coordinator/text/vocabulary_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "coordinator/text/text_chars.h"

namespace stagecoach {
namespace {

bool IsWhiteSpace(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isspace(c); });
}

}  // namespace

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), special_tokens_(vocabulary_) {}

void VocabularyTokenizer::BoundBytesOfToken(size_t bytes) {
  most_bytes_of_token_ = std::max({bytes, special_tokens_.longest_bytes(), size_t{1}});
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeUpTo(size_t most, absl::string_view text,
                                                                    bool add_special, bool parse_special) const {
  if (!MayDrop(text, add_special) && TooMany(most, 0, text.size())) return std::nullopt;
  std::optional<std::vector<TokenId>> tokens =
      EncodeAround(most, text, special_tokens_.Find(text, parse_special), /*one_bos=*/add_special);
  if (tokens.has_value() && add_special && vocabulary_.add_eos) tokens->push_back(vocabulary_.eos);
  if (tokens.has_value() && tokens->size() > most) return std::nullopt;
  return tokens;
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeMarkedUpTo(size_t most, const MarkedText& text,
                                                                          bool add_bos) const {
  if (!MayDrop(text.text(), add_bos) && TooMany(most, 0, text.size())) return std::nullopt;
  return EncodeAround(most, text.text(), special_tokens_.Find(text), /*one_bos=*/add_bos);
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeAround(size_t most, absl::string_view text,
                                                                      const std::vector<SpecialTokens::Match>& matches,
                                                                      bool one_bos) const {
  // A template can have a blank line before the token, and another part of it can write the token once more.
  const bool own_bos = !matches.empty() && matches.front().token == vocabulary_.bos &&
                       IsWhiteSpace(text.substr(0, matches.front().position));
  std::vector<TokenId> tokens;
  if (one_bos && vocabulary_.add_bos && !own_bos) tokens.push_back(vocabulary_.bos);
  size_t position = 0;
  const auto fill = [&](size_t end) {
    return end <= position || EncodeFragment(most, text.substr(position, end - position), &tokens);
  };
  const bool swallows = !vocabulary_.swallow_space.empty();
  bool begins = one_bos && own_bos;  // nothing but that token and white space so far
  for (const SpecialTokens::Match& match : matches) {
    begins = begins && match.token == vocabulary_.bos && IsWhiteSpace(text.substr(position, match.position - position));
    if (!fill(match.position)) return std::nullopt;
    if (!begins && !swallows && TooMany(most, tokens.size(), text.size() - match.position)) return std::nullopt;
    if (!begins || &match == &matches.front()) tokens.push_back(match.token);
    position = std::max(position, AfterSpecial(text, match));
  }
  if (!fill(text.size()) || tokens.size() > most) return std::nullopt;
  return tokens;
}

bool VocabularyTokenizer::MayDrop(absl::string_view text, bool one_bos) const {
  if (!vocabulary_.swallow_space.empty()) return true;
  return one_bos && vocabulary_.bos != kNoToken &&
         absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), vocabulary_.texts[vocabulary_.bos]);
}

size_t VocabularyTokenizer::AfterSpecial(absl::string_view text, const SpecialTokens::Match& match) const {
  const size_t end = match.position + match.bytes;
  const std::vector<TokenId>& swallow = vocabulary_.swallow_space;
  if (!std::binary_search(swallow.begin(), swallow.end(), match.token)) return end;
  return EndOfClass(text, end, CharClass::kSpace);
}

bool VocabularyTokenizer::IsPlain(TokenId token) const {
  const TokenType type = vocabulary_.types[token];
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kUnused;
}

}  // namespace stagecoach
