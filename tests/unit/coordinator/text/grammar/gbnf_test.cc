#include "coordinator/text/grammar/gbnf.h"

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;

GrammarTexts::Adder FromGbnf(const std::string& text) {
  return [text](GrammarRules* rules) { return AddGbnf(text, rules); };
}

std::vector<std::string> OfGrammar(const std::string& grammar, const std::vector<std::string>& texts) {
  const GrammarTexts compiled = GrammarTexts::Of(FromGbnf(grammar));
  std::vector<std::string> matching;
  for (const std::string& text : texts) {
    if (compiled.Accepts(text)) matching.push_back(text);
  }
  return matching;
}

std::string GbnfError(const std::string& grammar) {
  return std::string(testing::StatusOf(FromGbnf(grammar)).message());
}

TEST(Gbnf, ReadsTheExampleOfAChessGame) {
  const std::string chess = R"(
# `root` specifies the pattern for the overall output
root ::= (
    # one move each
    "1. " move " " move "\n"

    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
# piece type, optional file/rank, optional capture, dest file & rank
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
# optional file & capture, dest file & rank, optional promotion
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
)";
  EXPECT_THAT(OfGrammar(chess, {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n", "1. e4 e5\n2. O-O-O exd5=Q+\n",
                                "1. e9 e5\n2. a4 a5\n"}),
              ElementsAre("1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O-O exd5=Q+\n"));
}

TEST(Gbnf, RulesMayCallEachOtherAndThemselves) {
  EXPECT_THAT(OfGrammar("root ::= \"(\" root? \")\" | item\nitem ::= [0-9]+", {"((7))", "()", "((", "12", "(()"}),
              ElementsAre("((7))", "()", "12"));
}

TEST(Gbnf, ReadsEscapesClassesAndTheDot) {
  EXPECT_THAT(OfGrammar("root ::= \"\\x41\\u00e9\\U0001F600\\t\\r\\n\\\\\\\"\\[\\]\"", {"Aé😀\t\r\n\\\"[]"}), SizeIs(1));
  EXPECT_THAT(OfGrammar("root ::= [^a-c\\n\\]] .", {"da", "d\n", "dé", "aa", "]a", "d"}),
              ElementsAre("da", "d\n", "dé"));
  EXPECT_THAT(OfGrammar("root ::= [ぁ-ゟ]{2}", {"ぁゟ", "ぁ", "ab"}), ElementsAre("ぁゟ"));
  EXPECT_THAT(OfGrammar("root ::= [-+a]", {"-", "+", "a", ","}), ElementsAre("-", "+", "a"));
}

TEST(Gbnf, ReadsRepetition) {
  EXPECT_THAT(
      OfGrammar("root ::= \"a\"{2,3} \"b\"{2} \"c\"{1,} \"d\"? \"e\"*", {"aabbc", "aaabbccdee", "abbc", "aabbb"}),
      ElementsAre("aabbc", "aaabbccdee"));
  EXPECT_THAT(OfGrammar("root ::= (\"ab\" | \"c\")  +", {"abcab", "", "ca"}), ElementsAre("abcab"));
  EXPECT_THAT(OfGrammar("root ::= \"a\"{ 1 , 2 } \"b\"{ 2 } \"c\"{1,\t}", {"abbc", "aabbcc", "aaabbc", "abb"}),
              ElementsAre("abbc", "aabbcc"));
}

TEST(Gbnf, ALineEndsARuleUnlessItIsOpen) {
  EXPECT_THAT(OfGrammar("root ::=\n  \"a\" |\n  \"b\"\n  | \"c\" # last\nx ::= \"d\"", {"a", "b", "c", "d"}),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(OfGrammar("root ::= x-y_Z1 (\n\"b\"\n)\r\nx-y_Z1 ::= \"a\" |", {"ab", "b", "a"}), ElementsAre("ab", "b"));
  EXPECT_THAT(GbnfError("root ::= \"a\"\n  \"b\""),
              HasSubstr("grammar: expected the name of a rule, at line 2, character 3"));
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(GbnfError("root ::= item\n"),
            "grammar: expected a definition of the rule 'item', at line 1, character 10 ('i')");
  EXPECT_EQ(GbnfError("main ::= \"a\""), "grammar: expected a rule 'root', at character 13 (the end)");
  EXPECT_THAT(GbnfError(""), HasSubstr("expected a rule 'root'"));
  EXPECT_THAT(GbnfError("root = \"a\""), HasSubstr("expected '::=' after the name of a rule, at character 6 ('=')"));
  EXPECT_THAT(GbnfError("root ::= \"a"), HasSubstr("expected a quote after this literal, at character 10"));
  EXPECT_THAT(GbnfError("root ::= [a"), HasSubstr("expected ']' at the end of a class"));
  EXPECT_THAT(GbnfError("root ::= (\"a\""), HasSubstr("expected ')' after this group"));
  EXPECT_THAT(GbnfError("root ::= \"a\"{3,2}"), HasSubstr("expected the larger count after the smaller one"));
  EXPECT_THAT(GbnfError("root ::= \"a\"{x}"), HasSubstr("expected a literal, a class, a group"));
  EXPECT_THAT(GbnfError("root ::= \"a\"{ ,2}"), HasSubstr("expected a count before the ','"));
  EXPECT_THAT(GbnfError("root ::= \"\\q\""), HasSubstr("there is no such escape"));
  EXPECT_THAT(GbnfError("root ::= \"\\uD800\""), HasSubstr("a surrogate is no character"));
  EXPECT_THAT(GbnfError("root ::= \"a\"\nroot ::= \"b\""),
              HasSubstr("expected one definition of each rule, at line 2"));
  EXPECT_THAT(GbnfError("root ::= <think> \"a\""), HasSubstr("tokens are not supported"));
  EXPECT_THAT(GbnfError("root ::= \"\xFF\""), HasSubstr("this is no UTF-8"));
  EXPECT_THAT(GbnfError("root ::= root \"a\" | \"b\""), HasSubstr("root"));
}

TEST(Gbnf, EndsQuicklyWithHostileGrammars) {
  std::string deep = "root ::= ", alternatives = "root ::= \"a\"", rules = "root ::= r0\n";
  for (int i = 0; i < 100'000; ++i) deep += "(";
  for (int i = 0; i < 60'000; ++i) alternatives += "|\"\"";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&rules, "r", i, " ::= \"a\" r", i + 1, "\n");
  EXPECT_THAT(GbnfError(deep), HasSubstr("groups within each other"));
  EXPECT_EQ(GbnfError(alternatives), "");
  EXPECT_THAT(GbnfError(rules), HasSubstr("expected a definition of the rule 'r10000'"));
  EXPECT_THAT(testing::StatusOf(FromGbnf("root ::= ((\"a\"{9999}){9999}){9999}")),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  EXPECT_THAT(testing::StatusOf(FromGbnf(std::string(300'000, ' '))),
              StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
}

}  // namespace
}  // namespace stagecoach
