#ifndef STAGECOACH_COORDINATOR_TEXT_SPM_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_SPM_TOKENIZER_H_

// SentencePiece with scores: spaces become U+2581; starting from characters, the adjacent pair that makes the token
// with the highest score is joined again and again, the leftmost first among equals. A character that is no token
// becomes its byte tokens <0xNN>, or the unknown token where the vocabulary lacks one of those.

#include <array>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/text/pair_joiner.h"
#include "coordinator/text/vocabulary_tokenizer.h"

namespace stagecoach {

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  // `vocabulary` is a valid one of SentencePiece.
  explicit SpmTokenizer(Vocabulary vocabulary);

  std::string TokenBytes(TokenId token, bool render_control) const override;

 private:
  bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const override;
  void EncodeWord(absl::string_view word, PairJoiner* joiner, std::vector<TokenId>* tokens) const;
  void AppendBytesOf(absl::string_view symbol, std::vector<TokenId>* tokens) const;
  TokenId TokenOf(absl::string_view piece) const;

  // Constant after construction.
  absl::flat_hash_map<std::string, TokenId>
      pieces_;  // what plain text can become: no control, unknown, unused or byte tokens
  std::array<TokenId, 256> byte_tokens_;
  std::vector<uint32_t> rank_of_token_;  // by descending score; equal scores have equal ranks
  size_t longest_piece_bytes_ = 0;
  bool pieces_cross_words_ = false;  // some piece has U+2581 after another character
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_SPM_TOKENIZER_H_
