#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_GRAMMAR_TEXTS_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_GRAMMAR_TEXTS_H_

// Which texts rules match, as the compiled program says, and random ones of them.

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/grammar/mask.h"
#include "common/grammar/matcher.h"
#include "coordinator/text/grammar/rules.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach::testing {

class GrammarTexts {
 public:
  // Fails the test where the rules cannot be compiled; then it matches nothing.
  explicit GrammarTexts(const GrammarRules& rules,
                        std::shared_ptr<const GrammarVocabulary> vocabulary = VocabularyWith({}));
  // Of rules with a root of what `add` adds.
  using Adder = std::function<absl::StatusOr<ExprId>(GrammarRules* rules)>;
  static GrammarTexts Of(const Adder& add);

  bool Accepts(absl::string_view text) const;  // of the vocabulary of bytes
  bool AcceptsTokens(absl::Span<const TokenId> tokens) const;

  // Of the vocabulary of bytes. Short ones, mostly: after some 40 bytes it comes to an end where it can. `text_ends`:
  // what ends free text, which would not come by chance.
  std::string RandomText(std::mt19937* random, const std::vector<std::string>& text_ends = {});

 private:
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::unique_ptr<const GrammarMatcher> start_;
  std::unique_ptr<GrammarMasks> masks_;
};

// The error of adding, or else of compiling.
absl::Status StatusOf(const GrammarTexts::Adder& add);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_GRAMMAR_GRAMMAR_TEXTS_H_
