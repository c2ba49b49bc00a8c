#include "coordinator/text/spm_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte a text of the form <0xNN> names, or -1.
int ByteNamed(absl::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = HexDigit(text[3]), low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

// The symbols of one fragment as a linked list.
struct SpmTokenizer::Workspace {
  struct Symbol {
    size_t start;
    size_t bytes;  // 0: joined to one before
    TokenId token;
    size_t previous;
    size_t next;
  };
  struct Candidate {
    float score;
    TokenId token;
    size_t left;
    size_t bytes;  // of both together
    // For a heap with the best on top.
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  absl::string_view text;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

SpmTokenizer::SpmTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < vocabulary_.texts.size(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    const std::string& text = vocabulary_.texts[i];
    const int byte = vocabulary_.types[i] == TokenType::kByte ? ByteNamed(text) : -1;
    if (byte >= 0) {
      if (byte_tokens_[byte] == kNoToken) byte_tokens_[byte] = token;
    } else if (IsPlain(token) && !text.empty()) {
      pieces_.try_emplace(text, token);  // a repeated text keeps its first id
      longest_piece_bytes_ = std::max(longest_piece_bytes_, text.size());
    }
  }
}

std::string SpmTokenizer::TokenBytes(TokenId token, bool render_control) const {
  if (token < 0 || token >= vocab_size()) return "";
  const std::string& text = vocabulary_.texts[token];
  switch (vocabulary_.types[token]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUnused:
      return render_control ? text : "";
    case TokenType::kUserDefined:
      return text;
    case TokenType::kByte:
      if (const int byte = ByteNamed(text); byte >= 0) {
        return std::string(1, static_cast<char>(static_cast<uint8_t>(byte)));
      }
      break;
    default:
      break;
  }
  return absl::StrReplaceAll(text, {{kSpaceMark, " "}});
}

TokenId SpmTokenizer::TokenOf(absl::string_view piece) const {
  if (piece.size() > longest_piece_bytes_) return kNoToken;
  const auto found = pieces_.find(piece);
  return found == pieces_.end() ? kNoToken : found->second;
}

void SpmTokenizer::EncodeFragment(absl::string_view text, std::vector<TokenId>* tokens) const {
  std::string marked = absl::StrReplaceAll(text, {{" ", kSpaceMark}});
  if (vocabulary_.add_space_prefix) marked.insert(0, kSpaceMark);
  Workspace workspace;
  workspace.text = marked;
  JoinPairs(&workspace);
  const std::vector<Workspace::Symbol>& symbols = workspace.symbols;
  for (size_t at = 0; at != kNone; at = symbols[at].next) {
    if (symbols[at].token != kNoToken) {
      tokens->push_back(symbols[at].token);
    } else {
      AppendBytesOf(workspace.text.substr(symbols[at].start, symbols[at].bytes), tokens);
    }
  }
}

void SpmTokenizer::JoinPairs(Workspace* workspace) const {
  const absl::string_view text = workspace->text;
  std::vector<Workspace::Symbol>& symbols = workspace->symbols;
  std::vector<Workspace::Candidate>& heap = workspace->heap;
  for (size_t start = 0; start < text.size();) {
    const size_t bytes = DecodeUtf8(text, start).bytes;
    const size_t index = symbols.size();
    symbols.push_back({start, bytes, TokenOf(text.substr(start, bytes)), index == 0 ? kNone : index - 1, index + 1});
    start += bytes;
  }
  symbols.back().next = kNone;
  for (size_t i = 0; i < symbols.size(); ++i) PushCandidate(i, workspace);
  while (!heap.empty()) {
    const Workspace::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Workspace::Symbol& left = symbols[best.left];
    // Both may have been joined to something else since.
    if (left.bytes == 0 || left.next == kNone || left.bytes + symbols[left.next].bytes != best.bytes) continue;
    Workspace::Symbol& right = symbols[left.next];
    left.bytes = best.bytes;
    left.token = best.token;
    left.next = right.next;
    right.bytes = 0;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    PushCandidate(best.left, workspace);
    if (left.previous != kNone) PushCandidate(left.previous, workspace);
  }
}

void SpmTokenizer::PushCandidate(size_t left, Workspace* workspace) const {
  const Workspace::Symbol& symbol = workspace->symbols[left];
  if (symbol.next == kNone) return;
  const size_t bytes = symbol.bytes + workspace->symbols[symbol.next].bytes;
  const TokenId token = TokenOf(workspace->text.substr(symbol.start, bytes));
  if (token == kNoToken) return;
  workspace->heap.push_back({vocabulary_.scores[token], token, left, bytes});
  std::push_heap(workspace->heap.begin(), workspace->heap.end());
}

void SpmTokenizer::AppendBytesOf(absl::string_view symbol, std::vector<TokenId>* tokens) const {
  const auto token_of = [this](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return token_of(byte) != kNoToken; })) {
    for (const char byte : symbol) tokens->push_back(token_of(byte));
  } else if (vocabulary_.unknown != kNoToken) {
    tokens->push_back(vocabulary_.unknown);
  }
}

}  // namespace stagecoach
