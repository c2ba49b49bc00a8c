#include "coordinator/text/grammar/compile.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/nfa.h"
#include "coordinator/text/grammar/rule_plan.h"

namespace stagecoach {
namespace {

using NfaEdge = GrammarNfa::Edge;

// Edges and states of the NFA looked at while subsets are made.
constexpr size_t kMaxSubsetSteps = 30'000'000;

// Finds what every rule can begin with: rules that may match nothing, whose calls are then also empty edges, and rules
// that call themselves before anything is matched.
class RuleBeginnings {
 public:
  RuleBeginnings(const GrammarRules& rules, GrammarNfa* nfa)
      : rules_(rules),
        nfa_(*nfa),
        reached_(nfa->states.size(), false),
        begin_with_(nfa->rules.size()),
        waiting_(nfa->rules.size()),
        may_be_empty_(nfa->rules.size(), false),
        heights_(nfa->rules.size(), 0) {}

  absl::Status Find() {
    for (size_t id = 0; id < nfa_.rules.size(); ++id) {
      if (nfa_.rules[id].end > 0) Reach(static_cast<RuleId>(id), nfa_.rules[id].start);
    }
    while (!queue_.empty()) {
      const auto [rule, state] = queue_.back();
      queue_.pop_back();
      Leave(rule, state);
    }
    for (size_t id = 0; id < nfa_.rules.size(); ++id) {
      RETURN_IF_ERROR(CheckNoCycle(static_cast<RuleId>(id)));
    }
    AddEmptyEdges();
    return absl::OkStatus();
  }

 private:
  static size_t At(int id) { return static_cast<size_t>(id); }

  void Reach(RuleId rule, uint32_t state) {
    if (reached_[state]) return;
    reached_[state] = true;
    queue_.emplace_back(rule, state);
  }

  void Leave(RuleId rule, uint32_t state) {
    if (state == nfa_.rules[At(rule)].accept && !may_be_empty_[At(rule)]) {
      may_be_empty_[At(rule)] = true;
      for (const auto& [caller, after] : waiting_[At(rule)]) Reach(caller, after);
    }
    for (const NfaEdge& edge : nfa_.states[state]) {
      if (edge.kind == NfaEdge::Kind::kEmpty) Reach(rule, edge.target);
      if (edge.kind != NfaEdge::Kind::kCall) continue;
      begin_with_[At(rule)].push_back(edge.value);
      if (may_be_empty_[At(edge.value)]) {
        Reach(rule, edge.target);
      } else {
        waiting_[At(edge.value)].emplace_back(rule, edge.target);
      }
    }
  }

  // Depth first; path_ are the rules above.
  absl::Status CheckNoCycle(RuleId rule) {
    int& height = heights_[At(rule)];
    if (height > 0) return absl::OkStatus();
    const auto name = [this](RuleId id) { return absl::StrCat("'", rules_.rules()[At(id)].name, "'"); };
    if (const auto found = std::find(path_.begin(), path_.end(), rule); found != path_.end()) {
      const std::string names = absl::StrJoin(found, path_.end(), " -> ",
                                              [&](std::string* out, RuleId id) { absl::StrAppend(out, name(id)); });
      return absl::InvalidArgumentError(
          absl::StrCat("the grammar's rule ", name(rule), " calls itself before it has matched anything: ", names,
                       " -> ", name(rule), "; write it with a repetition, or with itself at its end"));
    }
    path_.push_back(rule);
    int above = 0;
    if (path_.size() <= kMaxGrammarDepth) {
      for (const RuleId callee : begin_with_[At(rule)]) {
        RETURN_IF_ERROR(CheckNoCycle(callee));
        above = std::max(above, heights_[At(callee)]);
      }
    }
    path_.pop_back();
    height = above + 1;
    if (height <= kMaxGrammarDepth && path_.size() < kMaxGrammarDepth) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("of the grammar's rules up to ", name(rule), " more than ",
                                                   kMaxGrammarDepth,
                                                   " call each other in a row before anything is matched"));
  }

  void AddEmptyEdges() {
    for (std::vector<NfaEdge>& state : nfa_.states) {
      for (size_t i = 0, count = state.size(); i < count; ++i) {
        if (state[i].kind != NfaEdge::Kind::kCall || !may_be_empty_[At(state[i].value)]) continue;
        state.push_back({.kind = NfaEdge::Kind::kEmpty, .target = state[i].target});
      }
    }
  }

  const GrammarRules& rules_;
  GrammarNfa& nfa_;
  std::vector<bool> reached_;  // states, before anything is matched
  std::vector<std::pair<RuleId, uint32_t>> queue_;
  std::vector<std::vector<RuleId>> begin_with_;                    // by rule: calls
  std::vector<std::vector<std::pair<RuleId, uint32_t>>> waiting_;  // by rule: where it is called, and the state after
  std::vector<bool> may_be_empty_;                                 // by rule
  std::vector<int> heights_;  // by rule: most calls in a row, its own included; 0: not yet known
  std::vector<RuleId> path_;
};

// Makes states of sets of the NFA's states, rule by rule, so that at most one edge fits each byte, rule or token.
class SubsetMaker {
 public:
  SubsetMaker(const GrammarRules& rules, const std::vector<RuleUse>& plan, const GrammarNfa& nfa)
      : rules_(rules), plan_(plan), nfa_(nfa), stamps_(nfa.states.size(), 0) {}

  absl::StatusOr<GrammarAutomaton> Make(RuleId root) {
    std::vector<GrammarStateId> starts(nfa_.rules.size(), 0), entries(nfa_.rules.size(), 0);
    for (size_t id = 0; id < nfa_.rules.size(); ++id) {
      if (nfa_.rules[id].end == 0) continue;
      ASSIGN_OR_RETURN(starts[id], MakeRule(nfa_.rules[id]));
      entries[id] = starts[id];
      // What calls it has an empty edge for the empty text, see RuleBeginnings.
      if (!out_.states[starts[id]].accepting) continue;
      entries[id] = static_cast<GrammarStateId>(out_.states.size());
      out_.states.push_back(out_.states[starts[id]]);
      out_.states.back().accepting = false;
    }
    for (GrammarAutomaton::State& state : out_.states) {
      for (auto& call : state.calls) call.entry = entries[call.entry];
      std::sort(state.calls.begin(), state.calls.end(),
                [](const auto& a, const auto& b) { return std::pair(a.entry, a.after) < std::pair(b.entry, b.after); });
    }
    out_.start = starts[static_cast<size_t>(root)];
    return std::move(out_);
  }

 private:
  using StateSet = std::vector<uint32_t>;  // ascending

  absl::StatusOr<GrammarStateId> MakeRule(const GrammarNfa::Rule& rule) {
    ids_.clear();
    ids_of_targets_.clear();
    sets_.clear();
    accept_ = rule.accept;
    const auto first = static_cast<GrammarStateId>(out_.states.size());
    IdOf({rule.start});
    for (; !sets_.empty(); sets_.pop_front()) {
      const auto id = static_cast<GrammarStateId>(out_.states.size() - sets_.size());
      MakeEdges(id, *sets_.front());
      if (out_.states.size() > kMaxGrammarStates) {
        return TooLarge(absl::StrCat("needs more than ", kMaxGrammarStates, " states"));
      }
      if (steps_ > kMaxSubsetSteps) return TooLarge("takes too long to compile");
    }
    return first;
  }

  absl::Status TooLarge(absl::string_view what) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("the grammar ", what, ": use smaller bounds in repetitions, and fewer that overlap; its largest ",
                     "rule is '", LargestRule(rules_, plan_), "'"));
  }

  // Of all that the targets lead to with nothing matched. A new one waits for its edges.
  GrammarStateId IdOf(StateSet targets) {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    steps_ += targets.size();
    const auto known = ids_of_targets_.find(targets);
    if (known != ids_of_targets_.end()) return known->second;
    const auto [entry, fresh] = ids_.try_emplace(Closure(targets), static_cast<GrammarStateId>(out_.states.size()));
    if (fresh) {
      out_.states.emplace_back();
      sets_.push_back(&entry->first);
    }
    ids_of_targets_.emplace(std::move(targets), entry->second);
    return entry->second;
  }

  // Only states with edges that are not empty, and the one that accepts: others make no difference.
  StateSet Closure(const StateSet& targets) {
    ++stamp_;
    StateSet closure, stack = targets;
    for (const uint32_t state : targets) stamps_[state] = stamp_;
    while (!stack.empty()) {
      const uint32_t state = stack.back();
      stack.pop_back();
      bool counts = state == accept_;
      for (const NfaEdge& edge : nfa_.states[state]) {
        ++steps_;
        if (edge.kind != NfaEdge::Kind::kEmpty) {
          counts = true;
        } else if (stamps_[edge.target] != stamp_) {
          stamps_[edge.target] = stamp_;
          stack.push_back(edge.target);
        }
      }
      if (counts) closure.push_back(state);
    }
    std::sort(closure.begin(), closure.end());
    return closure;
  }

  void MakeEdges(GrammarStateId id, const StateSet& set) {
    GrammarAutomaton::State made;
    std::vector<NfaEdge> byte_edges;
    absl::flat_hash_map<int32_t, StateSet> calls, atoms;
    for (const uint32_t state : set) {
      made.accepting = made.accepting || state == accept_;
      for (const NfaEdge& edge : nfa_.states[state]) {
        ++steps_;
        if (edge.kind == NfaEdge::Kind::kBytes) byte_edges.push_back(edge);
        if (edge.kind == NfaEdge::Kind::kCall) calls[edge.value].push_back(edge.target);
        if (edge.kind == NfaEdge::Kind::kAtom) atoms[edge.value].push_back(edge.target);
      }
    }
    MakeByteEdges(byte_edges, &made);
    for (int32_t rule : KeysOf(calls)) {
      made.calls.push_back({static_cast<GrammarStateId>(rule), IdOf(std::move(calls[rule]))});
    }
    for (int32_t token : KeysOf(atoms)) made.atoms.push_back({token, IdOf(std::move(atoms[token]))});
    out_.states[id] = std::move(made);
  }

  // Ascending: what is made must not depend on a hash.
  static std::vector<int32_t> KeysOf(const absl::flat_hash_map<int32_t, StateSet>& map) {
    std::vector<int32_t> keys;
    for (const auto& [key, targets] : map) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  // Between two places at which an edge begins or ends, all bytes have the same targets.
  void MakeByteEdges(const std::vector<NfaEdge>& edges, GrammarAutomaton::State* made) {
    ByteSet is_place;
    for (const NfaEdge& edge : edges) {
      is_place.set(edge.first);
      if (edge.last < 255) is_place.set(edge.last + 1u);
    }
    std::vector<unsigned> places;
    size_t number_of[256];
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (!is_place[byte]) continue;
      number_of[byte] = places.size();
      places.push_back(byte);
    }
    std::vector<StateSet> targets(places.size());
    for (const NfaEdge& edge : edges) {
      for (size_t i = number_of[edge.first]; i < places.size() && places[i] <= edge.last; ++i) {
        targets[i].push_back(edge.target);
        ++steps_;
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      if (targets[i].empty()) continue;
      const unsigned first = places[i], last = (i + 1 < places.size() ? places[i + 1] : 256) - 1;
      const GrammarStateId target = IdOf(std::move(targets[i]));
      auto& out = made->bytes;
      if (!out.empty() && out.back().target == target && out.back().last + 1u == first) {
        out.back().last = static_cast<uint8_t>(last);
      } else {
        out.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), target});
      }
    }
  }

  const GrammarRules& rules_;
  const std::vector<RuleUse>& plan_;
  const GrammarNfa& nfa_;
  GrammarAutomaton out_;  // calls name rules until all are made
  size_t steps_ = 0;
  // Of the current rule.
  uint32_t accept_ = 0;
  std::unordered_map<StateSet, GrammarStateId, absl::Hash<StateSet>> ids_;
  absl::flat_hash_map<StateSet, GrammarStateId> ids_of_targets_;  // before their closure
  std::deque<const StateSet*> sets_;  // whose edges are still to be made: those of the last states
  std::vector<uint32_t> stamps_;      // by state of the NFA: the closure that it was last in
  uint32_t stamp_ = 0;
};

// Without states from which there is no acceptance, and without those that nothing leads to any more.
absl::StatusOr<GrammarAutomaton> WithoutDeadEnds(const GrammarAutomaton& automaton) {
  const std::vector<uint8_t> depths = DepthsToAccept(automaton);
  const auto lives = [&depths](GrammarStateId state) { return depths[state] <= kMaxGrammarDepth; };
  if (!lives(automaton.start)) {
    return absl::InvalidArgumentError(absl::StrCat("no text fits the grammar, or only such as need more than ",
                                                   kMaxGrammarDepth, " rules within each other"));
  }
  std::vector<bool> found(automaton.states.size(), false);
  std::vector<GrammarStateId> queue;
  const auto find = [&](GrammarStateId state) {
    if (!found[state]) queue.push_back(state);
    found[state] = true;
  };
  find(automaton.start);
  while (!queue.empty()) {
    const GrammarAutomaton::State& state = automaton.states[queue.back()];
    queue.pop_back();
    const auto find_living = [&](GrammarStateId target) {
      if (lives(target)) find(target);
    };
    for (const auto& edge : state.bytes) find_living(edge.target);
    for (const auto& edge : state.atoms) find_living(edge.target);
    for (const auto& call : state.calls) {
      if (lives(call.entry) && lives(call.after)) find(call.entry), find(call.after);
    }
  }
  std::vector<GrammarStateId> ids(automaton.states.size(), kNoGrammarState);
  GrammarStateId next = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i]) ids[i] = next++;
  }
  GrammarAutomaton kept = {.start = ids[automaton.start]};
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!found[i]) continue;
    const GrammarAutomaton::State& state = automaton.states[i];
    GrammarAutomaton::State& copy = kept.states.emplace_back();
    copy.accepting = state.accepting;
    for (const auto& edge : state.bytes) {
      if (lives(edge.target)) copy.bytes.push_back({edge.first, edge.last, ids[edge.target]});
    }
    for (const auto& edge : state.atoms) {
      if (lives(edge.target)) copy.atoms.push_back({edge.token, ids[edge.target]});
    }
    for (const auto& call : state.calls) {
      if (lives(call.entry) && lives(call.after)) copy.calls.push_back({ids[call.entry], ids[call.after]});
    }
  }
  return kept;
}

}  // namespace

absl::StatusOr<GrammarProgram> CompileGrammar(const GrammarRules& rules) {
  ASSIGN_OR_RETURN(const std::vector<RuleUse> plan, PlanRules(rules));
  ASSIGN_OR_RETURN(GrammarNfa nfa, BuildNfa(rules, plan));
  RETURN_IF_ERROR(RuleBeginnings(rules, &nfa).Find());
  ASSIGN_OR_RETURN(const GrammarAutomaton automaton, SubsetMaker(rules, plan, nfa).Make(rules.root()));
  ASSIGN_OR_RETURN(const GrammarAutomaton kept, WithoutDeadEnds(automaton));
  return GrammarProgram::Make(kept);
}

}  // namespace stagecoach
