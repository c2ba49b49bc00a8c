// SentencePiece with scores: spaces become U+2581; starting from characters, the adjacent pair that makes the token
// with the highest score is joined again and again, the leftmost first among equals. A character that is no token
// becomes its byte tokens <0xNN>, or the unknown token where the vocabulary lacks one of those.

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/text/token_bytes.h"
#include "coordinator/text/pair_joiner.h"
#include "coordinator/text/tokenizer.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

// The rank of each score: 0 for the highest, the same for equal ones.
std::vector<uint32_t> RanksOf(const std::vector<float>& scores) {
  std::vector<float> descending = scores;
  std::sort(descending.begin(), descending.end(), std::greater<float>());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores) {
    const auto first = std::lower_bound(descending.begin(), descending.end(), score, std::greater<float>());
    ranks.push_back(static_cast<uint32_t>(first - descending.begin()));
  }
  return ranks;
}

// Where the word that `text` starts with ends: before the first U+2581 that follows another character.
size_t EndOfWord(absl::string_view text) {
  size_t end = 0;
  while (absl::StartsWith(text.substr(end), kSpaceMark)) end += kSpaceMark.size();
  return std::min(text.find(kSpaceMark, end), text.size());
}

class SpmTokenizer final : public Tokenizer {
 public:
  explicit SpmTokenizer(Vocabulary vocabulary)
      : Tokenizer(std::move(vocabulary)), rank_of_token_(RanksOf(vocabulary_.scores)) {
    byte_tokens_.fill(kNoToken);
    for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
      const TokenId token = static_cast<TokenId>(i);
      const std::string& text = vocabulary_.texts[i];
      const int byte = vocabulary_.types[i] == TokenType::kByte ? ByteNamed(text) : -1;
      if (byte >= 0) {
        if (byte_tokens_[byte] == kNoToken) byte_tokens_[byte] = token;
      } else if (IsPlainToken(vocabulary_, token) && !text.empty()) {
        pieces_.try_emplace(text, token);  // a repeated text keeps its first id
        longest_piece_bytes_ = std::max(longest_piece_bytes_, text.size());
        pieces_cross_words_ = pieces_cross_words_ || EndOfWord(text) < text.size();
      }
    }
    // A character that is no piece is one token that is unknown, if not one a byte.
    BoundBytesOfToken(std::max<size_t>(longest_piece_bytes_, 4), byte_tokens_);
  }

 private:
  bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const override {
    std::string marked = absl::StrReplaceAll(text, {{" ", kSpaceMark}});
    if (vocabulary_.add_space_prefix) marked.insert(0, kSpaceMark.data(), kSpaceMark.size());
    PairJoiner joiner;
    for (absl::string_view rest = marked; !rest.empty();) {
      if (TooMany(most, tokens->size(), rest.size())) return false;
      // Where no piece reaches from one word to the next, words are independent, and short heaps are fast.
      const size_t bytes = pieces_cross_words_ ? rest.size() : EndOfWord(rest);
      const absl::string_view word = rest.substr(0, std::min(bytes, PairJoiner::kMaxTextBytes));
      EncodeWord(word, &joiner, tokens);
      rest.remove_prefix(word.size());
    }
    return true;
  }

  void EncodeWord(absl::string_view word, PairJoiner* joiner, std::vector<TokenId>* tokens) const {
    joiner->Clear();
    for (size_t begin = 0; begin < word.size();) {
      const size_t bytes = DecodeUtf8(word, begin).bytes;
      joiner->Append(begin, begin + bytes, TokenOf(word.substr(begin, bytes)));
      begin += bytes;
    }
    joiner->Run([this, word](const PairJoiner::Link& left, const PairJoiner::Link& right) {
      const TokenId token = TokenOf(word.substr(left.begin, right.end - left.begin));
      return token == kNoToken ? PairJoiner::kNoJoin : PairJoiner::Join{rank_of_token_[token], token};
    });
    joiner->ForEach([&](const PairJoiner::Link& link) {
      if (link.symbol != kNoToken) {
        tokens->push_back(link.symbol);
      } else {
        AppendBytesOf(word.substr(link.begin, link.end - link.begin), tokens);
      }
    });
  }

  void AppendBytesOf(absl::string_view symbol, std::vector<TokenId>* tokens) const {
    const auto token_of = [this](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
    if (std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return token_of(byte) != kNoToken; })) {
      for (const char byte : symbol) tokens->push_back(token_of(byte));
    } else if (vocabulary_.unknown != kNoToken) {
      tokens->push_back(vocabulary_.unknown);
    }
  }

  TokenId TokenOf(absl::string_view piece) const {
    if (piece.size() > longest_piece_bytes_) return kNoToken;
    const auto found = pieces_.find(piece);
    return found == pieces_.end() ? kNoToken : found->second;
  }

  // Constant after construction.
  // What plain text can become: no control, unknown, unused or byte tokens.
  absl::flat_hash_map<std::string, TokenId> pieces_;
  std::array<TokenId, 256> byte_tokens_;
  std::vector<uint32_t> rank_of_token_;  // by descending score; equal scores have equal ranks
  size_t longest_piece_bytes_ = 0;
  bool pieces_cross_words_ = false;  // some piece has U+2581 after another character
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::MakeSpm(Vocabulary vocabulary) {
  return std::make_unique<SpmTokenizer>(std::move(vocabulary));
}

}  // namespace stagecoach
