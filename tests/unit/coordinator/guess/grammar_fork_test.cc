#include "coordinator/guess/grammar_fork.h"

#include <random>
#include <vector>

#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/guess_line.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

using testing::EndOf;
using testing::GuessingByPosition;
using testing::GuessLine;
using testing::RandomGrammar;
using testing::RandomTexts;
using testing::SpecOf;
using testing::VocabularyWith;

using Text = std::vector<TokenId>;

// A matcher behind the tokens, all of which it allows; absent where it does not.
std::optional<GrammarMatcher> MatcherBehind(const GrammarMatcher& start, const Text& tokens) {
  GrammarMatcher matcher = start;
  for (const TokenId token : tokens) {
    if (!matcher.Append(token)) return std::nullopt;
  }
  return matcher;
}

// Mostly a token that the matcher allows: one of the letters that random rules use, or of those behind all bytes.
TokenId LikelyToken(const GrammarMatcher& matcher, int64_t vocab, std::mt19937* random) {
  std::vector<TokenId> allowed;
  for (TokenId token = 'a'; token < vocab; token = token == 'c' ? 256 : token + 1) {
    if (GrammarMatcher(matcher).Append(token)) allowed.push_back(token);
  }
  if (allowed.empty() || (*random)() % 4 == 0) return static_cast<TokenId>((*random)() % static_cast<uint64_t>(vocab));
  return allowed[(*random)() % allowed.size()];
}

TEST(GrammarFork, AllowsWhatAMatcherOfTheWholeTextAllows) {
  std::mt19937 random(31);
  int allowed = 0, refused = 0, hits = 0, misses = 0;
  for (int text = 0; text < 300; ++text) {
    const auto vocabulary = VocabularyWith(RandomTexts(8, 4, &random));
    const auto vocab = static_cast<int64_t>(vocabulary->size());
    const GrammarMatcher start(RandomGrammar(256, &random).second, vocabulary);
    GrammarFork fork(start);
    Text output;
    Text sent;
    for (int step = 0; step < 12; ++step) {
      for (int question = static_cast<int>(random() % 5); question > 0; --question) {
        Text whole = output;
        whole.insert(whole.end(), sent.begin(), sent.end());
        const std::optional<GrammarMatcher> behind = MatcherBehind(start, whole);
        ASSERT_TRUE(behind.has_value());
        const TokenId token = LikelyToken(*behind, vocab, &random);
        const bool may_follow = GrammarMatcher(*behind).Append(token);
        ASSERT_EQ(fork.Allows(sent, token), may_follow);
        (may_follow ? allowed : refused) += 1;
        if (may_follow && random() % 3 != 0) sent.push_back(token);  // others are not sent
      }
      // The next token is that of the guess, or another that may follow the output.
      const GrammarMatcher confirmed = *MatcherBehind(start, output);
      TokenId token = LikelyToken(confirmed, vocab, &random);
      const bool is_hit = !sent.empty() && random() % 3 != 0;
      if (is_hit) token = sent.front();
      if (!GrammarMatcher(confirmed).Append(token)) continue;
      if (!sent.empty()) (sent.front() == token ? hits : misses) += 1;
      if (!sent.empty() && sent.front() == token) {
        sent.erase(sent.begin());
      } else {
        sent.clear();
      }
      fork.Confirm(token);
      output.push_back(token);
    }
  }
  EXPECT_GT(allowed, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(hits, 300);
  EXPECT_GT(misses, 100);
}

TEST(GrammarFork, AllowsNothingBehindAnOutputThatItsGrammarDoesNotHave) {
  const auto vocabulary = VocabularyWith({});
  GrammarFork fork(GrammarMatcher(GrammarProgram::Decode(testing::RunOfBytes('a', 'b', 0)).value(), vocabulary));
  EXPECT_TRUE(fork.Allows({}, 'a'));
  fork.Confirm('c');
  EXPECT_FALSE(fork.Allows({}, 'a'));
}

TEST(GrammarFork, WalksWhateverRunItIsAskedAbout) {
  const auto vocabulary = VocabularyWith({});
  GrammarFork fork(GrammarMatcher(GrammarProgram::Decode(testing::Lists(1)).value(), vocabulary));
  EXPECT_TRUE(fork.Allows(Text{'['}, '5'));
  EXPECT_FALSE(fork.Allows(Text{'[', '['}, ']')) << "a list has an item";
  EXPECT_TRUE(fork.Allows(Text{'[', '5'}, ']'));
  EXPECT_FALSE(fork.Allows(Text{']'}, '5'));
}

TEST(GrammarFork, TakesNoMoreStepsForAllItsCopiesThanATextMay) {
  const auto vocabulary = VocabularyWith({});
  const GrammarMatcher start(GrammarProgram::Make(testing::ManyCalls(1000)).value(), vocabulary);
  Text run;
  for (GrammarMatcher matcher = start; matcher.steps() < kMaxGrammarTextSteps / 20;) {
    ASSERT_LT(run.size(), 1000u);
    ASSERT_TRUE(matcher.Append(run.emplace_back('a')));
  }
  Text other = run;
  other[0] = 'b';
  GrammarFork fork(start);
  int allowed = 0;  // each behind another run than the one before, so that it is walked anew
  while (allowed < 100 && fork.Allows(allowed % 2 == 0 ? run : other, 'a')) ++allowed;
  EXPECT_GE(allowed, 1);
  EXPECT_LT(allowed, 22);
  fork.Confirm('c');
  EXPECT_FALSE(fork.Allows({}, 'a')) << "a wrong guess gives none back";
}

TEST(SpeculatorWithAGrammar, SendsNoGuessThatTheGrammarRefusesBehindTheRun) {
  const auto vocabulary = VocabularyWith({});
  const GrammarMatcher start(GrammarProgram::Decode(testing::Lists(2000)).value(), vocabulary);
  const Text tokens = {'[', ']', ',', '0', ';', '9', 'x'};
  std::mt19937 random(32);
  TokenId next = 0;
  Speculator speculator(GuessingByPosition([&next](int64_t) { return next; }));
  speculator.SetRows(100, 0);
  SequenceSpec spec = SpecOf(1, {'x'});
  spec.stop_tokens = {EndOf(*vocabulary)};
  GuessLine line(&speculator, std::move(spec), start);
  GrammarMatcher behind_run = start, behind_output = start;
  int sent = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    next = tokens[random() % 7];
    const bool may_follow = GrammarMatcher(behind_run).Append(next);
    ASSERT_EQ(line.Send(), may_follow ? next : kNoToken) << i;
    (may_follow ? sent : refused) += 1;
    if (may_follow) {
      ASSERT_TRUE(behind_run.Append(next));
    }
    if (random() % 3 != 0) continue;
    const Text& guesses = line.sequence().guesses;
    const TokenId token = !guesses.empty() && random() % 2 == 0 ? guesses.front() : tokens[random() % 5];
    if (!GrammarMatcher(behind_output).Append(token)) continue;
    const bool hit = !guesses.empty() && guesses.front() == token;
    ASSERT_TRUE(behind_output.Append(token));
    if (!hit) behind_run = behind_output;
    line.Come(token);
  }
  EXPECT_GT(sent, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace stagecoach
