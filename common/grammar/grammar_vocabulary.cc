#include "common/grammar/grammar_vocabulary.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/grammar/utf8_place.h"

namespace stagecoach {
int TokenTree::KindOf(uint8_t ascii) {
  constexpr int kControls = 0, kDigits = 1, kUpper = 2, kLower = 3, kTab = 4, kLineFeed = 5, kReturn = 6, kMarks = 7;
  if (ascii == '\t') return kTab;
  if (ascii == '\n') return kLineFeed;
  if (ascii == '\r') return kReturn;
  if (ascii < ' ' || ascii == 127) return kControls;
  if (ascii >= '0' && ascii <= '9') return kDigits;
  if (ascii >= 'A' && ascii <= 'Z') return kUpper;
  if (ascii >= 'a' && ascii <= 'z') return kLower;
  // Blank and the 32 marks, in their four rows.
  const int before = ascii < '0' ? 0 : ascii < 'A' ? 10 : ascii < 'a' ? 36 : 62;
  return kMarks + (ascii - ' ' - before);
}

TokenTree::TokenTree(absl::Span<const std::string> texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) tokens_.push_back(static_cast<TokenId>(i));
  }
  const auto text_of = [&texts](TokenId token) -> const std::string& { return texts[static_cast<size_t>(token)]; };
  std::sort(tokens_.begin(), tokens_.end(), [&](TokenId a, TokenId b) {
    return std::pair<const std::string&, TokenId>(text_of(a), a) <
           std::pair<const std::string&, TokenId>(text_of(b), b);
  });
  nodes_.push_back({.first_token = 0, .depth = 0, .byte = 0, .bytes_below = 0, .characters_below = 0});
  std::vector<uint32_t> path = {0};  // nodes from the root
  const auto leave_to = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = text_of(tokens_[i]);
    size_t shared = 0;  // with the text before
    while (shared + 1 < path.size() && shared < text.size() &&
           nodes_[path[shared + 1]].byte == static_cast<uint8_t>(text[shared])) {
      ++shared;
    }
    leave_to(shared);
    for (size_t at = shared; at < text.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.first_token = i, .depth = static_cast<uint16_t>(at + 1), .byte = static_cast<uint8_t>(text[at])});
    }
  }
  leave_to(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.end = nodes_[0].end, .first_token = static_cast<uint32_t>(tokens_.size()), .depth = 0, .byte = 0});
  nodes_.shrink_to_fit();
  tokens_.shrink_to_fit();
  AddKinds();
}

void TokenTree::AddKinds() {
  const size_t count = nodes_.size() - 1;
  kinds_.assign(count, 0);
  std::vector<Utf8Place> places = {{}};  // along the path, by depth
  std::vector<uint32_t> inside;          // nodes that begin within a character
  std::vector<uint32_t> parents(count, 0);
  std::vector<uint32_t> path = {0};
  for (uint32_t i = 1; i < count; ++i) {
    const Node& node = nodes_[i];
    places.resize(node.depth);
    path.resize(node.depth);
    parents[i] = path.back();
    const Utf8Place before = places.back(), place = before.After(node.byte);
    places.push_back(place);
    path.push_back(i);
    if (before.to_come > 0) inside.push_back(i);
    const bool token_ends = nodes_[i + 1].first_token > node.first_token;
    const int kind = node.byte < 0x80 ? KindOf(node.byte) : kWholeCharacters;
    kinds_[i] = uint64_t{1} << kind;
    if (place.broken || (token_ends && place.to_come > 0)) kinds_[i] |= uint64_t{1} << kOtherBytes;
  }
  const auto set_most = [](int value, uint8_t* most) { *most = std::max<uint8_t>(*most, std::min(value, 255)); };
  for (size_t i = count; i-- > 1;) {
    Node& node = nodes_[i];
    set_most(node.bytes_below + 1, &node.bytes_below);
    set_most(node.characters_below + ((node.byte & 0xC0) == 0x80 ? 0 : 1), &node.characters_below);
    kinds_[parents[i]] |= kinds_[i];
    if (parents[i] == 0) continue;
    set_most(node.bytes_below, &nodes_[parents[i]].bytes_below);
    set_most(node.characters_below, &nodes_[parents[i]].characters_below);
  }
  for (const uint32_t node : inside) kinds_[node] |= uint64_t{1} << kOtherBytes;
}

size_t TokenTree::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + tokens_.capacity() * sizeof(TokenId) + kinds_.capacity() * sizeof(uint64_t);
}

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> texts, std::vector<Kind> kinds)
    : texts_(std::move(texts)), kinds_(std::move(kinds)) {
  CHECK_EQ(texts_.size(), kinds_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    const bool too_long = texts_[i].size() > kMaxGrammarTokenBytes;
    if (kinds_[i] == Kind::kText && (texts_[i].empty() || too_long)) kinds_[i] = Kind::kControl;
    if (kinds_[i] != Kind::kText) texts_[i].clear();
    if (kinds_[i] == Kind::kEnd) ends_.push_back(static_cast<TokenId>(i));
  }
}

absl::Status GrammarVocabulary::CheckSpellsEveryByte() const {
  std::bitset<256> found;
  for (const std::string& text : texts_) {
    if (text.size() == 1) found.set(static_cast<uint8_t>(text[0]));
  }
  for (size_t byte = 0; byte < found.size(); ++byte) {
    if (found[byte]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the model's vocabulary has no token for byte ", byte, ", and for ", 256 - found.count(),
                     " of the 256 bytes in all, expected one for each: it cannot write every text of a grammar"));
  }
  return absl::OkStatus();
}

size_t GrammarVocabulary::memory_bytes() const {
  size_t bytes = tree().memory_bytes() + texts_.capacity() * sizeof(std::string) + kinds_.capacity() * sizeof(Kind);
  for (const std::string& text : texts_) {
    if (text.capacity() > std::string().capacity()) bytes += text.capacity() + 1;
  }
  return bytes;
}

const TokenTree& GrammarVocabulary::tree() const {
  std::call_once(once_, [this] { tree_ = std::make_unique<const TokenTree>(texts_); });
  return *tree_;
}

}  // namespace stagecoach
