#include "coordinator/guess/suffix_index.h"

#include <cstddef>
#include <utility>

namespace stagecoach {

double SuffixIndex::Continuation::Confidence() const {
  const double promise = static_cast<double>(length) / (static_cast<double>(length) + 2);
  return (count + 2 * promise) / (seen + 2);
}

void SuffixIndex::Append(TokenId token) {
  const int32_t before = last_;
  Extend(token);
  ++size_;
  if (token != kBorder) Count(before, token);
}

void SuffixIndex::Extend(TokenId token) {
  const auto added = static_cast<int32_t>(states_.size());
  states_.push_back({.length = states_[last_].length + 1});
  int32_t state = std::exchange(last_, added);
  while (state != kNone && AddEdge(state, token, added)) state = states_[state].link;
  if (state == kNone) {
    states_[added].link = 0;
    return;
  }
  const int32_t target = edges_.find(Key(state, token))->second.target;
  const bool is_longest = states_[target].length == states_[state].length + 1;
  const int32_t link = is_longest ? target : Split(state, token, target);
  states_[added].link = link;
}

bool SuffixIndex::AddEdge(int32_t state, TokenId token, int32_t target) {
  ++steps_;
  if (!edges_.try_emplace(Key(state, token), Edge{target, states_[state].first, 0}).second) return false;
  states_[state].first = token;
  return true;
}

int32_t SuffixIndex::Split(int32_t state, TokenId token, int32_t target) {
  const auto split = static_cast<int32_t>(states_.size());
  // What followed the target's occurrences so far followed those of all its sequences.
  State shorter = states_[target];
  shorter.length = states_[state].length + 1;
  states_.push_back(shorter);
  states_[target].link = split;
  for (TokenId follower = shorter.first; follower != kEndOfEdges; ++steps_) {
    const Edge edge = edges_.find(Key(target, follower))->second;
    edges_.try_emplace(Key(split, follower), edge);
    follower = edge.next;
  }
  for (; state != kNone; state = states_[state].link, ++steps_) {
    Edge& edge = edges_.find(Key(state, token))->second;
    if (edge.target != target) break;
    edge.target = split;
  }
  return split;
}

void SuffixIndex::Count(int32_t state, TokenId token) {
  for (; state != kNone && states_[state].seen < kMostCounted; state = states_[state].link, ++steps_) {
    State& context = states_[state];
    const uint16_t count = ++edges_.find(Key(state, token))->second.count;
    ++context.seen;
    if (count < context.best_count) continue;
    context.best = token;
    context.best_count = count;
  }
}

SuffixIndex::Place SuffixIndex::End() const {
  const int32_t link = states_[last_].link;
  return link == kNone ? Place{} : Place{link, states_[link].length};
}

SuffixIndex::Place SuffixIndex::Step(Place from, TokenId token) const {
  for (int falls = 0;; ++falls) {
    const auto edge = edges_.find(Key(from.state, token));
    if (edge != edges_.end()) return {edge->second.target, from.length + 1};
    if (from.state == 0) return {};
    from.state = falls < kMostFalls ? states_[from.state].link : 0;
    from.length = states_[from.state].length;
  }
}

SuffixIndex::Place SuffixIndex::Followed(Place place) const {
  while (place.state != 0 && states_[place.state].seen == 0) {
    place.state = states_[place.state].link;
    place.length = states_[place.state].length;
  }
  return place;
}

SuffixIndex::Continuation SuffixIndex::Continued(Place place) const {
  const State& state = states_[place.state];
  return {state.best, place.length, state.best_count, state.seen};
}

int64_t SuffixIndex::bytes() const {
  const size_t slot = sizeof(decltype(edges_)::value_type) + 1;  // of the table, with its control byte
  return static_cast<int64_t>(states_.capacity() * sizeof(State) + edges_.capacity() * slot);
}

}  // namespace stagecoach
