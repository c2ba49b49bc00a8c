#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_NFA_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_NFA_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/text/grammar/rule_plan.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// The automata of a grammar's rules as their expressions are written (Thompson's construction): several edges may fit.
struct GrammarNfa {
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kBytes, kCall, kAtom };
    Kind kind;
    uint8_t first = 0, last = 0;  // kBytes, both included
    int32_t value = 0;            // kCall: the rule; kAtom: the token
    uint32_t target = 0;
  };
  struct Rule {  // whose states are [start, end), and no other's
    uint32_t start = 0, accept = 0, end = 0;
  };
  std::vector<std::vector<Edge>> states;
  std::vector<Rule> rules;  // by RuleId; empty but for RuleUse::kCalled
};

// Of rules that PlanRules has checked. kResourceExhausted: repetitions make it too large.
absl::StatusOr<GrammarNfa> BuildNfa(const GrammarRules& rules, const std::vector<RuleUse>& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_NFA_H_
