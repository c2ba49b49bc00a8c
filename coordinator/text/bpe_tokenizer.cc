#include "coordinator/text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "coordinator/text/pretokenizer.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr uint32_t kAlphabetEnd = 0x100 + 68;

// The byte each code point below kAlphabetEnd stands for, or -1.
std::array<int16_t, kAlphabetEnd> MakeAlphabet() {
  std::array<int16_t, kAlphabetEnd> bytes;
  bytes.fill(-1);
  uint32_t next_spare = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes[printable ? static_cast<uint32_t>(byte) : next_spare++] = byte;
  }
  return bytes;
}

// Appends the bytes that a token's text stands for. A character outside the alphabet stands for itself, and the answer
// is false.
bool AppendBytes(absl::string_view text, std::string* bytes) {
  static const std::array<int16_t, kAlphabetEnd> alphabet = MakeAlphabet();
  bool whole = true;
  for (size_t position = 0; position < text.size();) {
    const DecodedChar next = DecodeUtf8(text, position);
    const bool known = next.code_point < kAlphabetEnd && alphabet[next.code_point] >= 0;
    if (known) {
      bytes->push_back(static_cast<char>(static_cast<uint8_t>(alphabet[next.code_point])));
    } else {
      bytes->append(text.data() + position, next.bytes);
    }
    whole = whole && known;
    position += next.bytes;
  }
  return whole;
}

}  // namespace

// The symbols of one piece as a linked list; a symbol is known by the position of its first byte.
struct BpeTokenizer::Workspace {
  struct Link {
    Symbol symbol;  // -1: joined to one before
    size_t previous;
    size_t next;
  };
  struct Candidate {
    int32_t rank;
    Symbol left_symbol;
    Symbol right_symbol;
    Symbol result;
    size_t left;
    // For a heap with the best on top.
    bool operator<(const Candidate& other) const { return std::tie(other.rank, other.left) < std::tie(rank, left); }
  };
  std::vector<Link> links;
  std::vector<Candidate> heap;
};

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {
  symbols_.reserve(vocabulary_.texts.size() + 256);
  for (int byte = 0; byte < 256; ++byte) {
    Intern(std::string(1, static_cast<char>(static_cast<uint8_t>(byte))), kNoToken);
  }
  for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    std::string bytes;
    if (IsPlain(token) && AppendBytes(vocabulary_.texts[i], &bytes) && !bytes.empty()) Intern(bytes, token);
  }
  merges_.reserve(vocabulary_.merges.size());
  int32_t rank = 0;
  for (const std::string& merge : vocabulary_.merges) {
    const absl::string_view text = merge;
    const size_t space = text.find(' ', 1);
    std::string left, right;
    const bool left_whole = AppendBytes(text.substr(0, space), &left);
    // Text is always made of the alphabet, so other merges never apply.
    if (!left_whole || !AppendBytes(text.substr(space + 1), &right)) continue;
    const Symbol result = Intern(left + right, kNoToken);
    merges_.try_emplace(Pair(Intern(left, kNoToken), Intern(right, kNoToken)), Merge{rank++, result});
  }
  vocabulary_.merges = {};
}

BpeTokenizer::Symbol BpeTokenizer::Intern(const std::string& bytes, TokenId token) {
  const auto [entry, inserted] = symbols_.try_emplace(bytes, static_cast<Symbol>(token_of_symbol_.size()));
  if (inserted) token_of_symbol_.push_back(kNoToken);
  TokenId& known = token_of_symbol_[entry->second];
  if (known == kNoToken) known = token;  // a repeated text keeps its first id
  return entry->second;
}

std::string BpeTokenizer::TokenBytes(TokenId token, bool render_control) const {
  if (token < 0 || token >= vocab_size()) return "";
  const std::string& text = vocabulary_.texts[token];
  switch (vocabulary_.types[token]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUnused:
      return render_control ? text : "";
    case TokenType::kUserDefined:
      return text;
    default:
      break;
  }
  std::string bytes;
  AppendBytes(text, &bytes);
  return bytes;
}

void BpeTokenizer::EncodeFragment(absl::string_view text, std::vector<TokenId>* tokens) const {
  Workspace workspace;
  while (!text.empty()) {
    const size_t bytes = FirstPieceBytes(vocabulary_.pre_tokenizer, text);
    EncodePiece(text.substr(0, bytes), &workspace, tokens);
    text.remove_prefix(bytes);
  }
}

void BpeTokenizer::EncodePiece(absl::string_view piece, Workspace* workspace, std::vector<TokenId>* tokens) const {
  if (vocabulary_.pre_tokenizer == PreTokenizer::kLlamaBpe) {  // it takes a whole word before any merge
    const auto whole = symbols_.find(piece);
    if (whole != symbols_.end() && token_of_symbol_[whole->second] != kNoToken) {
      tokens->push_back(token_of_symbol_[whole->second]);
      return;
    }
  }
  JoinPairs(piece, workspace);
  const std::vector<Workspace::Link>& links = workspace->links;
  for (size_t at = 0; at != kNone; at = links[at].next) {
    const size_t end = links[at].next == kNone ? piece.size() : links[at].next;
    AppendSymbol(links[at].symbol, piece.substr(at, end - at), tokens);
  }
}

void BpeTokenizer::JoinPairs(absl::string_view piece, Workspace* workspace) const {
  std::vector<Workspace::Link>& links = workspace->links;
  std::vector<Workspace::Candidate>& heap = workspace->heap;
  links.clear();
  heap.clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    links.push_back({static_cast<uint8_t>(piece[i]), i == 0 ? kNone : i - 1, i + 1 == piece.size() ? kNone : i + 1});
  }
  for (size_t i = 0; i < piece.size(); ++i) PushCandidate(i, workspace);
  while (!heap.empty()) {
    const Workspace::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Workspace::Link& left = links[best.left];
    // Both may have been joined to something else since.
    if (left.symbol != best.left_symbol || left.next == kNone || links[left.next].symbol != best.right_symbol) continue;
    Workspace::Link& right = links[left.next];
    left.symbol = best.result;
    left.next = right.next;
    right.symbol = -1;
    if (left.next != kNone) links[left.next].previous = best.left;
    PushCandidate(best.left, workspace);
    if (left.previous != kNone) PushCandidate(left.previous, workspace);
  }
}

void BpeTokenizer::PushCandidate(size_t left, Workspace* workspace) const {
  const Workspace::Link& link = workspace->links[left];
  if (link.next == kNone) return;
  const Symbol right_symbol = workspace->links[link.next].symbol;
  const auto merge = merges_.find(Pair(link.symbol, right_symbol));
  if (merge == merges_.end()) return;
  workspace->heap.push_back({merge->second.rank, link.symbol, right_symbol, merge->second.result, left});
  std::push_heap(workspace->heap.begin(), workspace->heap.end());
}

void BpeTokenizer::AppendSymbol(Symbol symbol, absl::string_view bytes, std::vector<TokenId>* tokens) const {
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

}  // namespace stagecoach
