#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_COMPILE_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_COMPILE_H_

#include "absl/status/statusor.h"
#include "common/grammar/program.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// Deepest nesting of expressions within each other, calls aside.
inline constexpr int kMaxExprDepth = 200;

// The program of the rules: equal rules give equal bytes. A pure function; takes up to some 0.3 s for the largest.
//   kInvalidArgument    there is no root, a rule is called and not defined, a rule calls itself before it has matched a
//                       byte (left recursion: its name and those between), nesting is too deep, or no text fits.
//   kResourceExhausted  more states, edges or bytes than a program has (program.h), or than it takes to find that out;
//                       or the rules are full.
absl::StatusOr<GrammarProgram> CompileGrammar(const GrammarRules& rules);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_COMPILE_H_
