#include "coordinator/job/grammar_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/token_bytes.h"

namespace stagecoach {

absl::Status GrammarCheck::Check(const SequenceSpec& spec, std::optional<GrammarMatcher>* matcher) {
  if (spec.grammar.empty()) return absl::OkStatus();
  if (absl::IsUnknown(vocabulary_.status())) {
    vocabulary_ = ReadGrammarVocabulary(model_->file->metadata(), model_->hyper.vocab);
  }
  RETURN_IF_ERROR(vocabulary_.status());
  if (!program_.has_value() || program_->bytes() != spec.grammar) {
    ASSIGN_OR_RETURN(program_, GrammarProgram::Decode(spec.grammar));
  }
  RETURN_IF_ERROR(CheckGrammarTokens(*program_, **vocabulary_));
  for (const TokenId end : (*vocabulary_)->ends()) {
    if (std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), end) != spec.stop_tokens.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a request with a grammar ends where its text is complete, so token ", end,
                     ", which ends a generation, must be one of its stop tokens"));
  }
  GrammarMatcher follower(*program_, *vocabulary_);
  for (size_t i = 0; i < spec.output.size(); ++i) {
    if (follower.Append(spec.output[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the grammar does not allow the request's output: token ",
                                                   spec.output[i], " at place ", i, " of it"));
  }
  if (matcher != nullptr) *matcher = std::move(follower);
  return absl::OkStatus();
}

}  // namespace stagecoach
