#include "coordinator/text/vocabulary_tokenizer.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), special_tokens_(vocabulary_) {}

void VocabularyTokenizer::BoundBytesOfToken(size_t bytes) {
  most_bytes_of_token_ = std::max({bytes, special_tokens_.longest_bytes(), size_t{1}});
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeUpTo(size_t most, absl::string_view text,
                                                                    bool add_special, bool parse_special) const {
  if (TooMany(most, 0, text.size())) return std::nullopt;
  std::optional<std::vector<TokenId>> tokens =
      EncodeAround(most, text, special_tokens_.Find(text, parse_special), add_special && vocabulary_.add_bos);
  if (tokens.has_value() && add_special && vocabulary_.add_eos) tokens->push_back(vocabulary_.eos);
  if (tokens.has_value() && tokens->size() > most) return std::nullopt;
  return tokens;
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeMarkedUpTo(size_t most, const MarkedText& text,
                                                                          bool add_bos) const {
  if (TooMany(most, 0, text.size())) return std::nullopt;
  return EncodeAround(most, text.text(), special_tokens_.Find(text), add_bos && vocabulary_.add_bos);
}

std::optional<std::vector<TokenId>> VocabularyTokenizer::EncodeAround(size_t most, absl::string_view text,
                                                                      const std::vector<SpecialTokens::Match>& matches,
                                                                      bool add_bos) const {
  std::vector<TokenId> tokens;
  if (add_bos) tokens.push_back(vocabulary_.bos);
  size_t position = 0;
  const auto fill = [&](size_t end) {
    return end == position || EncodeFragment(most, text.substr(position, end - position), &tokens);
  };
  for (const SpecialTokens::Match& match : matches) {
    if (match.position == 0 && !tokens.empty() && match.token == vocabulary_.bos) tokens.clear();
    if (!fill(match.position) || TooMany(most, tokens.size(), text.size() - match.position)) return std::nullopt;
    tokens.push_back(match.token);
    position = match.position + match.bytes;
  }
  if (!fill(text.size()) || tokens.size() > most) return std::nullopt;
  return tokens;
}

bool VocabularyTokenizer::IsPlain(TokenId token) const {
  const TokenType type = vocabulary_.types[token];
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kUnused;
}

}  // namespace stagecoach
