#ifndef STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_

// What the tokenizers share: special tokens, BOS and EOS, and the facts of the vocabulary.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/text/special_tokens.h"
#include "coordinator/text/tokenizer.h"
#include "coordinator/text/vocabulary.h"

namespace stagecoach {

class VocabularyTokenizer : public Tokenizer {
 public:
  // A text that, with parse_special, itself starts with the BOS token gets no second one.
  std::optional<std::vector<TokenId>> EncodeUpTo(size_t most, absl::string_view text, bool add_special,
                                                 bool parse_special) const final;
  std::optional<std::vector<TokenId>> EncodeMarkedUpTo(size_t most, const MarkedText& text, bool add_bos) const final;

  int64_t vocab_size() const final { return static_cast<int64_t>(vocabulary_.texts.size()); }
  TokenId bos() const final { return vocabulary_.bos; }
  TokenId eos() const final { return vocabulary_.eos; }
  TokenId pad() const final { return vocabulary_.pad; }
  absl::Span<const TokenId> end_of_generation() const final { return vocabulary_.end_of_generation; }
  bool strips_leading_space() const final { return vocabulary_.add_space_prefix; }

 protected:
  explicit VocabularyTokenizer(Vocabulary vocabulary);

  // Appends the tokens of a non-empty text without special tokens. Every fragment is either the first of its text or
  // follows a special token. May stop, with anything in `tokens`, and give false when there will be more than `most` in
  // it.
  virtual bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const = 0;

  // Whether `tokens` and those of `bytes` more of a text are certainly more than `most`.
  bool TooMany(size_t most, size_t tokens, size_t bytes) const {
    return tokens > most || bytes / most_bytes_of_token_ > most - tokens;
  }
  // No token stands for more bytes of a text than this, nor do bytes go without one. Beside special tokens, whose
  // length is looked at here. Unless this was called texts are taken for as short as they like.
  void BoundBytesOfToken(size_t bytes);

  // Control, unknown and unused tokens never stand for plain text, whatever their own text is.
  bool IsPlain(TokenId token) const;

  Vocabulary vocabulary_;  // constant after construction

 private:
  // The special tokens that were found in the text, and what fills the text between them. one_bos: as EncodeMarked's
  // add_bos. Absent: as EncodeUpTo.
  std::optional<std::vector<TokenId>> EncodeAround(size_t most, absl::string_view text,
                                                   const std::vector<SpecialTokens::Match>& matches,
                                                   bool one_bos) const;
  // Of such a text more may be dropped than any token stands for: BOS tokens that it begins with, or white space after
  // special tokens.
  bool MayDrop(absl::string_view text, bool one_bos) const;
  // Where the text goes on after a special token.
  size_t AfterSpecial(absl::string_view text, const SpecialTokens::Match& match) const;

  const SpecialTokens special_tokens_;
  size_t most_bytes_of_token_ = SIZE_MAX;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_VOCABULARY_TOKENIZER_H_
