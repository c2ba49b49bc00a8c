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
  std::vector<TokenId> EncodeMarked(const MarkedText& text, bool add_bos) const final;

  int64_t vocab_size() const final { return static_cast<int64_t>(vocabulary_.texts.size()); }
  TokenId bos() const final { return vocabulary_.bos; }
  TokenId eos() const final { return vocabulary_.eos; }
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
  // The special tokens that were found in the text, and what fills the text between them, after a BOS token if one is
  // to be added and the text does not start with one.
  std::vector<TokenId> EncodeAround(absl::string_view text, const std::vector<SpecialTokens::Match>& matches,
                                    bool add_bos) const;

  const SpecialTokens special_tokens_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_
