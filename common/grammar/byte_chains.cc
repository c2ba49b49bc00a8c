#include "common/grammar/byte_chains.h"

#include <algorithm>
#include <utility>

#include "common/grammar/grammar_vocabulary.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxLinks = 33;  // few tokens have more bytes
constexpr int kEndless = 1 << 20;
constexpr size_t kMaxSeen = 16;         // usual automata have 7
constexpr int64_t kStepsOfAState = 32;  // some 128 to 384 bytes of it are looked at

constexpr uint64_t kOtherBytes = uint64_t{1} << TokenTree::kOtherBytes;

uint64_t WithoutKind(uint64_t kinds, int kind) { return kinds & ~(uint64_t{1} << kind); }

}  // namespace

ByteChains::Link ByteChains::Of(GrammarStateId state, bool learn) {
  if (state == last_) return last_link_;
  auto found = links_.find(state);
  if (found == links_.end()) {
    if (!learn) return {};
    Learn(state);
    found = links_.find(state);
  }
  last_ = state;
  return last_link_ = found->second;
}

void ByteChains::Learn(GrammarStateId state) {
  std::vector<std::pair<GrammarStateId, Link>> chain = {{state, {}}};
  while (chain.size() < kMaxLinks) {
    auto& [from, link] = chain.back();
    steps_ += kStepsOfAState;
    next_ = MostUsualTarget(from);
    if (next_ == kNoGrammarState || !IsPlain(from)) break;
    if (program_.DepthToAccept(next_) > program_.DepthToAccept(from)) break;  // there might be no room
    link.kinds = KindsToNext(from);
    if (next_ == from) link.run = kEndless;
    if (next_ == from || link.kinds == 0) break;
    chain.emplace_back(next_, Link());
  }
  for (size_t i = chain.size() - 1; i-- > 0;) {
    Link& link = chain[i].second;
    const Link& next = chain[i + 1].second;
    const bool same_unit = ((link.kinds ^ next.kinds) & kOtherBytes) == 0;
    link.run = 1 + (same_unit && (link.kinds & ~next.kinds) == 0 ? next.run : 0);
  }
  links_[state] = chain[0].second;
  for (const auto& [reached, link] : chain) links_.try_emplace(reached, link);
}

GrammarStateId ByteChains::MostUsualTarget(GrammarStateId state) const {
  GrammarStateId best = kNoGrammarState;
  int most = 0;
  for (int byte = 0; byte < 128;) {
    const GrammarStateId target = program_.Target(state, static_cast<uint8_t>(byte));
    const int first = byte;
    while (++byte < 128 && program_.Target(state, static_cast<uint8_t>(byte)) == target) {
    }
    if (target != kNoGrammarState && byte - first > most) best = target, most = byte - first;
  }
  return best;
}

// Calls might return later, to what is not looked at here, and so might a state that accepts, if something is below.
bool ByteChains::IsPlain(GrammarStateId state) const {
  return program_.Calls(state).empty() && (bottom_ || !program_.Accepts(state));
}

uint64_t ByteChains::KindsToNext(GrammarStateId state) {
  uint64_t kinds = ~uint64_t{0};
  for (int byte = 0; byte < 128; ++byte) {
    const auto ascii = static_cast<uint8_t>(byte);
    if (program_.Target(state, ascii) != next_) kinds = WithoutKind(kinds, TokenTree::KindOf(ascii));
  }
  for (int byte = 128; byte < 256; ++byte) {
    if (program_.Target(state, static_cast<uint8_t>(byte)) == next_) continue;
    kinds = WithoutKind(kinds, TokenTree::kOtherBytes);
    seen_.clear();
    if (!LeadToNext(state, {})) kinds = WithoutKind(kinds, TokenTree::kWholeCharacters);
    break;
  }
  return kinds;
}

// Whether all characters but ASCII's do, from a place within one.
bool ByteChains::LeadToNext(GrammarStateId state, Utf8Place place) {
  steps_ += kStepsOfAState;
  for (int byte = 128; byte < 256; ++byte) {
    const Utf8Place next = place.After(static_cast<uint8_t>(byte));
    if (next.broken) continue;
    const GrammarStateId target = program_.Target(state, static_cast<uint8_t>(byte));
    if (next.to_come == 0) {
      if (target != next_) return false;
      continue;
    }
    if (target == kNoGrammarState || !IsPlain(target)) return false;
    const Seen seen = {target, next.to_come, next.first, next.last};
    if (std::find(seen_.begin(), seen_.end(), seen) != seen_.end()) continue;
    if (seen_.size() >= kMaxSeen || !LeadToNext(target, next)) return false;
    seen_.push_back(seen);
  }
  return true;
}

}  // namespace stagecoach
