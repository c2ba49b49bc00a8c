#ifndef STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_FORMAT_TEXT_H_
#define STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_FORMAT_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/grammar/rules.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

// What a format of output writes itself: text in which the vocabulary's control tokens are tokens, all else bytes.
class FormatText {
 public:
  // Both outlive this.
  FormatText(const Tokenizer* tokenizer, GrammarRules* rules) : tokenizer_(*tokenizer), rules_(*rules) {}

  ExprId Exactly(absl::string_view text) const;
  // Any text, up to and with a mark, before which none of the others is complete. Spelled out, a mark that has a
  // control token in it is none of this text either.
  ExprId UpTo(absl::string_view mark, const std::vector<std::string>& others = {}) const;
  // The text alone, without the mark.
  ExprId Before(absl::string_view mark, const std::vector<std::string>& others) const;

  bool HasControl(absl::string_view text) const;  // a part of it is a control token

 private:
  const Tokenizer& tokenizer_;
  GrammarRules& rules_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_GRAMMAR_FORM_FORMAT_TEXT_H_
