#include "coordinator/text/vocabulary_tokenizer.h"

#include <utility>

namespace stagecoach {

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), special_tokens_(vocabulary_) {}

std::vector<TokenId> VocabularyTokenizer::Encode(absl::string_view text, bool add_special, bool parse_special) const {
  std::vector<TokenId> tokens =
      EncodeAround(text, special_tokens_.Find(text, parse_special), add_special && vocabulary_.add_bos);
  if (add_special && vocabulary_.add_eos) tokens.push_back(vocabulary_.eos);
  return tokens;
}

std::vector<TokenId> VocabularyTokenizer::EncodeMarked(const MarkedText& text, bool add_bos) const {
  return EncodeAround(text.text(), special_tokens_.Find(text), add_bos && vocabulary_.add_bos);
}

std::vector<TokenId> VocabularyTokenizer::EncodeAround(absl::string_view text,
                                                       const std::vector<SpecialTokens::Match>& matches,
                                                       bool add_bos) const {
  std::vector<TokenId> tokens;
  if (add_bos) tokens.push_back(vocabulary_.bos);
  size_t position = 0;
  for (const SpecialTokens::Match& match : matches) {
    if (match.position == 0 && !tokens.empty() && match.token == vocabulary_.bos) tokens.clear();
    if (match.position > position) EncodeFragment(text.substr(position, match.position - position), &tokens);
    tokens.push_back(match.token);
    position = match.position + match.bytes;
  }
  if (position < text.size()) EncodeFragment(text.substr(position), &tokens);
  return tokens;
}

bool VocabularyTokenizer::IsPlain(TokenId token) const {
  const TokenType type = vocabulary_.types[token];
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kUnused;
}

}  // namespace stagecoach
