#include "coordinator/text/grammar/nfa.h"

#include <array>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

// Enough for a program of the most states; what has more has no such program, or takes too long.
constexpr size_t kMaxNfaStates = size_t{1} << 18;
constexpr size_t kMaxBuildSteps = size_t{1} << 22;  // expressions built, copies counted

// Of one byte of a character: both ends included.
using ByteRange = std::pair<uint8_t, uint8_t>;
using ByteRanges = std::vector<ByteRange>;

// The UTF-8 of a range of code points: sequences of byte ranges whose products are just these.
class Utf8Sequences {
 public:
  std::vector<ByteRanges> Of(const std::vector<CodePointRange>& ranges) {
    for (const auto& [first, last] : ranges) Split(first, last);
    return std::move(sequences_);
  }

 private:
  void Split(uint32_t first, uint32_t last) {
    for (const uint32_t longest : {0x7Fu, 0x7FFu, 0xFFFFu}) {  // the last code points of 1, 2 and 3 bytes
      if (first <= longest && last > longest) return SplitAfter(first, longest, last);
    }
    // Below a byte in which the ends differ, all continuations must be possible.
    for (int shift = 6; shift <= 18 && last > 0x7F; shift += 6) {
      const uint32_t low = (uint32_t{1} << shift) - 1;
      if ((first | low) == (last | low)) break;
      if ((first & low) != 0) return SplitAfter(first, first | low, last);
      if ((last & low) != low) return SplitAfter(first, (last & ~low) - 1, last);
    }
    std::string from, to;
    AppendUtf8(first, &from);
    AppendUtf8(last, &to);
    ByteRanges& sequence = sequences_.emplace_back();
    for (size_t i = 0; i < from.size(); ++i) {
      sequence.emplace_back(static_cast<uint8_t>(from[i]), static_cast<uint8_t>(to[i]));
    }
  }
  void SplitAfter(uint32_t first, uint32_t middle, uint32_t last) {
    Split(first, middle);
    Split(middle + 1, last);
  }

  std::vector<ByteRanges> sequences_;
};

// Finds markers in text (Aho and Corasick's automaton): a node is the longest end of the text that begins a marker.
class MarkerFinder {
 public:
  struct Node {
    std::array<uint32_t, 256> next = {};  // 0: the root, with nothing found
    bool ends_text = false;               // a marker of the first kind is complete
    bool is_forbidden = false;            // one of the others is
  };

  MarkerFinder(const std::string& ending, const std::vector<std::string>& others) : nodes_(1) {
    if (!ending.empty()) nodes_[Insert(ending)].ends_text = true;
    for (const std::string& marker : others) nodes_[Insert(marker)].is_forbidden = true;
    Link();
  }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  uint32_t Insert(absl::string_view marker) {
    uint32_t at = 0;
    for (const char c : marker) {
      const auto byte = static_cast<uint8_t>(c);
      if (nodes_[at].next[byte] == 0) {
        nodes_[at].next[byte] = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
      }
      at = nodes_[at].next[byte];
    }
    return at;
  }

  // Where a node has no child, it goes on as its longest end that is another node.
  void Link() {
    std::vector<uint32_t> end_of(nodes_.size(), 0);
    std::deque<uint32_t> queue;
    for (const uint32_t child : nodes_[0].next) {
      if (child != 0) queue.push_back(child);
    }
    for (; !queue.empty(); queue.pop_front()) {
      Node& node = nodes_[queue.front()];
      const Node& end = nodes_[end_of[queue.front()]];
      node.ends_text = node.ends_text || end.ends_text;
      node.is_forbidden = node.is_forbidden || end.is_forbidden;
      for (size_t byte = 0; byte < 256; ++byte) {
        if (node.next[byte] == 0) {
          node.next[byte] = end.next[byte];
        } else {
          end_of[node.next[byte]] = end.next[byte];
          queue.push_back(node.next[byte]);
        }
      }
    }
  }

  std::vector<Node> nodes_;
};

class NfaBuilder {
 public:
  NfaBuilder(const GrammarRules& rules, const std::vector<RuleUse>& plan) : rules_(rules), plan_(plan) {}

  absl::StatusOr<GrammarNfa> Build() {
    nfa_.rules.resize(plan_.size());
    for (size_t id = 0; id < plan_.size(); ++id) {
      if (plan_[id] != RuleUse::kCalled) continue;
      GrammarNfa::Rule& rule = nfa_.rules[id];
      rule.start = NewState();
      rule.accept = Add(rules_.rules()[id].expr, rule.start);
      rule.end = static_cast<uint32_t>(nfa_.states.size());
      if (!IsFull()) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("the grammar is too large to compile: use smaller bounds in repetitions; its largest rule is '",
                       LargestRule(rules_, plan_), "'"));
    }
    return std::move(nfa_);
  }

 private:
  using Edge = GrammarNfa::Edge;
  using Expr = GrammarRules::Expr;

  bool IsFull() const { return nfa_.states.size() > kMaxNfaStates || steps_ > kMaxBuildSteps; }

  uint32_t NewState() {
    nfa_.states.emplace_back();
    return static_cast<uint32_t>(nfa_.states.size() - 1);
  }
  void AddEdge(uint32_t from, Edge edge) { nfa_.states[from].push_back(edge); }
  void AddEmpty(uint32_t from, uint32_t to) { AddEdge(from, {.kind = Edge::Kind::kEmpty, .target = to}); }
  void AddBytes(uint32_t from, ByteRange range, uint32_t to) {
    AddEdge(from, {.kind = Edge::Kind::kBytes, .first = range.first, .last = range.second, .target = to});
  }

  // From a state on; the state behind it. What has been added may be anything once it IsFull.
  uint32_t Add(ExprId id, uint32_t from) {
    ++steps_;
    if (IsFull()) return from;
    const Expr& expr = rules_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kLiteral:
        for (const char c : expr.bytes) {
          if (IsFull()) return from;
          const uint32_t next = NewState();
          AddBytes(from, {static_cast<uint8_t>(c), static_cast<uint8_t>(c)}, next);
          from = next;
        }
        return from;
      case Expr::Kind::kClass: return AddClass(expr.set, from);
      case Expr::Kind::kCodePoints: return AddCodePoints(expr.ranges, from);
      case Expr::Kind::kSequence:
        for (const ExprId part : expr.parts) from = Add(part, from);
        return from;
      case Expr::Kind::kChoice: {
        const uint32_t to = NewState();
        for (const ExprId part : expr.parts) AddEmpty(Add(part, from), to);
        return to;
      }
      case Expr::Kind::kRepeat: return AddRepeat(expr, from);
      case Expr::Kind::kCall: return AddCall(expr.rule, from);
      case Expr::Kind::kToken: {
        const uint32_t to = NewState();
        AddEdge(from, {.kind = Edge::Kind::kAtom, .value = expr.token, .target = to});
        return to;
      }
      case Expr::Kind::kText: return AddText(expr, from);
    }
    return from;
  }

  uint32_t AddClass(const ByteSet& set, uint32_t from) {
    const uint32_t to = NewState();
    for (unsigned first = 0; first < 256; ++first) {
      if (!set[first]) continue;
      unsigned last = first;
      while (last + 1 < 256 && set[last + 1]) ++last;
      AddBytes(from, {static_cast<uint8_t>(first), static_cast<uint8_t>(last)}, to);
      first = last;
    }
    return to;
  }

  // Sequences with the same end share its states.
  uint32_t AddCodePoints(const std::vector<CodePointRange>& ranges, uint32_t from) {
    const uint32_t to = NewState();
    std::map<ByteRanges, uint32_t> before_end = {{{}, to}};
    for (const ByteRanges& sequence : Utf8Sequences().Of(ranges)) {
      uint32_t next = to;
      for (size_t i = sequence.size(); i-- > 1;) {
        const ByteRanges end(sequence.begin() + static_cast<std::ptrdiff_t>(i), sequence.end());
        const auto found = before_end.find(end);
        if (found == before_end.end()) {
          const uint32_t state = NewState();
          AddBytes(state, sequence[i], next);
          next = before_end[end] = state;
        } else {
          next = found->second;
        }
      }
      AddBytes(from, sequence[0], next);
    }
    return to;
  }

  // Nothing leads back to `from`, so that what else begins there does not begin anew.
  uint32_t AddRepeat(const Expr& expr, uint32_t from) {
    const ExprId part = expr.parts[0];
    for (int i = 0; i + 1 < expr.min && !IsFull(); ++i) from = Add(part, from);
    if (expr.max == kUnbounded) {
      const uint32_t loop = NewState();
      AddEmpty(from, loop);
      const uint32_t end = Add(part, loop);
      AddEmpty(end, loop);
      return expr.min == 0 ? loop : end;
    }
    if (expr.min > 0) from = Add(part, from);
    const uint32_t to = NewState();
    for (int i = expr.min; i < expr.max && !IsFull(); ++i) {
      AddEmpty(from, to);
      from = Add(part, from);
    }
    AddEmpty(from, to);
    return to;
  }

  uint32_t AddCall(RuleId rule, uint32_t from) {
    const size_t id = static_cast<size_t>(rule);
    if (plan_[id] == RuleUse::kInlined) return Add(rules_.rules()[id].expr, from);
    const uint32_t to = NewState();
    AddEdge(from, {.kind = Edge::Kind::kCall, .value = rule, .target = to});
    return to;
  }

  uint32_t AddText(const Expr& expr, uint32_t from) {
    const bool any_end = expr.bytes.empty();
    const MarkerFinder finder(expr.bytes, expr.without);
    const auto first = static_cast<uint32_t>(nfa_.states.size());
    const uint32_t to = first + static_cast<uint32_t>(finder.nodes().size());
    for (uint32_t id = first; id <= to; ++id) NewState();
    AddEmpty(from, first);
    const auto state_of = [&](uint32_t node) { return finder.nodes()[node].ends_text ? to : first + node; };
    for (uint32_t id = 0; id < finder.nodes().size(); ++id) {
      const MarkerFinder::Node& node = finder.nodes()[id];
      if (node.ends_text || node.is_forbidden) continue;  // nothing comes to it
      if (any_end) AddEmpty(first + id, to);
      for (unsigned begin = 0, end = 1; begin < 256; begin = end, ++end) {
        while (end < 256 && node.next[end] == node.next[begin]) ++end;
        const MarkerFinder::Node& target = finder.nodes()[node.next[begin]];
        if (target.is_forbidden && !target.ends_text) continue;
        AddBytes(first + id, {static_cast<uint8_t>(begin), static_cast<uint8_t>(end - 1)}, state_of(node.next[begin]));
      }
    }
    return to;
  }

  const GrammarRules& rules_;
  const std::vector<RuleUse>& plan_;
  GrammarNfa nfa_;
  size_t steps_ = 0;
};

}  // namespace

absl::StatusOr<GrammarNfa> BuildNfa(const GrammarRules& rules, const std::vector<RuleUse>& plan) {
  return NfaBuilder(rules, plan).Build();
}

}  // namespace stagecoach
