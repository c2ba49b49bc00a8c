#include "coordinator/text/special_tokens.h"

#include <algorithm>
#include <tuple>

namespace stagecoach {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1) {
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool always = type == TokenType::kUserDefined;
    if (vocabulary.texts[i].empty() || !(always || type == TokenType::kControl || type == TokenType::kUnknown))
      continue;
    Insert(vocabulary.texts[i], Node{static_cast<TokenId>(i), always});
  }
}

void SpecialTokens::Insert(absl::string_view text, Node node) {
  size_t at = 0;
  longest_bytes_ = std::max(longest_bytes_, text.size());
  for (const char byte : text) {
    const auto [edge, inserted] = edges_.try_emplace(Edge(at, byte), nodes_.size());
    if (inserted) nodes_.emplace_back();
    at = edge->second;
  }
  if (nodes_[at].token == kNoToken) nodes_[at] = node;  // a repeated text keeps its first id
}

std::vector<SpecialTokens::Match> SpecialTokens::Find(absl::string_view text, bool parse_special) const {
  return FindWhere(text, [parse_special](size_t, size_t) { return parse_special; });
}

std::vector<SpecialTokens::Match> SpecialTokens::Find(const MarkedText& text) const {
  return FindWhere(text.text(), [&text](size_t begin, size_t end) { return text.IsTemplate(begin, end); });
}

std::vector<SpecialTokens::Match> SpecialTokens::FindWhere(absl::string_view text, MayBeControl may_be_control) const {
  std::vector<Match> found;
  for (size_t start = 0; start < text.size(); ++start) {
    size_t at = 0;
    for (size_t end = start; end < text.size(); ++end) {
      const auto edge = edges_.find(Edge(at, text[end]));
      if (edge == edges_.end()) break;
      at = edge->second;
      const Node& node = nodes_[at];
      if (node.token != kNoToken && (node.always || may_be_control(start, end + 1)))
        found.push_back({start, end + 1 - start, node.token});
    }
  }
  std::sort(found.begin(), found.end(), [](const Match& a, const Match& b) {
    return std::make_tuple(b.bytes, a.token, a.position) < std::make_tuple(a.bytes, b.token, b.position);
  });
  // What is taken already is at least as long as the next match, so an overlap covers one of its ends.
  std::vector<bool> taken(found.empty() ? 0 : text.size(), false);
  std::vector<Match> matches;
  for (const Match& match : found) {
    if (taken[match.position] || taken[match.position + match.bytes - 1]) continue;
    std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(match.position), match.bytes, true);
    matches.push_back(match);
  }
  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.position < b.position; });
  return matches;
}

}  // namespace stagecoach
