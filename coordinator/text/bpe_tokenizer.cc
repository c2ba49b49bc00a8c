// Byte-level byte-pair encoding, as GPT-2 introduced it: the text is cut to pieces (pretokenizer.h); in each, from
// bytes, the adjacent pair of the best merge rank is joined again and again, the leftmost first among equals.
//
// The file writes every byte as a printable character (common/text/token_bytes.h); here pieces are plain bytes.

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/text/token_bytes.h"
#include "coordinator/text/pair_joiner.h"
#include "coordinator/text/pretokenizer.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(Vocabulary vocabulary) : Tokenizer(std::move(vocabulary)) {
    symbols_.reserve(vocabulary_.texts.size() + 256);
    for (int byte = 0; byte < 256; ++byte) {
      Intern(std::string(1, static_cast<char>(static_cast<uint8_t>(byte))), kNoToken);
    }
    for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
      const TokenId token = static_cast<TokenId>(i);
      std::string bytes;
      if (IsPlainToken(vocabulary_, token) && AppendBytesSpelled(vocabulary_.texts[i], &bytes) && !bytes.empty())
        Intern(bytes, token);
    }
    merges_.reserve(vocabulary_.merges.size());
    uint32_t rank = 0;
    for (const std::string& merge : vocabulary_.merges) {
      const absl::string_view text = merge;
      const size_t space = text.find(' ', 1);
      std::string left, right;
      const bool left_whole = AppendBytesSpelled(text.substr(0, space), &left);
      // Text is always made of the alphabet, so other merges never apply.
      if (!left_whole || !AppendBytesSpelled(text.substr(space + 1), &right)) continue;
      const Symbol result = Intern(left + right, kNoToken);
      merges_.try_emplace(Pair(Intern(left, kNoToken), Intern(right, kNoToken)), PairJoiner::Join{rank++, result});
    }
    vocabulary_.merges = {};
    size_t longest = 1;
    for (const auto& [bytes, symbol] : symbols_) {
      if (token_of_symbol_[symbol] != kNoToken) longest = std::max(longest, bytes.size());
    }
    BoundBytesOfToken(longest, absl::MakeConstSpan(token_of_symbol_).first(256));
  }

 private:
  // A part of a piece that merges can start from or lead to; 0 to 255 are the single bytes.
  using Symbol = int32_t;
  static uint64_t Pair(Symbol left, Symbol right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  Symbol Intern(const std::string& bytes, TokenId token) {
    const auto [entry, inserted] = symbols_.try_emplace(bytes, static_cast<Symbol>(token_of_symbol_.size()));
    if (inserted) token_of_symbol_.push_back(kNoToken);
    TokenId& known = token_of_symbol_[entry->second];
    if (known == kNoToken) known = token;  // a repeated text keeps its first id
    return entry->second;
  }

  bool EncodeFragment(size_t most, absl::string_view text, std::vector<TokenId>* tokens) const override {
    PairJoiner joiner;
    PieceCutter cutter(vocabulary_.pre_tokenizer, text);
    for (;;) {
      if (TooMany(most, tokens->size(), cutter.bytes_left())) return false;
      absl::string_view piece = cutter.Next();
      if (piece.empty()) return true;
      while (!piece.empty()) {
        const absl::string_view part = piece.substr(0, PairJoiner::kMaxTextBytes);
        EncodePiece(part, &joiner, tokens);
        piece.remove_prefix(part.size());
      }
    }
  }

  void EncodePiece(absl::string_view piece, PairJoiner* joiner, std::vector<TokenId>* tokens) const {
    if (vocabulary_.takes_whole_pieces) {
      const auto whole = symbols_.find(piece);
      if (whole != symbols_.end() && token_of_symbol_[whole->second] != kNoToken) {
        tokens->push_back(token_of_symbol_[whole->second]);
        return;
      }
    }
    joiner->Clear();
    for (size_t i = 0; i < piece.size(); ++i) joiner->Append(i, i + 1, static_cast<uint8_t>(piece[i]));
    joiner->Run([this](const PairJoiner::Link& left, const PairJoiner::Link& right) {
      const auto merge = merges_.find(Pair(left.symbol, right.symbol));
      return merge == merges_.end() ? PairJoiner::kNoJoin : merge->second;
    });
    joiner->ForEach([&](const PairJoiner::Link& link) {
      AppendSymbol(link.symbol, piece.substr(link.begin, link.end - link.begin), tokens);
    });
  }

  void AppendSymbol(Symbol symbol, absl::string_view bytes, std::vector<TokenId>* tokens) const {
    if (token_of_symbol_[symbol] != kNoToken) {
      tokens->push_back(token_of_symbol_[symbol]);
      return;
    }
    for (const char byte : bytes) {
      TokenId token = token_of_symbol_[static_cast<uint8_t>(byte)];
      if (token == kNoToken) token = vocabulary_.unknown;
      if (token != kNoToken) tokens->push_back(token);
    }
  }

  // Constant after construction.
  absl::flat_hash_map<std::string, Symbol> symbols_;
  std::vector<TokenId> token_of_symbol_;  // kNoToken for a symbol that is no token
  absl::flat_hash_map<uint64_t, PairJoiner::Join> merges_;
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::MakeBpe(Vocabulary vocabulary) {
  return std::make_unique<BpeTokenizer>(std::move(vocabulary));
}

}  // namespace stagecoach
