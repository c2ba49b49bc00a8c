#ifndef STAGECOACH_COORDINATOR_TEXT_BPE_TOKENIZER_H_
#define STAGECOACH_COORDINATOR_TEXT_BPE_TOKENIZER_H_

// Byte-level byte-pair encoding, as GPT-2 introduced it: the text is cut to pieces (pretokenizer.h); of each piece,
// starting from its bytes, the adjacent pair with the best merge rank is joined again and again, the leftmost first
// among equals.
//
// The file writes every byte as a printable character (33-126, 161-172 and 174-255 as themselves, the 68 others as
// U+0100 and up); here pieces are plain bytes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/text/pair_joiner.h"
#include "coordinator/text/vocabulary_tokenizer.h"

namespace stagecoach {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  // `vocabulary` is a valid one of byte pairs.
  explicit BpeTokenizer(Vocabulary vocabulary);

  std::string TokenBytes(TokenId token, bool render_control) const override;

 private:
  // A part of a piece that merges can start from or lead to; 0 to 255 are the single bytes.
  using Symbol = int32_t;
  static uint64_t Pair(Symbol left, Symbol right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  Symbol Intern(const std::string& bytes, TokenId token);
  bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const override;
  void EncodePiece(absl::string_view piece, PairJoiner* joiner, std::vector<TokenId>* tokens) const;
  void AppendSymbol(Symbol symbol, absl::string_view bytes, std::vector<TokenId>* tokens) const;

  // Constant after construction.
  absl::flat_hash_map<std::string, Symbol> symbols_;
  std::vector<TokenId> token_of_symbol_;  // kNoToken for a symbol that is no token
  absl::flat_hash_map<uint64_t, PairJoiner::Join> merges_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_BPE_TOKENIZER_H_
