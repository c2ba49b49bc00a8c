#include "coordinator/text/grammar/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/utf8.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;

GrammarTexts::Adder FromPattern(const std::string& pattern) {
  return [pattern](GrammarRules* rules) -> absl::StatusOr<ExprId> {
    const absl::StatusOr<RegexExpr> regex = AddPlainRegex(pattern, rules);
    if (!regex.ok()) return regex.status();
    return regex->expr;
  };
}

// In the quotes of a JSON string.
GrammarTexts::Adder InJson(const std::string& pattern) {
  return [pattern](GrammarRules* rules) -> absl::StatusOr<ExprId> {
    JsonRules json(rules);
    const absl::StatusOr<RegexExpr> regex = AddRegex(
        pattern, [&](const CodePointSet& set) { return json.Character(set); }, rules);
    if (!regex.ok()) return regex.status();
    return json.Quoted(regex->expr);
  };
}

// The texts that the pattern matches, of those given.
std::vector<std::string> OfPattern(const std::string& pattern, const std::vector<std::string>& texts) {
  const GrammarTexts grammar = GrammarTexts::Of(FromPattern(pattern));
  const GrammarTexts json = GrammarTexts::Of(InJson(pattern));
  std::vector<std::string> matching;
  for (const std::string& text : texts) {
    if (grammar.Accepts(text)) matching.push_back(text);
    EXPECT_EQ(json.Accepts(JsonString(text)), grammar.Accepts(text)) << pattern << " on " << text;
  }
  return matching;
}

TEST(Regex, MatchesWholeTexts) {
  EXPECT_THAT(OfPattern("a|bc", {"a", "bc", "b", "abc", ""}), ElementsAre("a", "bc"));
  EXPECT_THAT(OfPattern("^ab$", {"ab", "xab", "aby"}), ElementsAre("ab"));
  EXPECT_THAT(OfPattern("^(?:a$|b)", {"a", "b", "ab"}), ElementsAre("a", "b"));
  EXPECT_THAT(OfPattern("(^a|^b)c$", {"ac", "bc", "c"}), ElementsAre("ac", "bc"));
  EXPECT_THAT(OfPattern("", {"", "a"}), ElementsAre(""));
}

TEST(Regex, RepeatsCharactersAndGroups) {
  EXPECT_THAT(OfPattern("a*", {"", "a", "aaa", "b"}), ElementsAre("", "a", "aaa"));
  EXPECT_THAT(OfPattern("(ab)+?", {"", "ab", "abab", "aba"}), ElementsAre("ab", "abab"));
  EXPECT_THAT(OfPattern("a{2}b{1,}c{0,2}", {"aab", "ab", "aabbcc", "aabccc"}), ElementsAre("aab", "aabbcc"));
  EXPECT_THAT(OfPattern("(?<x>a)(?P<y_1>b)?", {"a", "ab", "b"}), ElementsAre("a", "ab"));
  EXPECT_THAT(OfPattern("a{x}", {"a{x}", "aa"}), ElementsAre("a{x}"));
  EXPECT_THAT(OfPattern("(a*)*b", {"b", "aaab", "a"}), ElementsAre("b", "aaab"));
}

TEST(Regex, ReadsClassesAndEscapes) {
  EXPECT_THAT(OfPattern("[a-c-]", {"a", "c", "-", "d"}), ElementsAre("a", "c", "-"));
  EXPECT_THAT(OfPattern("[^a\\]]", {"b", "a", "]", "\n", "\"", "\\", "é"}), ElementsAre("b", "\n", "\"", "\\", "é"));
  EXPECT_THAT(OfPattern("\\d\\D", {"1a", "11", "a1"}), ElementsAre("1a"));
  EXPECT_THAT(OfPattern("\\w\\W", {"_ ", "a-", "ab", "é "}), ElementsAre("_ ", "a-"));
  EXPECT_THAT(OfPattern("\\s\\S", {" a", "\ta", "a ", "  ", " \xC2\xA0"}), ElementsAre(" a", "\ta"));
  EXPECT_THAT(OfPattern("[\\d\\-x]", {"5", "-", "x", "y"}), ElementsAre("5", "-", "x"));
  EXPECT_THAT(OfPattern("\\t\\n\\r\\f\\v", {"\t\n\r\f\v"}), SizeIs(1));
  EXPECT_THAT(OfPattern("\\x41\\u00e9\\uD83D\\ude00\\u{1F600}", {"Aé😀😀"}), SizeIs(1));
  EXPECT_THAT(OfPattern("\\.\\*\\/\\-\\_\\\"", {".*/-_\""}), SizeIs(1));
  EXPECT_THAT(OfPattern(".", {"a", "\n", "\r", "é", "😀", "\"", "\x01"}), ElementsAre("a", "é", "😀", "\"", "\x01"));
  EXPECT_THAT(OfPattern("[\\b]", {"\b"}), SizeIs(1));
  EXPECT_THAT(OfPattern("[é-ü]+", {"éêü", "z"}), ElementsAre("éêü"));
}

// Some go by ASCII, some by Unicode.
TEST(Regex, TakesWhatEveryReaderOfThePatternTakes) {
  const std::vector<std::string> texts = {"5", "a", "_", "-", " ", "\x1C", "é", "\u00A0", "\u0663", "\u3000"};
  const auto of = [&](const std::string& pattern) { return OfPattern(pattern, texts); };
  EXPECT_THAT(of("\\d"), ElementsAre("5"));
  EXPECT_THAT(of("\\w"), ElementsAre("5", "a", "_"));
  EXPECT_THAT(of("\\s"), ElementsAre(" "));
  EXPECT_THAT(of("\\D"), ElementsAre("a", "_", "-", " ", "\x1C"));
  EXPECT_THAT(of("\\W"), ElementsAre("-", " ", "\x1C"));
  EXPECT_THAT(of("\\S"), ElementsAre("5", "a", "_", "-", "é", "\u0663"));
  EXPECT_EQ(of("[^\\d]"), of("\\D"));
  EXPECT_EQ(of("[^\\w]"), of("\\W"));
  EXPECT_THAT(of("[^\\s@]"), ElementsAre("5", "a", "_", "-", "é", "\u0663"));
  EXPECT_EQ(of("[^\\D]"), of("\\d"));
  EXPECT_THAT(of("[^\\W_]"), ElementsAre("5", "a"));
  EXPECT_THAT(of("[\\s\\dé]"), ElementsAre("5", " ", "é"));
  for (const char* all : {"[\\s\\S]", "[\\d\\D]", "[\\W\\w]"}) EXPECT_EQ(of(all), texts) << all;
  EXPECT_THAT(testing::StatusOf(FromPattern("[^\\s\\S]")).message(), HasSubstr("no text fits"));
}

TEST(Regex, TellsHowManyCharactersATextHas) {
  const auto lengths = [](absl::string_view pattern) {
    GrammarRules rules;
    const RegexExpr regex = *AddPlainRegex(pattern, &rules);
    return std::pair(regex.min_characters, regex.max_characters);
  };
  EXPECT_EQ(lengths("a{2,3}(b|cd)?"), std::pair(int64_t{2}, int64_t{5}));
  EXPECT_EQ(lengths("é+"), std::pair(int64_t{1}, int64_t{kUnbounded}));
  EXPECT_EQ(lengths("a|(b*)|cc"), std::pair(int64_t{0}, int64_t{kUnbounded}));
  EXPECT_EQ(lengths("(|){5}"), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(lengths("(((a{60000}){60000}){60000}){60000}").first, int64_t{1} << 30);
}

TEST(Regex, RefusesWhatIsNotRegularAndSaysWhere) {
  const auto error = [](const std::string& pattern) {
    return std::string(testing::StatusOf(FromPattern(pattern)).message());
  };
  EXPECT_EQ(error("ab(?=c)"),
            "pattern: look-around is not supported: write out the texts that match, at character 3 ('(')");
  EXPECT_THAT(error("(?!a)b"), HasSubstr("look-around is not supported"));
  EXPECT_THAT(error("(?<=a)b"), HasSubstr("look-around is not supported"));
  EXPECT_THAT(error("(?<!a)b"), HasSubstr("look-around is not supported"));
  EXPECT_THAT(error("é(a)\\1"), HasSubstr("back references are not regular and not supported: write out the texts that "
                                          "match, at character 5 ('\\\\')"));
  EXPECT_THAT(error("\\k<x>"), HasSubstr("back references"));
  EXPECT_THAT(error("\\bword"), HasSubstr("word boundaries"));
  EXPECT_THAT(error("\\p{L}"), HasSubstr("properties of Unicode"));
  EXPECT_THAT(error("(?i)a"), HasSubstr("flags are not supported"));
  EXPECT_THAT(error("a++"), HasSubstr("possessive"));
  EXPECT_THAT(error("a{,5}"), HasSubstr("expected a count before the ',', as in {0,5}, at character 2"));
  EXPECT_THAT(error("a^b"), HasSubstr("expected '^' at the beginning alone, at character 2"));
  EXPECT_THAT(error("a$b"), HasSubstr("expected '$' at the end alone, at character 2"));
  EXPECT_THAT(error("(a$)b"), HasSubstr("expected '$' at the end alone, at character 3"));
  EXPECT_THAT(error("(^a)*"), HasSubstr("before a repetition, at character 1"));
  EXPECT_THAT(error("a\n**"), HasSubstr("at line 2, character 2"));
}

TEST(Regex, RefusesWhatIsNoPattern) {
  for (const std::string pattern :
       {"*",     "a**",     "a{2}{3}",        "{3}",         "(",      "(a",   ")",        "a)",   "[",
        "[a",    "[]",      "[z-a]",          "[a-\\d]x[",   "a{3,2}", "a{2",  "a{70000}", "\\",   "\\xZ1",
        "\\u12", "\\uD800", "\\uD800\\u0041", "\\u{110000}", "\\q",    "\\01", "(?<>a)",   "a\xFF"}) {
    EXPECT_THAT(testing::StatusOf(FromPattern(pattern)), StatusIs(absl::StatusCode::kInvalidArgument, Not(IsEmpty())))
        << pattern;
  }
}

TEST(Regex, EndsQuicklyWithHostilePatterns) {
  const auto status = [](const std::string& pattern) { return testing::StatusOf(FromPattern(pattern)); };
  std::string deep, alternatives;
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&deep, "(");
  for (int i = 0; i < 120'000; ++i) absl::StrAppend(&alternatives, "|a");
  EXPECT_THAT(status(deep).message(), HasSubstr("groups within each other"));
  EXPECT_EQ(status("(((a*)*)*|b*)*").ToString(), "OK");
  EXPECT_EQ(status(alternatives).ToString(), "OK");
  EXPECT_THAT(status("((a{1000}){1000}){1000}"), StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  EXPECT_THAT(status("(a|b)*a(a|b){40}"), StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
  EXPECT_THAT(status(std::string(300'000, 'a')), StatusIs(absl::StatusCode::kResourceExhausted, Not(IsEmpty())));
}

std::string RandomPattern(int depth, std::mt19937* random) {
  const auto pick = [&](uint32_t count) { return (*random)() % count; };
  static const char* const kAtoms[] = {"a",   "b",   "1",   "\"",     "\\\\",    ".",   "[ab]",    "[^a]",
                                       "\\d", "\\w", "\\D", "[a-b1]", "[^\\w1]", "\\S", "[\\s\\S]"};
  std::string pattern;
  for (uint32_t parts = 1 + pick(3); parts > 0; --parts) {
    if (depth > 0 && pick(3) == 0) {
      absl::StrAppend(&pattern, pick(2) == 0 ? "(" : "(?:", RandomPattern(depth - 1, random), "|",
                      RandomPattern(depth - 1, random), ")");
    } else {
      pattern += kAtoms[pick(std::size(kAtoms))];
    }
    static const char* const kRepeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"};
    pattern += kRepeats[pick(std::size(kRepeats))];
  }
  return pattern;
}

class PcrePattern {
 public:
  PcrePattern(const std::string& pattern, uint32_t options) {
    int error = 0;
    size_t place = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | options, &error, &place, nullptr);
    EXPECT_NE(code_, nullptr) << pattern;
  }
  ~PcrePattern() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  PcrePattern(const PcrePattern&) = delete;

  bool Matches(const std::string& text) const {
    return code_ != nullptr &&
           pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data_, nullptr) >= 0;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* const data_ = pcre2_match_data_create(1, nullptr);
};

// As far as its two ways of reading one agree.
TEST(Regex, AgreesWithPcreOnRandomPatterns) {
  std::mt19937 random(1);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && CodePoints(texts[i]) < 3; ++i) {
    for (const char* letter : {"a", "b", "1", "\"", "\\", "\n", "é", "\u0663"}) texts.push_back(texts[i] + letter);
  }
  int matched = 0;
  const int patterns = testing::kSanitized ? 40 : 120;
  for (int i = 0; i < patterns; ++i) {
    const std::string pattern = RandomPattern(2, &random);
    if (testing::StatusOf(FromPattern(pattern)).code() == absl::StatusCode::kResourceExhausted) continue;
    const PcrePattern by_ascii(pattern, 0), by_unicode(pattern, PCRE2_UCP);
    const GrammarTexts grammar = GrammarTexts::Of(FromPattern(pattern));
    for (const std::string& text : texts) {
      const bool accepted = grammar.Accepts(text), is_ascii = static_cast<size_t>(CodePoints(text)) == text.size();
      const bool matches = by_ascii.Matches(text) && by_unicode.Matches(text);
      matched += accepted ? 1 : 0;
      EXPECT_TRUE(matches || !accepted) << pattern << " on " << text;
      EXPECT_TRUE(accepted || !matches || !is_ascii) << pattern << " on " << text;
    }
  }
  EXPECT_GT(matched, 4 * patterns);
}

}  // namespace
}  // namespace stagecoach
