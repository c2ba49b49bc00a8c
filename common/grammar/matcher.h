#ifndef STAGECOACH_COMMON_GRAMMAR_MATCHER_H_
#define STAGECOACH_COMMON_GRAMMAR_MATCHER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/grammar/frame_walk.h"
#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/program.h"

namespace stagecoach {

// Where an answer stands in its grammar: a pure function of the program, the vocabulary and the tokens appended so far.
// So it is never saved: whoever has the output has the matcher. To try tokens and take them back, copy it first; a copy
// is a few hundred bytes. For one thread.
//
//   GrammarMatcher matcher(program, vocabulary);
//   for (const TokenId token : output) matcher.Append(token);
//   masks.Allowed(matcher, &allowed);  // mask.h
//
// Ambiguity
//   A text can have several readings, each with a stack of calls that it is in. At most kMaxGrammarStacks are kept: the
//   shortest stacks, then by their states. A grammar that has more somewhere loses the others. Every text that is still
//   possible fits the grammar, and there is always one; what is lost are texts that only the other readings have. The
//   same is true of calls deeper than kMaxGrammarDepth: they are not begun.
// Cost
//   A token takes 1 to 5 us, at most kMaxGrammarTokenSteps, some 10 ms. Who opens a text again follows all of it, so
//   tokens that take much have a limit as a whole, some 40 ms; behind that none is allowed.
inline constexpr size_t kMaxGrammarStacks = 32;
inline constexpr int64_t kMaxGrammarTokenSteps = 1'000'000;
inline constexpr int64_t kFreeGrammarSteps = 1024;                          // of each token; its others count ...
inline constexpr int64_t kMaxGrammarTextSteps = 4 * kMaxGrammarTokenSteps;  // ... as those of its text

class GrammarMatcher {
 public:
  // Atoms that are not tokens of the vocabulary match nothing.
  GrammarMatcher(GrammarProgram program, std::shared_ptr<const GrammarVocabulary> vocabulary);

  // False: the token is not allowed, or the limits do not suffice to find out; the text is as before. A mask allows
  // just the tokens for which it is true, except where limits leave some out. A token may be any number.
  bool Append(TokenId token);

  // The text may end here: end tokens are allowed.
  bool accepting() const;
  // An end token was appended that is no part of the grammar. Only such can follow.
  bool ended() const { return ended_; }
  int64_t steps() const { return steps_; }  // of all tokens so far, those that kMaxGrammarTextSteps bounds

  // For masks.
  const GrammarProgram& program() const { return program_; }
  // Of one reading each, in order: the states that calls return to, innermost last, then where it stands.
  using Stack = std::vector<GrammarStateId>;
  absl::Span<const Stack> stacks() const { return stacks_; }

  // Of the same program and vocabulary.
  friend bool operator==(const GrammarMatcher& a, const GrammarMatcher& b) {
    return a.stacks_ == b.stacks_ && a.ended_ == b.ended_;
  }

 private:
  GrammarProgram program_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<Stack> stacks_;
  int64_t steps_ = 0;  // that count, of all tokens so far
  bool ended_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_MATCHER_H_
