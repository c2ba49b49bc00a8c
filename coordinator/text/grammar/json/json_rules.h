#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_RULES_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_RULES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/text/grammar/code_point_set.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach {

// Rules of JSON texts, each added when it is first asked for.
//
//   space     between tokens: nothing, one blank, or a line break and up to 20 blanks and tabs. None around a text.
//   numbers   at most 18 digits before the point, 20 behind it, and an exponent up to e99, down to e-999: what fits in
//             the numbers of other programs. Integers have at most 18 digits, no point and no exponent.
//   strings   any escapes of JSON, surrogates in pairs alone. Spared bytes stand in them as escapes alone.
//   objects   a key may come twice: no grammar of this kind can tell. Readers keep the last value.
//
// Not thread-safe.
class JsonRules {
 public:
  static constexpr int64_t kMostInteger = 999'999'999'999'999'999;  // and its negative is the least

  static constexpr int kBoundedFraction = 6;  // digits behind the point, where it has bounds

  // `spared`: signs as '<', with which marks begin that who reads the text around the JSON would find in its strings.
  explicit JsonRules(GrammarRules* rules, absl::string_view spared = "");
  JsonRules(const JsonRules&) = delete;
  JsonRules& operator=(const JsonRules&) = delete;

  GrammarRules& rules() { return rules_; }

  ExprId Space();
  ExprId Value();
  ExprId Object();
  ExprId String();
  ExprId Number();
  ExprId Boolean();
  ExprId Null() { return rules_.Literal("null"); }
  ExprId Exactly(const Json& value);  // requires a value as ParseJson gives it

  // Integers from `min` to `max`, which lie within kMostInteger; of none where min > max.
  ExprId Integer(int64_t min = -kMostInteger, int64_t max = kMostInteger);
  // Numbers from `min` to `max`, both in units of the last of kBoundedFraction digits; likewise. Without exponents.
  ExprId BoundedNumber(int64_t min, int64_t max);

  // Within a string's quotes: so many characters (max: kUnbounded: any number), with any escapes; or one of a set, with
  // an escape where it needs one.
  ExprId Characters(int min, int max);
  ExprId Character(const CodePointSet& set);
  const CodePointSet& CharactersWithoutEscape() const { return without_escape_; }

  ExprId Quoted(ExprId characters) { return rules_.Sequence({rules_.Literal("\""), characters, rules_.Literal("\"")}); }
  ExprId Optional(ExprId part) { return rules_.Repeat(part, 0, 1); }
  ExprId Comma();
  // "KEY": VALUE, the key with its quotes.
  ExprId Member(ExprId key, ExprId value);
  // The braces or brackets around `content`, which is not empty; `or_empty`: or around nothing.
  ExprId Enclosed(absl::string_view open, ExprId content, absl::string_view close, bool or_empty);

 private:
  // A call of the rule with that name, which is made when it is first asked for.
  ExprId RuleOf(const std::string& name, absl::FunctionRef<ExprId()> make);
  ExprId AnyCharacter();
  std::string WithoutSpared(std::string json) const;  // of a value that is no list or object
  ExprId List(absl::string_view open, ExprId item, absl::string_view close);

  GrammarRules& rules_;
  const std::string spared_;
  const CodePointSet without_escape_;
  ExprId space_ = -1, comma_ = -1;  // -1: not yet asked for
  std::map<std::string, RuleId> made_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_JSON_JSON_RULES_H_
