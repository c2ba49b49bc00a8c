#include "common/grammar/matcher.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/text/grammar/compile.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

using testing::ControlOf;
using testing::EndOf;
using testing::VocabularyWith;

// root, whose expression is what `make` adds, and may call itself as rule 0.
template <typename MakeExpr>
GrammarProgram ProgramOf(MakeExpr make) {
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  rules.Define(root, make(&rules));
  rules.SetRoot(root);
  return CompileGrammar(rules).value();
}

// Whether all bytes could be appended, one after the other.
bool AppendBytes(const std::string& bytes, GrammarMatcher* matcher) {
  for (const char c : bytes) {
    if (!matcher->Append(static_cast<uint8_t>(c))) return false;
  }
  return true;
}

std::vector<TokenId> AllowedOf(const GrammarMatcher& matcher, const GrammarVocabulary& vocabulary) {
  std::vector<TokenId> allowed;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    if (GrammarMatcher(matcher).Append(token)) allowed.push_back(token);
  }
  return allowed;
}

TEST(GrammarMatcher, LeavesItselfAloneWhereATokenIsNotAllowed) {
  const auto vocabulary = VocabularyWith({"ab", "ax"});
  GrammarMatcher matcher(ProgramOf([](GrammarRules* rules) { return rules->Literal("abc"); }), vocabulary);
  const GrammarMatcher start = matcher;
  for (const TokenId token : {-1, 257, static_cast<int>('b'), EndOf(*vocabulary), ControlOf(*vocabulary), 1 << 20}) {
    EXPECT_FALSE(matcher.Append(token)) << token;
    EXPECT_TRUE(matcher == start);
  }
  EXPECT_TRUE(matcher.Append(256));
  EXPECT_FALSE(matcher == start);
  EXPECT_FALSE(matcher.accepting());
  EXPECT_TRUE(matcher.Append('c'));
  EXPECT_TRUE(matcher.accepting());
  EXPECT_THAT(AllowedOf(matcher, *vocabulary), ElementsAre(EndOf(*vocabulary)));
}

TEST(GrammarMatcher, EndsWithEndTokensAlone) {
  const auto vocabulary = VocabularyWith({});
  GrammarMatcher matcher(ProgramOf([](GrammarRules* rules) { return rules->Repeat(rules->Literal("a"), 0); }),
                         vocabulary);
  EXPECT_TRUE(matcher.accepting());
  EXPECT_FALSE(matcher.ended());
  EXPECT_TRUE(matcher.Append('a'));
  EXPECT_TRUE(matcher.Append(EndOf(*vocabulary)));
  EXPECT_TRUE(matcher.ended());
  EXPECT_FALSE(matcher.Append('a'));
  EXPECT_TRUE(matcher.Append(EndOf(*vocabulary)));
}

TEST(GrammarMatcher, TakesAnyTokenThatTheGrammarNames) {
  const auto vocabulary = VocabularyWith({"ab"});
  const TokenId control = ControlOf(*vocabulary), end = EndOf(*vocabulary);
  // A control token, one of text, whatever its bytes are, and an end token within the text.
  GrammarMatcher matcher(ProgramOf([&](GrammarRules* rules) {
                           return rules->Sequence({rules->TextWithout({}), rules->Token(control), rules->Token(256),
                                                   rules->Token(end), rules->Literal("x")});
                         }),
                         vocabulary);
  EXPECT_TRUE(AppendBytes("text \xFF", &matcher));
  EXPECT_TRUE(matcher.Append(control));
  EXPECT_THAT(AllowedOf(matcher, *vocabulary), ElementsAre(256));
  EXPECT_TRUE(matcher.Append(256));
  EXPECT_TRUE(matcher.Append(end));
  EXPECT_FALSE(matcher.ended());
  EXPECT_THAT(AllowedOf(matcher, *vocabulary), ElementsAre('x'));
}

TEST(GrammarMatcher, SwitchesAGrammarOnWhereATokenStraddlesItsMarker) {
  const auto vocabulary = VocabularyWith({"x<c", "all>{", "}</", "call><", "<call>x"});
  const GrammarProgram program = ProgramOf([](GrammarRules* rules) {
    const ExprId call = rules->Sequence({rules->TextUntil("<call>"), rules->Literal("{}"), rules->Literal("</call>")});
    return rules->Sequence({rules->Repeat(call, 0), rules->TextWithout(std::vector<std::string>{"<call>"})});
  });
  GrammarMatcher matcher(program, vocabulary);
  EXPECT_TRUE(matcher.Append(256));
  EXPECT_TRUE(matcher.accepting());  // it may still be text
  EXPECT_TRUE(matcher.Append(257));
  EXPECT_FALSE(matcher.accepting());
  EXPECT_FALSE(matcher.Append('x'));
  EXPECT_TRUE(matcher.Append(258));
  EXPECT_FALSE(matcher.Append('x'));
  EXPECT_TRUE(matcher.Append(259));
  EXPECT_TRUE(matcher.accepting());
  EXPECT_FALSE(matcher.Append(260));
  EXPECT_TRUE(AppendBytes("as you like <call>{", &matcher));
  EXPECT_FALSE(matcher.accepting());
}

// ("[" root "]" | "x")
GrammarProgram Brackets() {
  return ProgramOf([](GrammarRules* rules) {
    return rules->Choice(
        {rules->Sequence({rules->Literal("["), rules->Call(0), rules->Literal("]")}), rules->Literal("x")});
  });
}

TEST(GrammarMatcher, NestsAsDeepAsItsLimitAndComesBack) {
  const auto vocabulary = VocabularyWith({"[[", "[x"});
  GrammarMatcher matcher(Brackets(), vocabulary);
  for (int depth = 0; depth < kMaxGrammarDepth; ++depth) {
    GrammarMatcher closed = matcher;
    EXPECT_TRUE(AppendBytes(absl::StrCat("x", std::string(static_cast<size_t>(depth), ']')), &closed));
    EXPECT_TRUE(closed.accepting());
    EXPECT_EQ(GrammarMatcher(matcher).Append(256), depth + 2 <= kMaxGrammarDepth);
    ASSERT_TRUE(matcher.Append('['));
  }
  EXPECT_THAT(AllowedOf(matcher, *vocabulary), ElementsAre('x'));
}

TEST(GrammarMatcher, ForgetsCallsAtTheEndOfARule) {
  // root: "x" ("," root)?
  const GrammarProgram program = ProgramOf([](GrammarRules* rules) {
    return rules->Sequence(
        {rules->Literal("x"), rules->Repeat(rules->Sequence({rules->Literal(","), rules->Call(0)}), 0, 1)});
  });
  GrammarMatcher matcher(program, VocabularyWith({}));
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(AppendBytes("x,", &matcher));
  EXPECT_TRUE(AppendBytes("x", &matcher));
  EXPECT_TRUE(matcher.accepting());
  ASSERT_THAT(matcher.stacks(), SizeIs(1));
  EXPECT_THAT(matcher.stacks()[0], SizeIs(1));
}

TEST(GrammarMatcher, KeepsTheFirstOfTooManyReadingsAndAlwaysComesToAnEnd) {
  // Any text of a and b in the middle of itself: after n letters there are n readings, of every depth.
  const GrammarProgram program = ProgramOf([](GrammarRules* rules) {
    std::vector<ExprId> alternatives = {rules->Literal("a"), rules->Literal("b")};
    for (const char* letter : {"a", "b"}) {
      for (const char* last : {"a", "b", "c"}) {
        alternatives.push_back(rules->Sequence({rules->Literal(letter), rules->Call(0), rules->Literal(last)}));
      }
    }
    return rules->Choice(alternatives);
  });
  const auto vocabulary = VocabularyWith({"ab", "abababab"});
  std::mt19937 random(3);
  GrammarMatcher matcher(program, vocabulary);
  size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_THAT(AllowedOf(matcher, *vocabulary), Not(IsEmpty()));
    constexpr TokenId kTokens[] = {'a', 'b', 256, 257};
    if (!matcher.Append(kTokens[random() % 4]) && !matcher.Append('a')) break;
    most = std::max(most, matcher.stacks().size());
    // Each reading that is kept can be brought to an end.
    GrammarMatcher closed = matcher;
    for (int bytes = 0; !closed.accepting() && bytes <= kMaxGrammarDepth; ++bytes) {
      ASSERT_TRUE(closed.Append('c') || closed.Append('a'));
    }
    ASSERT_TRUE(closed.accepting());
  }
  EXPECT_EQ(most, kMaxGrammarStacks);
}

TEST(FrameWalk, EndsWithTheStepsThatItMayTake) {
  // As many readings as are followed, so that it could go on for ever; and a step that takes more than it may.
  const GrammarProgram few = GrammarProgram::Make(testing::ManyCalls(16)).value();
  const GrammarProgram many = GrammarProgram::Make(testing::ManyCalls(9000)).value();
  FrameWalk walk;
  for (const int64_t steps : {int64_t{0}, int64_t{10}, int64_t{1000}, int64_t{1'000'000}}) {
    for (const GrammarProgram& program : {few, many}) {
      const int64_t before = walk.steps();
      walk.Allow(steps);
      walk.Begin(program, program.start(), kMaxGrammarDepth);
      for (size_t depth = 0; walk.Step(depth, 'a'); ++depth) ASSERT_LT(depth, 1'000'000u);
      EXPECT_TRUE(walk.exhausted()) << steps;
      EXPECT_LT(walk.steps() - before, steps + 3000) << "one look more at most";
    }
  }
}

TEST(GrammarMatcher, TakesNoMoreTokensThanItsTextMayTakeSteps) {
  const auto vocabulary = VocabularyWith({"ab"});
  GrammarMatcher matcher(GrammarProgram::Make(testing::ManyCalls(1000)).value(), vocabulary);
  std::vector<TokenId> output;
  while (output.size() < 10'000 && matcher.Append('a')) output.push_back('a');
  EXPECT_GT(output.size(), kMaxGrammarTextSteps / kMaxGrammarTokenSteps);
  EXPECT_LT(output.size(), 10'000u);
  GrammarMatcher again(matcher.program(), vocabulary);
  for (const TokenId token : output) ASSERT_TRUE(again.Append(token));
  EXPECT_FALSE(again.Append('a')) << "at the same token whenever its text is followed";
}

TEST(GrammarMatcher, IsThatOfItsOutputHoweverItCameThere) {
  std::mt19937 random(4);
  for (int grammar = 0; grammar < 60; ++grammar) {
    const auto vocabulary = VocabularyWith(testing::RandomTexts(30, 5, &random));
    const GrammarProgram program = testing::RandomGrammar(ControlOf(*vocabulary), &random).second;
    GrammarMatcher matcher(program, vocabulary);
    std::vector<TokenId> output;
    for (int step = 0; step < 25 && !matcher.ended(); ++step) {
      const std::vector<TokenId> allowed = AllowedOf(matcher, *vocabulary);
      ASSERT_THAT(allowed, Not(IsEmpty()));
      GrammarMatcher fork = matcher;  // a run of guesses, dropped
      for (int guess = 0; guess < 3; ++guess) fork.Append(static_cast<TokenId>(random() % 260));
      output.push_back(allowed[random() % allowed.size()]);
      ASSERT_TRUE(matcher.Append(output.back()));
    }
    GrammarMatcher rebuilt(GrammarProgram::Decode(program.bytes()).value(), vocabulary);
    for (const TokenId token : output) ASSERT_TRUE(rebuilt.Append(token));
    EXPECT_TRUE(rebuilt == matcher);
    EXPECT_EQ(rebuilt.accepting(), matcher.accepting());
  }
}

}  // namespace
}  // namespace stagecoach
