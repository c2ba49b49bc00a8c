#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULE_PLAN_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULE_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

enum class RuleUse {
  kUnused,   // the root does not come to it
  kInlined,  // its expression stands where it is called
  kCalled,   // an automaton of its own
};

// What becomes of each rule. Inlined are rules that are small, or used at one place. Nothing calls itself by inlined
// rules alone, and with what is inlined expressions are nested at most 2 * kMaxExprDepth deep. kInvalidArgument: there
// is no root, a rule that is used is not defined, or an expression is nested deeper than kMaxExprDepth.
// kResourceExhausted: the rules are full.
absl::StatusOr<std::vector<RuleUse>> PlanRules(const GrammarRules& rules);

// The name of the rule with the most states, what it calls apart: for messages. `plan`: of PlanRules.
std::string LargestRule(const GrammarRules& rules, const std::vector<RuleUse>& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULE_PLAN_H_
