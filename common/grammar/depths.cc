// How many calls have to be remembered on the way to acceptance.

#include <algorithm>

#include "common/grammar/program.h"

namespace stagecoach {
namespace {

constexpr uint8_t kUnknownDepth = 255;

// From `source` one comes to acceptance by way of `target`, and, where there is an `entry`, also from there with
// `target` remembered meanwhile.
struct Way {
  GrammarStateId source, target, entry;
};

std::vector<Way> WaysOf(const GrammarAutomaton& automaton) {
  std::vector<Way> ways;
  for (GrammarStateId source = 0; source < automaton.states.size(); ++source) {
    const GrammarAutomaton::State& state = automaton.states[source];
    for (const auto& edge : state.bytes) ways.push_back({source, edge.target, kNoGrammarState});
    for (const auto& edge : state.atoms) ways.push_back({source, edge.target, kNoGrammarState});
    for (const auto& [entry, after] : state.calls) {
      const bool remembered = !automaton.states[after].IsFinal();
      ways.push_back(remembered ? Way{source, after, entry} : Way{source, entry, kNoGrammarState});
    }
  }
  return ways;
}

// The ways that lead through a state, of all states in one list.
class WaysThrough {
 public:
  WaysThrough(size_t states, const std::vector<Way>& ways) : begin_(states + 1, 0) {
    const auto for_each = [&ways](auto&& visit) {
      for (uint32_t i = 0; i < ways.size(); ++i) {
        visit(ways[i].target, i);
        if (ways[i].entry != kNoGrammarState) visit(ways[i].entry, i);
      }
    };
    for_each([this](GrammarStateId state, uint32_t) { ++begin_[state + 1]; });
    for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    indices_.resize(begin_.back());
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for_each([&](GrammarStateId state, uint32_t index) { indices_[next[state]++] = index; });
  }
  absl::Span<const uint32_t> Of(GrammarStateId state) const {
    return absl::MakeConstSpan(indices_).subspan(begin_[state], begin_[state + 1] - begin_[state]);
  }

 private:
  std::vector<uint32_t> begin_, indices_;
};

}  // namespace

// Dijkstra's, by depth: a state's depth is settled when it is taken from its bucket.
std::vector<uint8_t> DepthsToAccept(const GrammarAutomaton& automaton) {
  const std::vector<Way> ways = WaysOf(automaton);
  const WaysThrough through(automaton.states.size(), ways);
  std::vector<uint8_t> depths(automaton.states.size(), kUnknownDepth);
  std::vector<bool> settled(automaton.states.size(), false);
  std::vector<GrammarStateId> buckets[kMaxGrammarDepth + 1];
  const auto reached = [&](GrammarStateId state, int depth) {
    if (depth > kMaxGrammarDepth || depth >= depths[state]) return;
    depths[state] = static_cast<uint8_t>(depth);
    buckets[depth].push_back(state);
  };
  for (GrammarStateId state = 0; state < depths.size(); ++state) {
    if (automaton.states[state].accepting) reached(state, 0);
  }
  for (int depth = 0; depth <= kMaxGrammarDepth; ++depth) {
    while (!buckets[depth].empty()) {
      const GrammarStateId state = buckets[depth].back();
      buckets[depth].pop_back();
      if (settled[state]) continue;
      settled[state] = true;
      for (const uint32_t index : through.Of(state)) {
        const Way& way = ways[index];
        if (way.entry == kNoGrammarState) {
          reached(way.source, depth);
        } else if (settled[way.target] && settled[way.entry]) {
          reached(way.source, std::max<int>(depths[way.target], depths[way.entry] + 1));
        }
      }
    }
  }
  return depths;
}

}  // namespace stagecoach
