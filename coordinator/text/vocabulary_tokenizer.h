#ifndef STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_

// What the tokenizers share: special tokens, BOS and EOS, and the facts of the vocabulary.

#include <vector>

#include "coordinator/text/special_tokens.h"
#include "coordinator/text/tokenizer.h"
#include "coordinator/text/vocabulary.h"

namespace stagecoach {

class VocabularyTokenizer : public Tokenizer {
 public:
  // A text that, with parse_special, itself starts with the BOS token gets no second one.
  std::vector<TokenId> Encode(absl::string_view text, bool add_special, bool parse_special) const final;

  int64_t vocab_size() const final { return static_cast<int64_t>(vocabulary_.texts.size()); }
  absl::Span<const TokenId> end_of_generation() const final { return vocabulary_.end_of_generation; }
  bool strips_leading_space() const final { return vocabulary_.add_space_prefix; }

 protected:
  explicit VocabularyTokenizer(Vocabulary vocabulary);

  // Appends the tokens of a non-empty text without special tokens. Every fragment is either the first of its text or
  // follows a special token.
  virtual void EncodeFragment(absl::string_view text, std::vector<TokenId>* tokens) const = 0;

  // Control, unknown and unused tokens never stand for plain text, whatever their own text is.
  bool IsPlain(TokenId token) const;

  Vocabulary vocabulary_;  // constant after construction

 private:
  const SpecialTokens special_tokens_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_
