#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_REGEX_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_REGEX_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/text/grammar/code_point_set.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// How an answer writes one character of a set: as it is, or with the escapes of a JSON string.
using CharacterWriter = absl::FunctionRef<ExprId(const CodePointSet& characters)>;

struct RegexExpr {
  ExprId expr;
  int64_t min_characters;
  int64_t max_characters;  // kUnbounded: any number
};

// Texts that match the pattern from their beginning to their end, whether or not it has ^ and $ there.
//
//   characters   literal ones; . (all but line ends); [a-z] and [^a-z]; \d \D \w \W \s \S; \t \n \r \f \v \0, \xHH,
//                \uHHHH (also pairs of surrogates), \u{H...}; \ before what is no letter or digit.
//   \d \w \s     characters that match by ASCII's and by Unicode's definition. \D \W \S and [^\d]: those that match by
//                neither, for \D and \W of ASCII alone. [\s\S] is any character.
//   groups       (...), (?:...), (?<name>...), (?P<name>...); alternatives |.
//   repetition   * + ? {m} {m,} {m,n}; a ? after them changes nothing, as all of the text has to match.
//   refused      what is not regular or has no fixed meaning: look-around, back references, \b, flags, \p{...}, {,n},
//                possessive quantifiers, ^ and $ elsewhere.
//
// kInvalidArgument names the place and what is expected; kResourceExhausted: longer than kMostGrammarTextBytes.
absl::StatusOr<RegexExpr> AddRegex(absl::string_view pattern, CharacterWriter write, GrammarRules* rules);

// The same for characters as they are.
absl::StatusOr<RegexExpr> AddPlainRegex(absl::string_view pattern, GrammarRules* rules);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_REGEX_H_
