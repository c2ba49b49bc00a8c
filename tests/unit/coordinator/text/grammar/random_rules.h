#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_RANDOM_RULES_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_RANDOM_RULES_H_

// Random grammars and vocabularies, and what rules mean by their definition.

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/matcher.h"
#include "common/grammar/program.h"
#include "coordinator/text/grammar/rules.h"

namespace stagecoach::testing {

// Token i is the byte i, for all 256; then come the texts, two control tokens, and the end token.
std::shared_ptr<const GrammarVocabulary> VocabularyWith(const std::vector<std::string>& texts);
inline TokenId EndOf(const GrammarVocabulary& vocabulary) { return static_cast<TokenId>(vocabulary.size() - 1); }
inline TokenId ControlOf(const GrammarVocabulary& vocabulary) { return static_cast<TokenId>(vocabulary.size() - 2); }

// `count` texts of up to `longest` of the letters that random rules use, some repeated.
std::vector<std::string> RandomTexts(size_t count, size_t longest, std::mt19937* random);

// Some rules over a, b, c, characters of two and three bytes, and `atom`; not all of them are grammars.
GrammarRules RandomRules(TokenId atom, std::mt19937* random);
// The first of such that can be compiled, and its program.
std::pair<GrammarRules, GrammarProgram> RandomGrammar(TokenId atom, std::mt19937* random);

// One byte, or an atom: 256 and its token.
using Symbols = std::vector<int>;
Symbols SymbolsOf(const std::string& bytes);

// Whether rules match symbols, as rules.h defines it.
class RulesByDefinition {
 public:
  RulesByDefinition(const GrammarRules& rules, const Symbols& symbols) : rules_(rules), symbols_(symbols) {}
  bool Match() { return EndsOf(rules_.rules()[static_cast<size_t>(rules_.root())].expr, 0).count(symbols_.size()) > 0; }

 private:
  using Ends = std::set<size_t>;
  const Ends& EndsOf(ExprId id, size_t begin);
  Ends Find(const GrammarRules::Expr& expr, size_t begin);
  Ends FindRepeated(const GrammarRules::Expr& expr, size_t begin);
  Ends FindText(const GrammarRules::Expr& expr, size_t begin) const;
  Ends After(ExprId part, const Ends& begins);

  const GrammarRules& rules_;
  const Symbols& symbols_;
  std::map<std::pair<ExprId, size_t>, Ends> known_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_RANDOM_RULES_H_
