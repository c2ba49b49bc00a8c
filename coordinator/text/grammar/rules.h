#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULES_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULES_H_

// The language that an answer is held to, as rules over bytes: what JSON schemas, regular expressions and grammar texts
// are translated into, and what CompileGrammar (compile.h) makes a program of.
//
//   GrammarRules rules;
//   const RuleId list = rules.Declare("list");
//   const ExprId item = rules.Repeat(rules.Class(letters), 1);
//   rules.Define(list, rules.Sequence({item, rules.Repeat(rules.Sequence({rules.Literal(","), rules.Call(list)}), 0,
//   1)})); rules.SetRoot(list);

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/text/grammar/code_point_set.h"

namespace stagecoach {

using RuleId = int;
using ExprId = int;
using ByteSet = std::bitset<256>;

inline constexpr int kUnbounded = -1;  // of Repeat

// Expressions are immutable and may stand in several others and in several rules; each use costs states of its own,
// which a call of a rule does not. An id is of the object that gave it. Not thread-safe while it is added to.
//
// Advice
//   Rules      for what is recursive, or large and used at several places. Calls are told apart by the bytes that
//              follow: alternatives of one rule cost nothing, however long they are alike, but alternatives that *call*
//              different rules are followed in parallel (matcher.h: at most 32).
//   Free text  belongs into the root rule's own expression. Inside a called rule each byte of it might be the last.
// Limit
//   Once expressions take more than kMostBytes of memory, no more are added: what adds one returns another, and
//   CompileGrammar refuses the rules. So who translates a text need not count.
class GrammarRules {
 public:
  static constexpr size_t kMostBytes = size_t{32} << 20;  // some 200,000 expressions

  ExprId Literal(absl::string_view bytes);                    // may be empty
  ExprId Class(const ByteSet& bytes);                         // one byte; of none: matches nothing
  ExprId CodePoints(const CodePointSet& set);                 // one code point as UTF-8; surrogates are none
  ExprId Sequence(absl::Span<const ExprId> parts);            // of none: the empty text
  ExprId Choice(absl::Span<const ExprId> alternatives);       // of none: matches nothing
  ExprId Repeat(ExprId part, int min, int max = kUnbounded);  // requires 0 <= min, and min <= max where there is one
  ExprId Call(RuleId rule);
  ExprId Token(TokenId token);  // a control token: no bytes of text are one

  // Text before a marker. `markers` are not empty strings; a marker may begin and end anywhere in a token.
  //   TextWithout({m, ...})    any bytes that contain none of the markers; TextWithout({}) any bytes at all.
  //   TextUntil(m, {n, ...})   any bytes up to and with the first m, if no n is complete before it; an n that ends
  //   where
  //                            m ends is no hindrance.
  // "Text, then a marker, then its grammar, any number of times, then text":
  //   Sequence({Repeat(Sequence({TextUntil(m), Call(g)}), 0), TextWithout({m})})
  // Where the marker is a control token: Sequence({TextWithout({}), Token(t), Call(g)}).
  ExprId TextWithout(absl::Span<const std::string> markers);
  ExprId TextUntil(absl::string_view marker, absl::Span<const std::string> others = {});

  RuleId Declare(absl::string_view name);  // names are for messages and need not differ
  void Define(RuleId rule, ExprId expr);   // once a rule
  void SetRoot(RuleId rule);

  // For who compiles them.
  struct Expr {
    enum class Kind { kLiteral, kClass, kCodePoints, kSequence, kChoice, kRepeat, kCall, kToken, kText };
    Kind kind;
    int depth = 1;                       // of nested expressions
    std::string bytes;                   // kLiteral; kText: the marker that ends it, or empty
    ByteSet set;                         // kClass
    std::vector<CodePointRange> ranges;  // kCodePoints: of its set, without surrogates
    std::vector<ExprId> parts;           // kSequence, kChoice, kRepeat: smaller ids than that of the expression
    int min = 0, max = 0;                // kRepeat
    RuleId rule = -1;                    // kCall
    TokenId token = kNoToken;            // kToken
    std::vector<std::string> without;    // kText
  };
  struct Rule {
    std::string name;
    ExprId expr = -1;  // -1: declared alone
  };
  const Expr& expr(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  const std::vector<Rule>& rules() const { return rules_; }
  RuleId root() const { return root_; }  // -1: none was set
  bool full() const { return bytes_ > kMostBytes; }

 private:
  ExprId Add(Expr expr);

  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
  size_t bytes_ = 0;  // of all expressions that were to be added
  RuleId root_ = -1;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_RULES_H_
