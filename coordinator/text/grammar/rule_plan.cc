#include "coordinator/text/grammar/rule_plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/compile.h"

namespace stagecoach {
namespace {

// Less than a string of JSON, which is better called: masks of one are then masks of all.
constexpr double kMostInlinedStates = 16;
constexpr double kMostInlinedStatesInAll = 8192;

// How often a repeated part stands in the automaton.
double CopiesOf(const GrammarRules::Expr& expr) {
  if (expr.kind != GrammarRules::Expr::Kind::kRepeat) return 1;
  return std::max(1, expr.max == kUnbounded ? expr.min : expr.max);
}

// Without its parts.
double OwnStates(const GrammarRules::Expr& expr) {
  if (expr.kind == GrammarRules::Expr::Kind::kLiteral) return static_cast<double>(expr.bytes.size());
  if (expr.kind == GrammarRules::Expr::Kind::kCodePoints) return 2 * static_cast<double>(expr.ranges.size()) + 6;
  return 1;
}

class RulePlanner {
 public:
  explicit RulePlanner(const GrammarRules& rules)
      : rules_(rules),
        plan_(rules.rules().size(), RuleUse::kUnused),
        callers_(plan_.size()),
        uses_of_rule_(plan_.size(), 0),
        planned_(plan_.size(), false),
        waits_for_(plan_.size(), 0),
        sizes_of_rules_(plan_.size()) {}

  absl::StatusOr<std::vector<RuleUse>> Plan() {
    if (rules_.full()) {
      return absl::ResourceExhaustedError(
          "the grammar is too large to compile: use fewer values, alternatives and properties");
    }
    if (rules_.root() < 0) return absl::InvalidArgumentError("the grammar has no root rule");
    RETURN_IF_ERROR(FindUsed());
    CountUses();
    PlanCalleesFirst();
    return plan_;
  }

 private:
  using Expr = GrammarRules::Expr;
  struct Size {
    double states = 0;
    int depth = 1;
  };
  static size_t At(int id) { return static_cast<size_t>(id); }
  const GrammarRules::Rule& rule(RuleId id) const { return rules_.rules()[At(id)]; }

  // From the root on, in the order of finding.
  absl::Status FindUsed() {
    used_ = {rules_.root()};
    plan_[At(rules_.root())] = RuleUse::kCalled;
    for (size_t i = 0; i < used_.size(); ++i) {
      const GrammarRules::Rule& found = rule(used_[i]);
      if (found.expr < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the grammar's rule '", found.name, "' is used and not defined"));
      }
      if (rules_.expr(found.expr).depth > kMaxExprDepth) {
        return absl::InvalidArgumentError(absl::StrCat("the grammar's rule '", found.name, "' is nested ",
                                                       rules_.expr(found.expr).depth, " deep, at most ", kMaxExprDepth,
                                                       " are possible"));
      }
      absl::flat_hash_set<ExprId> seen;
      absl::flat_hash_set<RuleId> callees;
      FindCallees(used_[i], found.expr, &seen, &callees);
      waits_for_[At(used_[i])] = callees.size();
    }
    return absl::OkStatus();
  }

  void FindCallees(RuleId caller, ExprId id, absl::flat_hash_set<ExprId>* seen, absl::flat_hash_set<RuleId>* callees) {
    if (!seen->insert(id).second) return;
    const Expr& expr = rules_.expr(id);
    for (const ExprId part : expr.parts) FindCallees(caller, part, seen, callees);
    if (expr.kind != Expr::Kind::kCall) return;
    if (!callees->insert(expr.rule).second) return;
    callers_[At(expr.rule)].push_back(caller);
    if (plan_[At(expr.rule)] != RuleUse::kUnused) return;
    plan_[At(expr.rule)] = RuleUse::kCalled;
    used_.push_back(expr.rule);
  }

  // How often each rule is called, in all copies of the expressions that call it.
  void CountUses() {
    ExprId last = -1;
    for (const RuleId id : used_) last = std::max(last, rule(id).expr);
    std::vector<double> uses(At(last + 1), 0);
    for (const RuleId id : used_) uses[At(rule(id).expr)] += 1;
    for (ExprId id = last; id >= 0; --id) {
      const Expr& expr = rules_.expr(id);
      const double each = uses[At(id)] * CopiesOf(expr);
      for (const ExprId part : expr.parts) uses[At(part)] += each;
      if (expr.kind == Expr::Kind::kCall) uses_of_rule_[At(expr.rule)] += each;
    }
    sizes_.resize(uses.size());
    sized_.assign(uses.size(), false);
  }

  // Each rule after those that it calls; where that goes in a circle, the most used rule of all is called, not inlined.
  void PlanCalleesFirst() {
    std::vector<RuleId> by_use = used_;
    std::stable_sort(by_use.begin(), by_use.end(),
                     [this](RuleId a, RuleId b) { return uses_of_rule_[At(a)] > uses_of_rule_[At(b)]; });
    for (const RuleId id : used_) {
      if (waits_for_[At(id)] == 0) ready_.push_back(id);
    }
    for (const RuleId most_used : by_use) {
      for (; !ready_.empty();) {
        const RuleId id = ready_.back();
        ready_.pop_back();
        if (planned_[At(id)]) continue;
        if (ShouldInline(id)) plan_[At(id)] = RuleUse::kInlined;
        SetPlanned(id);
      }
      if (!planned_[At(most_used)]) SetPlanned(most_used);
    }
  }

  void SetPlanned(RuleId id) {
    planned_[At(id)] = true;
    for (const RuleId caller : callers_[At(id)]) {
      if (--waits_for_[At(caller)] == 0) ready_.push_back(caller);
    }
  }

  bool ShouldInline(RuleId id) {
    const Size size = SizeOf(rule(id).expr);
    sizes_of_rules_[At(id)] = size;
    if (id == rules_.root() || size.depth >= kMaxExprDepth / 2) return false;
    const double uses = uses_of_rule_[At(id)];
    return uses == 1 || (size.states <= kMostInlinedStates && size.states * uses <= kMostInlinedStatesInAll);
  }

  // With what is inlined.
  Size SizeOf(ExprId id) {
    if (sized_[At(id)]) return sizes_[At(id)];
    const Expr& expr = rules_.expr(id);
    Size size = {.states = OwnStates(expr)};
    if (expr.kind == Expr::Kind::kText) size.states = 1e9;  // never copied
    if (expr.kind == Expr::Kind::kCall && plan_[At(expr.rule)] == RuleUse::kInlined) {
      size = sizes_of_rules_[At(expr.rule)];
      ++size.depth;
    }
    for (const ExprId part : expr.parts) {
      const Size of_part = SizeOf(part);
      size.states += of_part.states * CopiesOf(expr);
      size.depth = std::max(size.depth, of_part.depth + 1);
    }
    sized_[At(id)] = true;
    return sizes_[At(id)] = size;
  }

  const GrammarRules& rules_;
  std::vector<RuleUse> plan_;
  std::vector<RuleId> used_;
  std::vector<std::vector<RuleId>> callers_;  // of each rule
  std::vector<double> uses_of_rule_;
  std::vector<bool> planned_;
  std::vector<size_t> waits_for_;  // of each rule: callees that are not planned
  std::vector<RuleId> ready_;
  std::vector<Size> sizes_of_rules_;  // of inlined ones
  std::vector<Size> sizes_;           // of expressions
  std::vector<bool> sized_;
};

}  // namespace

absl::StatusOr<std::vector<RuleUse>> PlanRules(const GrammarRules& rules) { return RulePlanner(rules).Plan(); }

std::string LargestRule(const GrammarRules& rules, const std::vector<RuleUse>& plan) {
  std::vector<double> states;  // of expressions with their parts, which have smaller ids
  std::pair<double, std::string> largest;
  for (size_t id = 0; id < plan.size(); ++id) {
    if (plan[id] == RuleUse::kUnused) continue;
    const auto expr = static_cast<size_t>(rules.rules()[id].expr);
    while (states.size() <= expr) {
      const GrammarRules::Expr& next = rules.expr(static_cast<ExprId>(states.size()));
      double all = OwnStates(next);
      for (const ExprId part : next.parts) all += states[static_cast<size_t>(part)] * CopiesOf(next);
      states.push_back(all);
    }
    if (states[expr] > largest.first) largest = {states[expr], rules.rules()[id].name};
  }
  return largest.second;
}

}  // namespace stagecoach
