#include "common/grammar/mask.h"

#include <cmath>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/text/grammar/compile.h"
#include "coordinator/text/utf8.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

using testing::ControlOf;
using testing::EndOf;
using testing::VocabularyWith;

bool IsAllowed(const std::vector<uint64_t>& allowed, TokenId token) {
  return (allowed[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

// Follows tokens that are allowed, and compares every mask with the tokens that can be appended. What is kept from
// before makes no difference, not even to the steps that are counted.
void CompareAlongTheWay(const GrammarProgram& program, const std::shared_ptr<const GrammarVocabulary>& vocabulary,
                        int steps, std::mt19937* random, GrammarMasks* masks) {
  GrammarMatcher matcher(program, vocabulary);
  for (int step = 0; step < steps; ++step) {
    std::vector<uint64_t> mask, mask_anew;
    const GrammarMasks::Found found = masks->Allowed(matcher, &mask);
    const GrammarMasks::Found anew = GrammarMasks(vocabulary).Allowed(matcher, &mask_anew);
    ASSERT_EQ(mask, mask_anew);
    ASSERT_EQ(found.steps, anew.steps);
    ASSERT_FALSE(found.cut_short);
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocabulary->size(); ++token) {
      const bool expected = GrammarMatcher(matcher).Append(token);
      ASSERT_EQ(IsAllowed(mask, token), expected) << "token " << token << " '" << vocabulary->BytesOf(token)
                                                  << "', step " << step << ", stacks " << matcher.stacks().size();
      if (expected) allowed.push_back(token);
    }
    ASSERT_THAT(allowed, Not(IsEmpty()));
    ASSERT_TRUE(matcher.Append(allowed[(*random)() % allowed.size()]));
    if (matcher.ended()) return;
  }
}

TEST(GrammarMasks, AllowJustTheTokensThatCanBeAppended) {
  std::mt19937 random(5);
  for (int v = 0; v < (testing::kSanitized ? 3 : 10); ++v) {
    const auto vocabulary = VocabularyWith(testing::RandomTexts(40 + random() % 60, 6, &random));
    GrammarMasks masks(vocabulary);
    for (int i = 0; i < 20; ++i) {
      const GrammarProgram program = testing::RandomGrammar(ControlOf(*vocabulary), &random).second;
      for (int again = 0; again < 2; ++again) CompareAlongTheWay(program, vocabulary, 10, &random, &masks);
      if (HasFatalFailure()) return;
    }
  }
}

// A value of JSON, as far as masks are concerned: strings of any characters, or so many, and arrays of values.
GrammarProgram Values(int most_characters = kUnbounded) {
  GrammarRules rules;
  const RuleId value = rules.Declare("value"), string = rules.Declare("string");
  const CodePointSet special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  ByteSet escaped;
  for (const char c : {'"', '\\', 'n', 't'}) escaped.set(static_cast<size_t>(c));
  const ExprId character = rules.Choice(
      {rules.CodePoints(special.Complement()), rules.Sequence({rules.Literal("\\"), rules.Class(escaped)})});
  const ExprId quote = rules.Literal("\"");
  rules.Define(string, rules.Sequence({quote, rules.Repeat(character, 0, most_characters), quote}));
  const ExprId more = rules.Repeat(rules.Sequence({rules.Literal(","), rules.Call(value)}), 0);
  const ExprId list = rules.Sequence({rules.Literal("["), rules.Call(value), more, rules.Literal("]")});
  rules.Define(value, rules.Choice({rules.Call(string), list}));
  rules.SetRoot(value);
  return CompileGrammar(rules).value();
}

// A word of letters and up to four more characters, called, so that it may end at any of them.
GrammarProgram Words() {
  GrammarRules rules;
  const RuleId word = rules.Declare("word"), root = rules.Declare("root");
  ByteSet letters;
  for (int c = 'a'; c <= 'z'; ++c) letters.set(static_cast<size_t>(c)).set(static_cast<size_t>(c - 'a' + 'A'));
  const CodePointSet none = {{'"', '"'}, {']', ']'}};
  const ExprId marks = rules.Repeat(rules.CodePoints(none.Complement()), 0, 4);
  rules.Define(word, rules.Sequence({rules.Class(letters), rules.Class(letters), rules.Repeat(rules.Class(letters), 0),
                                     rules.Literal(" "), marks}));
  const ExprId quoted = rules.Sequence({rules.Literal("\""), rules.Call(word), rules.Literal("\"")});
  const ExprId listed = rules.Sequence({rules.Literal("["), rules.Call(word), rules.Call(word), rules.Literal("]")});
  rules.Define(root, rules.Repeat(rules.Choice({quoted, listed}), 0));
  rules.SetRoot(root);
  return CompileGrammar(rules).value();
}

TEST(GrammarMasks, AreRightWhereBytesLeadOnAlike) {
  std::mt19937 random(6);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t left = random() % 6 + 1; left > 0; --left) {
      constexpr const char* kPieces[] = {"a", "Z", " ", "\u00e9", "\u4e2d", "\U0001F600", "\"",       "\\",   "n",
                                         "]", ",", "[", "\n",     "\x80",   "\xE4",       "\xB8\xAD", "\xC0", "\""};
      text += kPieces[random() % std::size(kPieces)];
    }
    texts.push_back(text);
  }
  const auto vocabulary = VocabularyWith(texts);
  GrammarMasks masks(vocabulary);
  for (int i = 0; i < (testing::kSanitized ? 5 : 20); ++i)
    CompareAlongTheWay(Values(), vocabulary, 30, &random, &masks);
  const GrammarProgram words = Words();
  for (int i = 0; i < (testing::kSanitized ? 3 : 12); ++i) CompareAlongTheWay(words, vocabulary, 25, &random, &masks);
  // Free text with a marker in it, and without.
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  const ExprId marked = rules.Sequence({rules.TextUntil("\"]"), rules.Literal("Z")});
  rules.Define(root, rules.Sequence({rules.Repeat(marked, 0), rules.TextWithout(std::vector<std::string>{"\"]"})}));
  rules.SetRoot(root);
  const GrammarProgram program = CompileGrammar(rules).value();
  for (int i = 0; i < 5; ++i) CompareAlongTheWay(program, vocabulary, 30, &random, &masks);
}

TEST(GrammarMasks, AreRightWhereCharactersBeginWithinThoseOfTokens) {
  GrammarRules rules;
  ByteSet any;
  any.set();
  const CodePointSet quote = {{'"', '"'}};
  const ExprId characters = rules.Repeat(rules.CodePoints(quote.Complement()), 0);
  rules.SetRoot(rules.Declare("root"));
  rules.Define(rules.root(), rules.Sequence({rules.Class(any), characters, rules.Literal("\"")}));
  const auto vocabulary = VocabularyWith({"\u00e9", "\u00e9z", "zz", "z\u00e9", "z\xC3"});
  GrammarMasks masks(vocabulary);
  std::mt19937 random(13);
  for (int i = 0; i < 5; ++i) CompareAlongTheWay(CompileGrammar(rules).value(), vocabulary, 10, &random, &masks);
}

TEST(GrammarMasks, AreRightWhereNoCallFitsAnyMore) {
  std::mt19937 random(7);
  const auto vocabulary = VocabularyWith({"[[", "[[[", "[\"", "]]", "[[[[\"", "\"]", "\"]]"});
  GrammarMasks masks(vocabulary);
  const GrammarProgram program = Values();
  GrammarMatcher matcher(program, vocabulary);
  for (int depth = 0; depth < kMaxGrammarDepth + 2; ++depth) {
    std::vector<uint64_t> mask, mask_anew;
    const GrammarMasks::Found found = masks.Allowed(matcher, &mask);
    EXPECT_EQ(GrammarMasks(vocabulary).Allowed(matcher, &mask_anew).steps, found.steps) << depth;
    for (TokenId token = 0; token < vocabulary->size(); ++token) {
      ASSERT_EQ(IsAllowed(mask, token), GrammarMatcher(matcher).Append(token)) << depth << " " << token;
    }
    if (!IsAllowed(mask, '[')) break;
    matcher.Append('[');
  }
  ASSERT_TRUE(matcher.Append('"'));
  EXPECT_THAT(matcher.stacks()[0], SizeIs(kMaxGrammarDepth + 1));
}

TEST(GrammarMasks, CountTheStepsOfWhatIsLookedForInVain) {
  std::vector<std::string> texts;
  for (char c = 'A'; c <= 'z'; ++c) texts.push_back({'[', c});
  const auto vocabulary = VocabularyWith(texts);
  GrammarMatcher matcher(GrammarProgram::Decode(testing::Lists(1)).value(), vocabulary);
  ASSERT_TRUE(matcher.Append('['));
  std::vector<uint64_t> mask;
  const int64_t steps = GrammarMasks(vocabulary).Allowed(matcher, &mask).steps;
  while (matcher.Append('[')) continue;
  // With any room first, which is not there.
  EXPECT_GT(GrammarMasks(vocabulary).Allowed(matcher, &mask).steps, steps);
  EXPECT_FALSE(IsAllowed(mask, '['));
}

TEST(GrammarMasks, AreRightWithManyReadings) {
  GrammarRules rules;
  const RuleId root = rules.Declare("root"), left = rules.Declare("left"), right = rules.Declare("right");
  rules.SetRoot(root);
  rules.Define(root, rules.Choice({rules.Call(left), rules.Call(right), rules.Literal("c")}));
  rules.Define(left,
               rules.Sequence({rules.Literal("a"), rules.Call(root), rules.Literal("a long end, lest it is inlined")}));
  rules.Define(right, rules.Sequence({rules.Literal("a"), rules.Call(root), rules.Literal("b"), rules.Call(left)}));
  const GrammarProgram program = CompileGrammar(rules).value();
  std::mt19937 random(8);
  const auto vocabulary = VocabularyWith({"aa", "aaaa", "aac", "ca", "cb", "a l", "ba", "bac", "aaaaaaaac"});
  GrammarMasks masks(vocabulary);
  for (int i = 0; i < 10; ++i) CompareAlongTheWay(program, vocabulary, 40, &random, &masks);
}

// Text in the middle of itself: each byte may be one of those before the middle, the middle, or one behind it.
TEST(GrammarMasks, AllowNothingElseWhereTheyAreCutShort) {
  GrammarRules rules;
  const RuleId left = rules.Declare("left"), right = rules.Declare("right");
  ByteSet letters;
  letters.set('a').set('b');
  const ExprId letter = rules.Class(letters);
  for (const auto& [rule, other] : {std::pair(left, right), {right, left}}) {
    const ExprId in_itself = rules.Sequence({letter, rules.Call(rule), letter, rules.Repeat(letter, 0, rule)});
    const ExprId in_other = rules.Sequence({letter, rules.Call(other), letter, letter});
    rules.Define(rule, rules.Choice({letter, in_itself, in_other}));
  }
  rules.SetRoot(left);
  std::mt19937 random(12);
  std::vector<std::string> texts(2000);
  for (std::string& text : texts) {
    for (int i = 0; i < 9; ++i) text += static_cast<char>('a' + random() % 2);
  }
  const auto vocabulary = VocabularyWith(texts);
  GrammarMasks masks(vocabulary);
  GrammarMatcher matcher(CompileGrammar(rules).value(), vocabulary);
  while (matcher.stacks().size() < kMaxGrammarStacks) ASSERT_TRUE(matcher.Append('a'));
  std::vector<uint64_t> mask;
  EXPECT_TRUE(masks.Allowed(matcher, &mask).cut_short) << masks.Allowed(matcher, &mask).steps;
  EXPECT_TRUE(IsAllowed(mask, 'a') && IsAllowed(mask, 'b'));
  for (TokenId token = 0; token < vocabulary->size(); token += token < 256 ? 1 : 97) {
    ASSERT_TRUE(!IsAllowed(mask, token) || GrammarMatcher(matcher).Append(token)) << token;
  }
}

TEST(GrammarMasks, KeepNoMoreThanTheirLimit) {
  // A different state behind every byte.
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  ByteSet any;
  any.set();
  rules.Define(root, rules.Repeat(rules.Class(any), 0, 3000));
  rules.SetRoot(root);
  const auto vocabulary = VocabularyWith({"ab"});
  GrammarMasks masks(vocabulary);
  GrammarMatcher matcher(CompileGrammar(rules).value(), vocabulary);
  std::vector<uint64_t> mask;
  size_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    masks.Allowed(matcher, &mask);
    most = std::max(most, masks.cached_bytes());
    ASSERT_TRUE(IsAllowed(mask, 'x'));
    ASSERT_EQ(IsAllowed(mask, 256), i < 2999);
    matcher.Append('x');
  }
  masks.Allowed(matcher, &mask);
  EXPECT_FALSE(IsAllowed(mask, 'x'));
  EXPECT_TRUE(IsAllowed(mask, EndOf(*vocabulary)));
  EXPECT_LE(most, GrammarMasks::kMaxCachedMasks * 5 * sizeof(uint64_t));
  EXPECT_GT(most, GrammarMasks::kMaxCachedMasks * 4 * sizeof(uint64_t));
}

TEST(GrammarMasks, SaySoWhereTheVocabularyCannotGoOn) {
  using Kind = GrammarVocabulary::Kind;
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      std::vector<std::string>{"a", "", "</s>"}, std::vector<Kind>{Kind::kText, Kind::kText, Kind::kEnd});
  EXPECT_THAT(
      vocabulary->CheckSpellsEveryByte(),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("no token for byte 0, and for 255 of the 256"))));
  EXPECT_EQ(VocabularyWith({})->CheckSpellsEveryByte().ToString(), "OK");
  GrammarRules rules;
  const RuleId root = rules.Declare("root");
  rules.Define(root, rules.Literal("ab"));
  rules.SetRoot(root);
  GrammarMatcher matcher(CompileGrammar(rules).value(), vocabulary);
  GrammarMasks masks(vocabulary);
  std::vector<uint64_t> mask;
  EXPECT_TRUE(masks.Allowed(matcher, &mask).any);
  EXPECT_THAT(mask, ElementsAre(1));
  ASSERT_TRUE(matcher.Append(0));
  EXPECT_FALSE(masks.Allowed(matcher, &mask).any);
  EXPECT_THAT(mask, ElementsAre(0));
}

TEST(GrammarMasks, OfGrammarsThatExhaustTheirStepsAllowWhatWasFoundUntilThen) {
  const auto vocabulary = VocabularyWith({"ab", "abcdefgh"});
  const GrammarMatcher matcher(GrammarProgram::Make(testing::ManyCalls(1000)).value(), vocabulary);
  GrammarMasks masks(vocabulary);
  std::vector<uint64_t> mask;
  const GrammarMasks::Found found = masks.Allowed(matcher, &mask);
  EXPECT_TRUE(found.any);
  EXPECT_TRUE(found.cut_short);
  EXPECT_LT(found.steps, masks.max_steps() + 3000) << "one look more at most";
  int allowed = 0;
  for (TokenId token = 0; token < vocabulary->size(); ++token) {
    if (!IsAllowed(mask, token)) continue;
    ++allowed;
    EXPECT_TRUE(GrammarMatcher(matcher).Append(token)) << token;
  }
  EXPECT_GT(allowed, 0);
  EXPECT_LT(allowed, 256);
  const GrammarMatcher in_vain(GrammarProgram::Make(testing::CallsInVain()).value(), vocabulary);
  EXPECT_FALSE(masks.Allowed(in_vain, &mask).any);
  EXPECT_TRUE(GrammarMatcher(in_vain).Append(255)) << "a token that looking at it alone would find";
}

TEST(GrammarMasks, AreTheSameForThreadsThatAskAtOnce) {
  const auto vocabulary = VocabularyWith({"[[", "[[[", "[\"", "]]", "[[[[\"", "\"]", "\"]]", "ab", "a\""});
  std::vector<GrammarMatcher> places = {GrammarMatcher(Values(20), vocabulary)};
  for (const char c : std::string("[[\"abcdefgh\"],[\"a\"")) {
    ASSERT_TRUE(GrammarMatcher(places.back()).Append(c));
    places.push_back(places.back());
    places.back().Append(c);
  }
  std::vector<std::vector<uint64_t>> expected(places.size());
  for (size_t i = 0; i < places.size(); ++i) GrammarMasks(vocabulary).Allowed(places[i], &expected[i]);
  GrammarMasks masks(vocabulary);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<uint64_t> mask;
      for (size_t i = 0; i < 3 * places.size(); ++i) {
        const size_t place = (i + thread / 2) % places.size();
        masks.Allowed(places[place], &mask);
        EXPECT_EQ(mask, expected[place]) << place;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GrammarMasks, SayWhetherAllIsKept) {
  const auto vocabulary = VocabularyWith({"[[", "[\""});
  GrammarMasks masks(vocabulary);
  GrammarMatcher matcher(Values(), vocabulary);
  std::vector<uint64_t> mask;
  for (const TokenId token : {'"', 'a'}) {
    EXPECT_FALSE(masks.Allowed(matcher, &mask).kept);
    EXPECT_TRUE(masks.Allowed(matcher, &mask).kept);
    ASSERT_TRUE(matcher.Append(token));
  }
}

TEST(GrammarMasks, TakeTheLogitsOfAllOtherTokens) {
  std::mt19937 random(9);
  for (const size_t vocab : {1u, 63u, 64u, 65u, 1000u}) {
    std::vector<uint64_t> allowed((vocab + 63) / 64);
    for (uint64_t& word : allowed)
      word = random() % 3 == 0 ? 0 : random() % 2 == 0 ? ~uint64_t{0} : uint64_t{random()} << 20;
    std::vector<float> logits(vocab, 1.5f);
    ForbidOtherTokens(allowed, absl::MakeSpan(logits));
    for (size_t i = 0; i < vocab; ++i) {
      ASSERT_EQ(logits[i], IsAllowed(allowed, static_cast<TokenId>(i)) ? 1.5f : -INFINITY) << i << " of " << vocab;
    }
  }
}

// What a tree says of the bytes below its nodes, by looking at all of them.
TEST(TokenTree, HoldsEachTokenAtTheEndOfItsBytes) {
  std::mt19937 random(10);
  std::vector<std::string> texts = testing::RandomTexts(500, 5, &random);
  texts[7].clear();
  const TokenTree tree(texts);
  std::vector<std::string> found(texts.size());
  std::string path;
  for (uint32_t node = 1; node + 1 < tree.nodes().size(); ++node) {
    const TokenTree::Node& at = tree.nodes()[node];
    path.resize(at.depth - 1u);
    path += static_cast<char>(at.byte);
    for (uint32_t i = at.first_token; i < tree.nodes()[node + 1].first_token; ++i) {
      found[static_cast<size_t>(tree.tokens()[i])] = path;
    }
    uint64_t kinds = 0;
    int bytes = 0, characters = 0;
    std::string end;  // of the path, from this node on
    for (uint32_t below = node; below < at.end; ++below) {
      end.resize(tree.nodes()[below].depth - at.depth);
      end += static_cast<char>(tree.nodes()[below].byte);
      bytes = std::max(bytes, static_cast<int>(end.size()));
      characters = std::max(characters, static_cast<int>(CodePoints(end)));
      const uint8_t byte = tree.nodes()[below].byte;
      kinds |= uint64_t{1} << (byte < 128 ? TokenTree::KindOf(byte) : TokenTree::kWholeCharacters);
    }
    EXPECT_EQ(at.bytes_below, bytes);
    EXPECT_EQ(at.characters_below, characters);
    EXPECT_EQ(tree.KindsBelow(node) & ~(uint64_t{1} << TokenTree::kOtherBytes), kinds);
  }
  EXPECT_EQ(found, texts);
}

TEST(TokenTree, GivesKindsToBytesAsTheyAreUsed) {
  const auto kind = [](char c) { return TokenTree::KindOf(static_cast<uint8_t>(c)); };
  EXPECT_EQ(kind('a'), kind('z'));
  EXPECT_EQ(kind('0'), kind('9'));
  for (const char c : std::string(" !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\t\n\r")) {
    for (int other = 0; other < 128; ++other) {
      EXPECT_EQ(kind(c) == kind(static_cast<char>(other)), other == c) << c << " " << other;
    }
    EXPECT_LT(kind(c), TokenTree::kWholeCharacters);
  }
}

}  // namespace
}  // namespace stagecoach
