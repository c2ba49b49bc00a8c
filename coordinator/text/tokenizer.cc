#include "coordinator/text/tokenizer.h"

#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"
#include "coordinator/text/bpe_tokenizer.h"
#include "coordinator/text/spm_tokenizer.h"
#include "coordinator/text/vocabulary.h"

namespace stagecoach {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(metadata));
  std::unique_ptr<Tokenizer> tokenizer;
  if (vocabulary.model == Vocabulary::Model::kSentencePiece) {
    tokenizer = std::make_unique<SpmTokenizer>(std::move(vocabulary));
  } else {
    tokenizer = std::make_unique<BpeTokenizer>(std::move(vocabulary));
  }
  return tokenizer;
}

std::vector<TokenId> Tokenizer::Encode(absl::string_view text, bool add_special, bool parse_special) const {
  return *EncodeUpTo(SIZE_MAX, text, add_special, parse_special);
}

std::vector<TokenId> Tokenizer::EncodeMarked(const MarkedText& text, bool add_bos) const {
  return *EncodeMarkedUpTo(SIZE_MAX, text, add_bos);
}

}  // namespace stagecoach
