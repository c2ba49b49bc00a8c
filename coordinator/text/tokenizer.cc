#include "coordinator/text/tokenizer.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/text/token_bytes.h"
#include "coordinator/text/pretokenizer.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

bool IsWhiteSpace(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isspace(c); });
}

// border[i] is the length of the longest proper prefix of `text` that ends at text[i] (Knuth, Morris and Pratt, 1977).
std::vector<size_t> Borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

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

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(metadata));
  const bool sentence_piece = vocabulary.model == Vocabulary::Model::kSentencePiece;
  return sentence_piece ? MakeSpm(std::move(vocabulary)) : MakeBpe(std::move(vocabulary));
}

void Tokenizer::BoundBytesOfToken(size_t bytes, absl::Span<const TokenId> of_bytes) {
  const bool spells_bytes = std::find(of_bytes.begin(), of_bytes.end(), kNoToken) == of_bytes.end();
  if (!spells_bytes && vocabulary_.unknown == kNoToken) return;
  most_bytes_of_token_ = std::max({bytes, special_tokens_.longest_bytes(), size_t{1}});
}

std::optional<std::vector<TokenId>> Tokenizer::EncodeUpTo(size_t most, absl::string_view text, bool add_special,
                                                          bool parse_special) const {
  if (!MayDrop(text, add_special) && TooMany(most, 0, text.size())) return std::nullopt;
  std::optional<std::vector<TokenId>> tokens =
      EncodeAround(most, text, special_tokens_.Find(text, parse_special), /*one_bos=*/add_special);
  if (tokens.has_value() && add_special && vocabulary_.add_eos) tokens->push_back(vocabulary_.eos);
  if (tokens.has_value() && tokens->size() > most) return std::nullopt;
  return tokens;
}

std::optional<std::vector<TokenId>> Tokenizer::EncodeMarkedUpTo(size_t most, const MarkedText& text,
                                                                bool add_bos) const {
  if (!MayDrop(text.text(), add_bos) && TooMany(most, 0, text.size())) return std::nullopt;
  return EncodeAround(most, text.text(), special_tokens_.Find(text), /*one_bos=*/add_bos);
}

std::optional<std::vector<TokenId>> Tokenizer::EncodeFillUpTo(size_t most, absl::string_view before,
                                                              absl::string_view behind, bool add_bos) const {
  const FillMarkers& fill = *vocabulary_.fill;
  std::vector<TokenId> tokens;
  if (add_bos && vocabulary_.add_bos) tokens.push_back(vocabulary_.bos);
  for (const auto& [marker, text] :
       {std::pair<TokenId, absl::string_view>{fill.prefix, before}, {fill.suffix, behind}, {fill.middle, ""}}) {
    tokens.push_back(marker);
    const auto part = EncodeUpTo(most, text, /*add_special=*/false, /*parse_special=*/false);
    if (!part.has_value()) return std::nullopt;
    tokens.insert(tokens.end(), part->begin(), part->end());
  }
  if (tokens.size() > most) return std::nullopt;
  return tokens;
}

std::optional<std::vector<TokenId>> Tokenizer::EncodeAround(size_t most, absl::string_view text,
                                                            const std::vector<SpecialTokens::Match>& matches,
                                                            bool one_bos) const {
  // A template can have a blank line before the token, and another part of it can write the token once more.
  const bool own_bos = !matches.empty() && matches.front().token == vocabulary_.bos &&
                       IsWhiteSpace(text.substr(0, matches.front().position));
  std::vector<TokenId> tokens;
  if (one_bos && vocabulary_.add_bos && !own_bos) tokens.push_back(vocabulary_.bos);
  size_t position = 0;
  const auto fill = [&](size_t end) {
    return end <= position || EncodeFragment(most, text.substr(position, end - position), &tokens);
  };
  const bool swallows = !vocabulary_.swallow_space.empty();
  bool begins = one_bos && own_bos;  // nothing but that token and white space so far
  for (const SpecialTokens::Match& match : matches) {
    begins = begins && match.token == vocabulary_.bos && IsWhiteSpace(text.substr(position, match.position - position));
    if (!fill(match.position)) return std::nullopt;
    if (!begins && !swallows && TooMany(most, tokens.size(), text.size() - match.position)) return std::nullopt;
    if (!begins || &match == &matches.front()) tokens.push_back(match.token);
    position = std::max(position, AfterSpecial(text, match));
  }
  if (!fill(text.size()) || tokens.size() > most) return std::nullopt;
  return tokens;
}

bool Tokenizer::MayDrop(absl::string_view text, bool one_bos) const {
  if (!vocabulary_.swallow_space.empty()) return true;
  return one_bos && vocabulary_.bos != kNoToken &&
         absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), vocabulary_.texts[vocabulary_.bos]);
}

size_t Tokenizer::AfterSpecial(absl::string_view text, const SpecialTokens::Match& match) const {
  const size_t end = match.position + match.bytes;
  const std::vector<TokenId>& swallow = vocabulary_.swallow_space;
  if (!std::binary_search(swallow.begin(), swallow.end(), match.token)) return end;
  return EndOfSpace(text, end);
}

std::string Tokenizer::TokenBytes(TokenId token, bool render_control) const {
  if (token < 0 || token >= vocab_size()) return "";
  if (!IsPlainToken(vocabulary_, token)) return render_control ? vocabulary_.texts[token] : "";
  return PlainTokenBytes(vocabulary_, token);
}

std::string Tokenizer::Decode(absl::Span<const TokenId> tokens, bool render_control) const {
  std::string text;
  bool strip_space = strips_leading_space();
  for (const TokenId token : tokens) {
    std::string bytes = TokenBytes(token, render_control);
    // A control token before the text does not hide where the text starts.
    if (strip_space && !TokenBytes(token, /*render_control=*/false).empty()) {
      strip_space = false;
      if (bytes[0] == ' ') bytes.erase(0, 1);
    }
    text += bytes;
  }
  return text;
}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool at_text_start, bool render_control)
    : tokenizer_(tokenizer),
      strip_space_(at_text_start && tokenizer->strips_leading_space()),
      render_control_(render_control) {}

std::string Detokenizer::Push(TokenId token) {
  const std::string bytes = tokenizer_->TokenBytes(token, render_control_);
  if (bytes.empty()) return "";
  const bool strip = std::exchange(strip_space_, false) && bytes[0] == ' ';
  pending_.append(bytes, strip ? 1 : 0, std::string::npos);
  std::string text;
  pending_.erase(0, AppendWholeUtf8(pending_, &text));
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  if (!pending_.empty()) AppendUtf8(kReplacementCharacter, &text);
  pending_.clear();
  return text;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    std::vector<size_t> border = Borders(text);
    stops_.push_back({std::move(text), std::move(border), 0});
  }
}

bool StopMatcher::Advance(Stop* stop, char next) {
  while (stop->matched > 0 && next != stop->text[stop->matched]) stop->matched = stop->border[stop->matched - 1];
  if (next == stop->text[stop->matched]) ++stop->matched;
  return stop->matched == stop->text.size();
}

std::string StopMatcher::Push(absl::string_view text) {
  if (stopped_) return "";
  std::string stream = std::exchange(held_, "");
  const size_t already_seen = stream.size();
  stream.append(text.data(), text.size());
  size_t held_bytes = already_seen;
  for (size_t end = already_seen + 1; end <= stream.size(); ++end) {
    size_t longest_match = 0;
    held_bytes = 0;
    for (Stop& stop : stops_) {
      if (Advance(&stop, stream[end - 1])) longest_match = std::max(longest_match, stop.text.size());
      held_bytes = std::max(held_bytes, stop.matched);
    }
    if (longest_match > 0) {
      stopped_ = true;
      match_ = stream.substr(end - longest_match, longest_match);
      stream.erase(end - longest_match);
      return stream;
    }
  }
  held_ = stream.substr(stream.size() - held_bytes);
  stream.erase(stream.size() - held_bytes);
  return stream;
}

std::string StopMatcher::Flush() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, "");
}

}  // namespace stagecoach
