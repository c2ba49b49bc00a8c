#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_GBNF_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_GBNF_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// The texts of the rule `root` of a grammar in llama.cpp's GBNF format.
//
//   root   ::= item ("," ws item)*     # a comment
//   item   ::= "a\n" | [^a-z0-9] | . | [0-9]{1,3} | "b"{ 2, }
//   ws     ::= " "?
//
//   rules     names of letters, digits, '-' and '_'. A rule ends with its line; inside of parentheses, after ::= and
//             around | it goes on in the next one.
//   literals  with the escapes \xHH, \uHHHH, \UHHHHHHHH, \t, \r, \n, \\, \", \[, \], as classes have them. All are
//             characters, written as UTF-8; the dot is any of them.
//   tokens    (<name>, <[id]>, !<name>) are refused: a text can be spelled out.
//
// kInvalidArgument names the place and what is expected: also for a rule that is called and not defined, or defined
// twice. kResourceExhausted: longer than kMostGrammarTextBytes. Left recursion is for CompileGrammar to find.
absl::StatusOr<ExprId> AddGbnf(absl::string_view text, GrammarRules* rules);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_GBNF_H_
