#include "coordinator/text/grammar/compile.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/text/utf8.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

using testing::RulesByDefinition;
using testing::Symbols;
using testing::SymbolsOf;

// The root's expression is what `make` adds.
template <typename MakeExpr>
GrammarRules RulesOf(MakeExpr make) {
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  rules.Define(root, make(&rules));
  rules.SetRoot(root);
  return rules;
}

const std::shared_ptr<const GrammarVocabulary>& Bytes() {
  static const auto kBytes = testing::VocabularyWith({});
  return kBytes;
}

GrammarMatcher MatcherOf(const GrammarRules& rules) {
  const absl::StatusOr<GrammarProgram> program = CompileGrammar(rules);
  EXPECT_EQ(program.status().ToString(), "OK");
  return GrammarMatcher(program.value(), Bytes());
}

// Whether the program takes the symbols up to the end, and may end there.
bool Accepts(GrammarMatcher matcher, const Symbols& symbols) {
  for (const int symbol : symbols) {
    if (!matcher.Append(symbol < 256 ? symbol : symbol - 256)) return false;
  }
  return matcher.accepting();
}

// All texts of so many of the symbols.
std::vector<Symbols> AllTexts(const Symbols& symbols, size_t longest) {
  std::vector<Symbols> texts = {{}};
  for (size_t i = 0; i < texts.size() && texts[i].size() < longest; ++i) {
    for (const int symbol : symbols) {
      Symbols text = texts[i];
      text.push_back(symbol);
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

TEST(CompileGrammar, KeepsTheLanguageOfRandomRules) {
  std::mt19937 random(7);
  const TokenId atom = testing::ControlOf(*Bytes());
  const std::vector<Symbols> texts = AllTexts({'a', 'b', 'c', 256 + atom}, 5);
  size_t fit = 0;
  const size_t grammars = testing::kSanitized ? 20 : 80;
  for (size_t i = 0; i < grammars; ++i) {
    const auto [rules, program] = testing::RandomGrammar(atom, &random);
    const GrammarMatcher matcher(program, Bytes());
    for (const Symbols& text : texts) {
      const bool expected = RulesByDefinition(rules, text).Match();
      fit += expected;
      ASSERT_EQ(Accepts(matcher, text), expected) << "grammar " << i << ", text of " << text.size();
    }
  }
  EXPECT_GT(fit, 10u * grammars);  // enough of them are not empty
}

TEST(CompileGrammar, GivesEqualBytesForEqualRules) {
  std::mt19937 random(8);
  for (int i = 0; i < 20; ++i) {
    std::mt19937 again = random;
    const auto [rules, program] = testing::RandomGrammar(300, &random);
    EXPECT_EQ(testing::RandomGrammar(300, &again).second.bytes(), program.bytes());
    EXPECT_EQ(CompileGrammar(rules)->bytes(), program.bytes());
  }
}

TEST(CompileGrammar, TakesJustTheCodePointsOfAClass) {
  std::mt19937 random(9);
  constexpr uint32_t kEdges[] = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x10FFFF};
  for (int i = 0; i < 30; ++i) {
    std::vector<CodePointRange> ranges;
    for (int r = 0; r < 3; ++r) {
      uint32_t ends[2];
      for (uint32_t& end : ends) end = random() % 2 == 0 ? kEdges[random() % std::size(kEdges)] : random() % 0x120000;
      ranges.push_back({std::min(ends[0], ends[1]), std::max(ends[0], ends[1])});
    }
    const bool negated = i % 2 == 1;
    const CodePointSet set(ranges);
    const GrammarMatcher matcher = MatcherOf(RulesOf([&](GrammarRules* rules) {
      return rules->Choice({rules->CodePoints(negated ? set.Complement() : set), rules->Literal("")});
    }));
    const auto check = [&](uint32_t code_point) {
      if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) return;
      const bool inside = std::any_of(ranges.begin(), ranges.end(), [code_point](const CodePointRange& range) {
        return code_point >= range.first && code_point <= range.last;
      });
      std::string bytes;
      AppendUtf8(code_point, &bytes);
      ASSERT_EQ(Accepts(matcher, SymbolsOf(bytes)), inside != negated) << std::hex << code_point;
    };
    for (const auto& [first, last] : ranges) {
      for (const uint32_t edge : {first, last}) check(edge - 1), check(edge), check(edge + 1);
    }
    for (int s = 0; s < 200; ++s) check(random() % 0x110000);
  }
  const GrammarMatcher any =
      MatcherOf(RulesOf([](GrammarRules* rules) { return rules->CodePoints(CodePointSet().Complement()); }));
  for (const char* broken : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8", "\xC3"}) {
    EXPECT_FALSE(Accepts(any, SymbolsOf(broken))) << broken;
  }
}

TEST(CompileGrammar, CountsRepetitions) {
  const GrammarMatcher matcher = MatcherOf(RulesOf([](GrammarRules* rules) {
    const CodePointSet letters = {{'a', 'z'}, {0xE9, 0xE9}};
    return rules->Sequence({rules->Repeat(rules->CodePoints(letters), 3, 700), rules->Literal("!")});
  }));
  std::string text;
  for (int i = 0; i < 703; ++i, text += i % 3 == 0 ? "\u00e9" : "x") {
    ASSERT_EQ(Accepts(matcher, SymbolsOf(text + "!")), i >= 3 && i <= 700) << i;
  }
  EXPECT_LT(matcher.program().bytes().size(), 4000u);  // equal states are written once
}

TEST(CompileGrammar, EndsTextAtItsMarker) {
  std::mt19937 random(10);
  for (int i = 0; i < (testing::kSanitized ? 4 : 15); ++i) {
    const auto word = [&random] {
      std::string text;
      for (size_t left = random() % 3 + 1; left > 0; --left) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::string marker = word();
    const std::vector<std::string> others(random() % 3, word());
    // Text, marker and a grammar any number of times, then text.
    const GrammarRules rules = RulesOf([&](GrammarRules* made) {
      const ExprId part = made->Sequence({made->TextUntil(marker, others), made->Literal("<>")});
      return made->Sequence({made->Repeat(part, 0), made->TextWithout(std::vector<std::string>{marker})});
    });
    const GrammarMatcher matcher = MatcherOf(rules);
    for (const Symbols& text : AllTexts({'a', 'b', '<', '>'}, 6)) {
      ASSERT_EQ(Accepts(matcher, text), RulesByDefinition(rules, text).Match()) << marker << " " << text.size();
    }
  }
}

TEST(CompileGrammar, RefusesWhatIsNoGrammar) {
  using Code = absl::StatusCode;
  GrammarRules rules;
  EXPECT_THAT(CompileGrammar(rules).status(), StatusIs(Code::kInvalidArgument, HasSubstr("no root")));
  const RuleId root = rules.Declare("root"), item = rules.Declare("item"), other = rules.Declare("other");
  rules.SetRoot(root);
  rules.Define(root, rules.Choice({rules.Call(item), rules.Literal("x")}));
  EXPECT_THAT(CompileGrammar(rules).status(), StatusIs(Code::kInvalidArgument, HasSubstr("'item' is used and not")));
  // By way of a rule that may be empty.
  rules.Define(item, rules.Sequence({rules.Call(other), rules.Call(root), rules.Literal("y")}));
  rules.Define(other,
               rules.Repeat(rules.Sequence({rules.Literal("a long word, lest it is inlined"), rules.Call(other)}), 0));
  EXPECT_THAT(CompileGrammar(rules).status(),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("calls itself before"), HasSubstr("-> 'root'"), HasSubstr("at its end"))));

  const auto status_of = [](auto make) { return CompileGrammar(RulesOf(make)).status(); };
  EXPECT_THAT(status_of([](GrammarRules* made) { return made->Choice(std::vector<ExprId>()); }),
              StatusIs(Code::kInvalidArgument, HasSubstr("no text fits")));
  EXPECT_THAT(status_of([](GrammarRules* made) {
                return made->Sequence({made->Literal("a"), made->Call(0)});
              }),
              StatusIs(Code::kInvalidArgument, HasSubstr("no text fits")));
  EXPECT_THAT(status_of([](GrammarRules* made) {
                ExprId expr = made->Literal("a");
                for (int i = 0; i < kMaxExprDepth; ++i) expr = made->Sequence({expr});
                return expr;
              }),
              StatusIs(Code::kInvalidArgument, HasSubstr("is nested 201 deep, at most 200")));
}

TEST(CompileGrammar, RefusesWhatIsTooLarge) {
  using Code = absl::StatusCode;
  const auto status_of = [](auto make) { return CompileGrammar(RulesOf(make)).status(); };
  // A sequence of itself, and so on.
  EXPECT_THAT(status_of([](GrammarRules* made) {
                ExprId expr = made->Literal("ab");
                for (int i = 0; i < 60; ++i) expr = made->Sequence({expr, expr});
                return expr;
              }),
              StatusIs(Code::kResourceExhausted, HasSubstr("smaller bounds")));
  EXPECT_THAT(status_of([](GrammarRules* made) { return made->Repeat(made->Literal(""), 0, 2'000'000'000); }),
              StatusIs(Code::kResourceExhausted, HasSubstr("smaller bounds")));
  EXPECT_THAT(status_of([](GrammarRules* made) { return made->Repeat(made->Literal("ab"), 40000, 40000); }),
              StatusIs(Code::kResourceExhausted, HasSubstr("more than 65536 states")));
  const auto many_of_one_rule = [](int count) {
    return [count](GrammarRules* made) {
      const RuleId large = made->Declare("a large one");
      made->Define(large, made->Repeat(made->Literal("ab"), count, count));
      return made->Sequence({made->Call(large), made->Literal(std::string(5'000, 'c')), made->Call(large)});
    };
  };
  for (const int count : {40'000, 400'000}) {
    EXPECT_THAT(status_of(many_of_one_rule(count)),
                StatusIs(Code::kResourceExhausted, HasSubstr("its largest rule is 'a large one'")));
  }
  // Which of the last 20 were a: 2^20 states.
  ByteSet letters;
  letters.set('a').set('b');
  EXPECT_THAT(status_of([&](GrammarRules* made) {
                const ExprId letter = made->Class(letters);
                return made->Sequence({made->Repeat(letter, 0), made->Literal("a"), made->Repeat(letter, 20, 20)});
              }),
              StatusIs(Code::kResourceExhausted, HasSubstr("grammar")));
  // Words of three random bytes, which have nothing in common.
  std::mt19937 random(11);
  EXPECT_THAT(status_of([&random](GrammarRules* made) {
                std::vector<ExprId> words;
                for (int i = 0; i < 60000; ++i) {
                  std::string word;
                  for (int c = 0; c < 3; ++c) word += static_cast<char>(random());
                  words.push_back(made->Literal(word));
                }
                return made->Choice(words);
              }),
              StatusIs(Code::kResourceExhausted, AllOf(HasSubstr("bytes"), HasSubstr("at most 262144"))));
}

TEST(CompileGrammar, RefusesRulesThatStoppedGrowing) {
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  std::vector<ExprId> parts;
  for (int i = 0; i < 100; ++i) parts.push_back(rules.Literal(std::string(1 << 20, 'a')));
  EXPECT_TRUE(rules.full());
  EXPECT_EQ(parts[99], parts[0]) << "there is none of its own";
  EXPECT_EQ(parts[99], rules.TextUntil("a"));
  rules.Define(root, rules.Sequence(parts));
  rules.SetRoot(root);
  EXPECT_THAT(CompileGrammar(rules).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too large to compile")));
}

// Each rule calls the next one.
GrammarRules ChainOfRules(int count, bool with_prefix, bool twice) {
  GrammarRules rules;
  for (int i = 0; i < count; ++i) rules.Declare(absl::StrCat("r", i));
  for (int i = 0; i < count; ++i) {
    const ExprId next = i + 1 < count ? rules.Call(i + 1) : rules.Literal("z");
    const ExprId one = rules.Sequence({rules.Literal(with_prefix ? "a" : ""), next, rules.Literal("b")});
    rules.Define(
        i, twice ? rules.Choice({one, rules.Sequence({rules.Literal("d"), next, rules.Literal("a long end of it")})})
                 : one);
  }
  rules.SetRoot(0);
  return rules;
}

TEST(CompileGrammar, TakesLongChainsOfRules) {
  const GrammarMatcher matcher = MatcherOf(ChainOfRules(3000, /*with_prefix=*/true, /*twice=*/false));
  EXPECT_TRUE(Accepts(matcher, SymbolsOf(absl::StrCat(std::string(2999, 'a'), "az", std::string(3000, 'b')))));
  // Each a state of its own stack, as they are used twice.
  EXPECT_TRUE(CompileGrammar(ChainOfRules(60, true, true)).ok());
  EXPECT_THAT(CompileGrammar(ChainOfRules(80, true, true)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 64 rules within each other")));
  EXPECT_THAT(CompileGrammar(ChainOfRules(2000, false, true)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("call each other in a row")));
}

}  // namespace
}  // namespace stagecoach
