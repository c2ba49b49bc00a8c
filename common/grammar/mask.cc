#include "common/grammar/mask.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace stagecoach {
namespace {

constexpr int kAnyRoom = 1 << 20;
// Nodes below a place that make it worth to find out whether its bytes lead on alike.
constexpr uint32_t kManyNodes = 2048;
constexpr uint32_t kBottom = uint32_t{1} << 31;  // beside a state in a key: nothing is below it
// What is done in the time of a step.
constexpr size_t kWordsOfAStep = 8;
constexpr uint32_t kTokensOfAStep = 4;
constexpr int64_t kStepsOfAnExit = 4;  // it is put in order, too

void AllowToken(TokenId token, std::vector<uint64_t>* allowed) {
  (*allowed)[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
}

}  // namespace

size_t GrammarMasks::Entry::Bytes() const {
  return allowed.size() * sizeof(uint64_t) + (exits.size() + 2 * key.size()) * sizeof(uint32_t);
}

GrammarMasks::GrammarMasks(std::shared_ptr<const GrammarVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), words_(static_cast<size_t>(vocabulary_->size() + 63) / 64) {}

GrammarMasks::Found GrammarMasks::Allowed(const GrammarMatcher& matcher, std::vector<uint64_t>* allowed) {
  allowed->assign(words_, 0);
  Found found;
  if (matcher.ended()) {
    for (const TokenId token : vocabulary_->ends()) AllowToken(token, allowed);
    found.any = true;
    return found;
  }
  Scratch scratch;
  for (const GrammarMatcher::Stack& stack : matcher.stacks()) {
    found.cut_short = found.steps >= max_steps();
    if (found.cut_short) break;
    const EntryPtr entry = Find(matcher.program(), stack, &scratch, &found);
    for (size_t i = 0; i < words_; ++i) (*allowed)[i] |= entry->allowed[i];
    found.any = found.any || entry->any;
    found.cut_short = entry->steps >= max_steps();
  }
  return found;
}

GrammarMasks::EntryPtr GrammarMasks::Find(const GrammarProgram& program, const GrammarMatcher::Stack& stack,
                                          Scratch* scratch, Found* found) {
  const int room = kMaxGrammarDepth + 1 - static_cast<int>(stack.size());
  // First what holds with any room; where room is short, what holds with just this.
  for (int assumed = kAnyRoom;; assumed = room) {
    std::vector<uint32_t> key = {static_cast<uint32_t>(program.serial()), static_cast<uint32_t>(program.serial() >> 32),
                                 static_cast<uint32_t>(assumed)};
    EntryPtr entry;
    for (size_t frame = stack.size(); frame-- > 0;) {
      const bool bottom = frame == 0;
      key.push_back(stack[frame] | (bottom ? kBottom : 0));
      if (EntryPtr kept = Kept(key); kept != nullptr) {
        entry = std::move(kept);
      } else {
        const int above = static_cast<int>(stack.size() - 1 - frame);  // states
        Entry made = Make(program, entry.get(), stack[frame], assumed + above, bottom, scratch);
        made.room_needed -= above;
        if (entry != nullptr) made.room_needed = std::max(made.room_needed, entry->room_needed);
        made.key = key;
        entry = Keep(std::move(made));
        found->kept = false;
      }
      const bool in_vain = assumed != room && entry->room_needed > room;
      if (!in_vain && !bottom && !entry->exits.empty() && entry->steps < max_steps()) continue;
      found->steps += entry->steps;
      if (in_vain) break;
      return entry;
    }
  }
}

GrammarMasks::Entry GrammarMasks::Make(const GrammarProgram& program, const Entry* above, GrammarStateId state,
                                       int room, bool bottom, Scratch* scratch) const {
  static const std::vector<uint32_t> kRoot = {0};
  Entry entry;
  if (above == nullptr) {
    entry.allowed.assign(words_, 0);
  } else {
    entry.allowed = above->allowed;
    entry.any = above->any;
    entry.steps = above->steps;
  }
  entry.steps += static_cast<int64_t>(words_ / kWordsOfAStep);
  scratch->walk.Allow(max_steps() - entry.steps);
  ByteChains chains(program, bottom);
  for (const uint32_t start : above == nullptr ? kRoot : above->exits) {
    if (scratch->walk.exhausted()) break;
    WalkTree(program, state, room, bottom, start, &chains, scratch, &entry);
  }
  // Behind one start they are in order.
  if (above != nullptr) std::sort(entry.exits.begin(), entry.exits.end());
  entry.exits.erase(std::unique(entry.exits.begin(), entry.exits.end()), entry.exits.end());
  return entry;
}

void GrammarMasks::WalkTree(const GrammarProgram& program, GrammarStateId state, int room, bool bottom, uint32_t start,
                            ByteChains* chains, Scratch* scratch, Entry* entry) const {
  const TokenTree& tree = vocabulary_->tree();
  const absl::Span<const TokenTree::Node> nodes = tree.nodes();
  FrameWalk& walk = scratch->walk;
  std::vector<ByteChains::Link>& links_of_path = scratch->links_of_path;
  const int64_t steps_before = walk.steps() - entry->steps;
  walk.Begin(program, state, room);
  const auto may_exit = [&](uint32_t node, size_t depth) {
    if (!walk.Exits(depth) || bottom || (node != 0 && nodes[node].end == node + 1)) return;
    entry->exits.push_back(node);
    walk.Spend(kStepsOfAnExit);
  };
  if (start == 0) {
    walk.ForEachAtom([&](TokenId token, FrameWalk::Config) {
      if (token < vocabulary_->size()) AllowToken(token, &entry->allowed), entry->any = true;
    });
    if (bottom && walk.Exits(0)) {
      for (const TokenId token : vocabulary_->ends()) AllowToken(token, &entry->allowed), entry->any = true;
    }
  }
  may_exit(start, 0);
  const auto link_at = [&](uint32_t node, size_t depth) -> ByteChains::Link {
    const absl::Span<const FrameWalk::Config> configs = walk.All(depth);
    if (configs.size() != 1 || configs[0].node != 0) return {};
    const int64_t learnt = chains->steps();
    const ByteChains::Link link = chains->Of(configs[0].state, node == 0 || nodes[node].end - node >= kManyNodes);
    walk.Spend(chains->steps() - learnt);
    return link;
  };
  links_of_path.assign(1, link_at(start, 0));
  for (uint32_t node = start + 1; node < nodes[start].end;) {
    const size_t depth = static_cast<size_t>(nodes[node].depth - nodes[start].depth) - 1;
    const ByteChains::Link link = links_of_path[depth];
    const bool in_bytes = (link.kinds >> TokenTree::kOtherBytes & 1) != 0;
    const int length = in_bytes ? nodes[node].bytes_below : nodes[node].characters_below;
    if ((tree.KindsBelow(node) & ~link.kinds) == 0 && length <= link.run) {
      AllowTokens(nodes[node].first_token, nodes[nodes[node].end].first_token, &walk, entry);
      node = nodes[node].end;
      continue;
    }
    if (!walk.Step(depth, nodes[node].byte)) {
      node = nodes[node].end;
      if (walk.exhausted()) break;
      continue;
    }
    AllowTokens(nodes[node].first_token, nodes[node + 1].first_token, &walk, entry);
    may_exit(node, depth + 1);
    links_of_path.resize(depth + 1);
    if (nodes[node].end > node + 1) links_of_path.push_back(link_at(node, depth + 1));
    ++node;
    if (walk.exhausted()) break;
  }
  entry->room_needed = std::max(entry->room_needed, walk.room_needed());
  entry->steps = walk.steps() - steps_before;
}

void GrammarMasks::AllowTokens(uint32_t first, uint32_t last, FrameWalk* walk, Entry* entry) const {
  const absl::Span<const TokenId> tokens = vocabulary_->tree().tokens();
  uint64_t* const words = entry->allowed.data();
  for (uint32_t i = first; i < last; ++i) words[tokens[i] / 64] |= uint64_t{1} << (tokens[i] % 64);
  entry->any = entry->any || first < last;
  walk->Spend((last - first) / kTokensOfAStep);
}

GrammarMasks::EntryPtr GrammarMasks::Kept(const std::vector<uint32_t>& key) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return *found->second;
}

GrammarMasks::EntryPtr GrammarMasks::Keep(Entry entry) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto [place, fresh] = by_key_.try_emplace(entry.key);
  if (!fresh) return *place->second;
  cached_bytes_ += entry.Bytes();
  entries_.push_front(std::make_shared<const Entry>(std::move(entry)));
  place->second = entries_.begin();
  while (cached_bytes_ > kMaxCachedMasks * words_ * sizeof(uint64_t) && entries_.size() > 1) {
    cached_bytes_ -= entries_.back()->Bytes();
    by_key_.erase(entries_.back()->key);
    entries_.pop_back();
  }
  return entries_.front();
}

size_t GrammarMasks::cached_bytes() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return cached_bytes_;
}

void ForbidOtherTokens(absl::Span<const uint64_t> allowed, absl::Span<float> logits) {
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  for (size_t begin = 0; begin < logits.size(); begin += 64) {
    const size_t count = std::min<size_t>(64, logits.size() - begin);
    uint64_t forbidden = ~allowed[begin / 64];
    if (forbidden == ~uint64_t{0}) {
      std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(begin), count, kForbidden);
      continue;
    }
    if (count < 64) forbidden &= (uint64_t{1} << count) - 1;
    for (; forbidden != 0; forbidden &= forbidden - 1) {
      logits[begin + static_cast<size_t>(std::countr_zero(forbidden))] = kForbidden;
    }
  }
}

}  // namespace stagecoach
