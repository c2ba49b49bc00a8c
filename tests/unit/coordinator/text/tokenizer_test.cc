#include "coordinator/text/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/gguf/gguf_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::OpenOrDie;
using testing::ToyVocabulary;

constexpr TokenId kBos = testing::kToyBos;

std::string RandomBytes(std::mt19937* random, size_t max_bytes) {
  std::string text((*random)() % (max_bytes + 1), 'a');
  const bool ascii = (*random)() % 2 == 0;
  for (char& c : text) c = static_cast<char>((*random)() % (ascii ? 128 : 256));
  return text;
}

std::vector<TokenId> Plain(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.Encode(text, /*add_special=*/false, /*parse_special=*/false);
}

// Joins the best pair of all again and again, as the definition says: that whose `badness_of(left, right)` is the
// least.
template <typename BadnessOf>
std::vector<std::string> JoinByDefinition(std::vector<std::string> parts, BadnessOf badness_of) {
  for (;;) {
    double least = std::numeric_limits<double>::infinity();
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const double badness = badness_of(parts[i], parts[i + 1]);
      if (badness < least) least = badness, best = i;
    }
    if (std::isinf(least)) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Of what is in the map; infinite for all else.
double BadnessIn(const std::map<std::string, double>& badness, const std::string& key) {
  const auto found = badness.find(key);
  return found == badness.end() ? std::numeric_limits<double>::infinity() : found->second;
}

TEST(BpeTokenizer, AgreesWithTheDefinitionOnRandomWords) {
  const auto file = GgufFile::Open(testing::DemoModelPath()).value();
  const auto tokenizer = Tokenizer::Create(file->metadata()).value();
  const auto merges = file->metadata().GetStrings("tokenizer.ggml.merges");
  const auto texts = file->metadata().GetStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(merges.ok() && texts.ok());
  std::map<std::string, double> ranks;
  for (size_t i = 0; i < merges->size(); ++i) ranks.emplace((*merges)[i], i);
  const auto rank = [&](const std::string& a, const std::string& b) { return BadnessIn(ranks, a + " " + b); };
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> letters(random() % 30 + 1);
    std::string word;
    for (std::string& letter : letters) word += letter = "aeehhilnorsttt"[random() % 14];
    std::vector<std::string> found;
    for (const TokenId token : Plain(*tokenizer, word)) found.push_back((*texts)[token]);
    ASSERT_EQ(found, JoinByDefinition(letters, rank)) << word;
  }
}

TEST(BpeTokenizer, TakesAWholePieceBeforeAnyMergeWhereItsEncoderDid) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId word = toy.Add("xyz", 1);
  for (const char* pre : {"llama-bpe", "smaug-bpe", "glm4", "chatglm-bpe", "gpt-4o", "llama4", "tekken", "kimi-k2"}) {
    EXPECT_THAT(Plain(*OpenOrDie(toy.File("gpt2", pre)), "xyz"), ElementsAre(word)) << pre;
  }
  for (const char* pre : {"qwen2", "gpt-2", "dbrx", "refact", "minimax-m2", "deepseek-v3", "deepseek-llm"}) {
    EXPECT_THAT(Plain(*OpenOrDie(toy.File("gpt2", pre)), "xyz"), ElementsAre('x', 'y', 'z')) << pre;
  }
}

TEST(BpeTokenizer, EmitsBytesWhereAMergeLeadsToNoToken) {
  ToyVocabulary toy = testing::ToyBytePairs();
  toy.merges.push_back("x y");
  toy.types[257] = 5;  // "ll" is not in use
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  EXPECT_THAT(Plain(*tokenizer, "xy"), ElementsAre('x', 'y'));
  EXPECT_THAT(Plain(*tokenizer, "ll"), ElementsAre('l', 'l'));
  EXPECT_THAT(Plain(*tokenizer, "hell"), ElementsAre(258));
}

TEST(BpeTokenizer, KeepsTheFirstIdOfARepeatedText) {
  ToyVocabulary toy = testing::ToyBytePairs();
  toy.Add("he", 1);
  const TokenId control = toy.Add("<|x|>", 3);
  toy.Add("<|x|>", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "qwen2"))->Encode("he<|x|>", false, true), ElementsAre(256, control));
}

// Of every length up to one that is enough, with special tokens, BOS and EOS wherever a vocabulary has them.
TEST(Tokenizer, GivesTheSameTokensUpToALimitAndNoneOfALongerText) {
  ToyVocabulary no_bytes = testing::ToySentencePiece();
  for (int32_t& type : no_bytes.types) type = type == 6 ? 5 : type;
  ToyVocabulary pairs = testing::ToyBytePairs();
  pairs.Add("<|c|>", 3);
  pairs.Add("<a user-defined one>", 4);
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(testing::OpenFileOrDie(testing::DemoModelPath()));
  tokenizers.push_back(OpenOrDie(pairs.File("gpt2", "gpt-2")));
  tokenizers.push_back(OpenOrDie(pairs.File("gpt2", "llama-bpe")));
  tokenizers.push_back(OpenOrDie(testing::ToySentencePiece().File("llama", "default")));
  tokenizers.push_back(OpenOrDie(no_bytes.File("llama", "default")));
  std::mt19937 random(17);
  for (const auto& tokenizer : tokenizers) {
    for (int i = 0; i < (testing::kSanitized ? 60 : 200); ++i) {
      std::string text = RandomBytes(&random, 40);
      for (const char* more : {"hello", "<|c|>", " a b ab", "<a user-defined one>", "<s>"}) {
        if (random() % 2 == 0) text.insert(random() % (text.size() + 1), more);
      }
      bool special = random() % 2 == 0;
      if (i < 2) {  // few tokens are left of this one
        special = i == 0;
        text = "a";
        for (int n = 0; n < 100; ++n) text.insert(0, "<s>");
      }
      const std::vector<TokenId> all = tokenizer->Encode(text, special, special);
      const MarkedText marked(text, TextOrigin::kTemplate);
      const std::vector<TokenId> all_marked = tokenizer->EncodeMarked(marked, special);
      for (size_t most = 0; most < std::max(all.size(), all_marked.size()) + 3; ++most) {
        const auto some = tokenizer->EncodeUpTo(most, text, special, special);
        ASSERT_EQ(some.has_value(), all.size() <= most) << text;
        if (some.has_value()) {
          ASSERT_EQ(*some, all);
        }
        const auto some_marked = tokenizer->EncodeMarkedUpTo(most, marked, special);
        ASSERT_EQ(some_marked.has_value(), all_marked.size() <= most) << text;
        if (some_marked.has_value()) {
          ASSERT_EQ(*some_marked, all_marked);
        }
      }
    }
  }
}

TEST(Tokenizer, StopsSoonWhereALongTextHasMoreTokensThanAnybodyWants) {
  const std::string words = [] {
    std::string text;
    while (text.size() < size_t{16} << 20) text += "hello ab <x> \xC3\xA9 1234 ";
    return text;
  }();
  const std::string one_word(size_t{16} << 20, 'a');
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(testing::OpenFileOrDie(testing::DemoModelPath()));
  tokenizers.push_back(OpenOrDie(testing::ToySentencePiece().File("llama", "default")));
  for (const auto& tokenizer : tokenizers) {
    for (const std::string& text : {words, one_word}) {
      const absl::Time begin = absl::Now();
      EXPECT_FALSE(tokenizer->EncodeUpTo(4096, text, true, true).has_value());
      // All of it takes many times as long, on any machine.
      EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
    }
  }
}

TEST(Tokenizer, GivesBackAnyBytes) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(testing::OpenFileOrDie(testing::DemoModelPath()));
  for (const char* pre : {"gpt-2", "llama-bpe", "gpt-4o", "kimi-k2", "deepseek-v3", "deepseek-llm", "deepseek-coder"}) {
    tokenizers.push_back(OpenOrDie(testing::ToyBytePairs().File("gpt2", pre)));
  }
  tokenizers.push_back(OpenOrDie(testing::ToySentencePiece().File("llama", "default")));
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = RandomBytes(&random, 60);
    for (const auto& tokenizer : tokenizers) {
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, true, false), false), text) << ::testing::PrintToString(text);
    }
  }
}

TEST(Tokenizer, HasNoBytesForATokenOutsideTheVocabulary) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->TokenBytes(-1, true), "");
  EXPECT_EQ(tokenizer->TokenBytes(4096, true), "");
  EXPECT_EQ(tokenizer->TokenBytes(4095, true), "<|im_end|>");
  EXPECT_EQ(tokenizer->TokenBytes(4095, false), "");
}

TEST(SpecialTokens, CountAsTheirTypeSays) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId control = toy.Add("<|c|>", 3), user = toy.Add("<u>", 4), unknown = toy.Add("<?>", 2);
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  const std::string text = "he<|c|><u><?>";
  EXPECT_THAT(tokenizer->Encode(text, false, true), ElementsAre(256, control, user, unknown));
  EXPECT_THAT(tokenizer->Encode(text, false, false), ElementsAre(256, '<', '|', 'c', '|', '>', user, '<', '?', '>'));
  EXPECT_EQ(tokenizer->Decode({256, control, user, unknown}, false), "he<u>");
  EXPECT_EQ(tokenizer->Decode({256, control, user, unknown}, true), text);
}

TEST(SpecialTokens, GoLongestFirst) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId ab = toy.Add("<ab", 4), bcd = toy.Add("bcd>", 4), a = toy.Add("<a", 4), two = toy.Add("<a<a", 4);
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  EXPECT_THAT(Plain(*tokenizer, "<abc"), ElementsAre(ab, 'c'));
  EXPECT_THAT(Plain(*tokenizer, "<abcd>"), ElementsAre(a, bcd));  // not the one that starts first
  EXPECT_THAT(Plain(*tokenizer, "<a<a<ab"), ElementsAre(two, ab));
  EXPECT_THAT(Plain(*tokenizer, "<a<a<a"), ElementsAre(two, a));
}

TEST(SpecialTokens, AreNeverMadeOfPlainText) {
  ToyVocabulary toy = testing::ToyBytePairs();
  toy.types[259] = 3;  // "hello", which merges lead to
  EXPECT_THAT(Plain(*OpenOrDie(toy.File("gpt2", "qwen2")), "hello"), ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_THAT(Plain(*OpenOrDie(toy.File("gpt2", "llama-bpe")), "hello"), ElementsAre('h', 'e', 'l', 'l', 'o'));
  ToyVocabulary pieces = testing::ToySentencePiece();
  pieces.Add("\u2581ab", 3);
  EXPECT_THAT(Plain(*OpenOrDie(pieces.File("llama", "")), "ab"), ElementsAre(259, 262));
  EXPECT_THAT(Plain(*OpenOrDie(testing::ToySentencePiece().File("llama", "")), "<s>"),
              ElementsAre(259, 3 + '<', 3 + 's', 3 + '>'));
}

TEST(SpecialTokens, FrameATextAsTheVocabularyAsks) {
  GgufWriter file = testing::ToyBytePairsWithBos("qwen2");
  file.Set("tokenizer.ggml.eos_token_id", uint32_t{256});
  EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre('a'));  // not the habit of qwen2
  file.Set("tokenizer.ggml.add_bos_token", true);
  file.Set("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre(kBos, 'a', 256));
  EXPECT_THAT(OpenOrDie(file)->Encode("", true, false), ElementsAre(kBos, 256));
  EXPECT_THAT(OpenOrDie(file)->Encode("a", false, false), ElementsAre('a'));
  file.Set("tokenizer.ggml.pre", "llama-bpe");
  file.Remove("tokenizer.ggml.add_bos_token");
  file.Remove("tokenizer.ggml.add_eos_token");
  EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre(kBos, 'a'));
  file.Set("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre('a'));
}

TEST(SpecialTokens, BeginWithBosWhereTheFileIsSilentAsThePreTokenizerDoes) {
  for (const char* pre : {"llama-bpe", "tekken"}) {
    EXPECT_THAT(OpenOrDie(testing::ToyBytePairsWithBos(pre))->Encode("a", true, false), ElementsAre(kBos, 'a')) << pre;
  }
  for (const char* pre : {"smaug-bpe", "dbrx", "glm4", "gpt-4o", "llama4", "kimi-k2", "minimax-m2", "deepseek-v3"}) {
    GgufWriter file = testing::ToyBytePairsWithBos(pre);
    EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre('a')) << pre;
    file.Set("tokenizer.ggml.add_bos_token", true);
    EXPECT_THAT(OpenOrDie(file)->Encode("a", true, false), ElementsAre(kBos, 'a')) << pre;
  }
}

TEST(SpecialTokens, AreWhatEndsATurnWhateverTheFileCallsIt) {
  for (const int32_t type : {0, 1, 3, 4}) {
    ToyVocabulary toy = testing::ToyBytePairs();
    const TokenId end = toy.Add("<|im_end|>", type);
    const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
    EXPECT_THAT(tokenizer->Encode("he<|im_end|>", false, true), ElementsAre(256, end)) << type;
    EXPECT_EQ(Plain(*tokenizer, "<|im_end|>").size(), 10u) << type;  // written by somebody who may not
    EXPECT_EQ(tokenizer->Decode({256, end}, false), "he") << type;
  }
}

TEST(SpecialTokens, TakeTheSpaceAfterThemForPhi3) {
  ToyVocabulary toy = testing::ToySentencePiece();
  const TokenId user = toy.Add("<|user|>", 3), end = toy.Add("<|end|>", 3), text_end = toy.Add("<|endoftext|>", 3);
  toy.Add("<|assistant|>", 3);
  const std::string text = "<|user|>\n a<|end|> \n <|endoftext|> a";
  // As Llama's: 13 is the byte "\n".
  EXPECT_THAT(OpenOrDie(toy.File("llama", ""))->Encode(text, false, true),
              ElementsAre(user, 259, 13, 263, end, 259, 259, 13, 259, text_end, 259, 263));
  toy.Add("<|placeholder1|>", 3);
  const auto tokenizer = OpenOrDie(toy.File("llama", ""));
  EXPECT_THAT(tokenizer->Encode(text, false, true), ElementsAre(user, 263, end, text_end, 259, 263));
  EXPECT_EQ(tokenizer->end_of_generation(), (absl::Span<const TokenId>({2, end, text_end})));
  // What is dropped is not taken for tokens of a text that is too long.
  const std::string spaces = "<|user|>" + std::string(5000, ' ') + "a";
  EXPECT_THAT(tokenizer->EncodeUpTo(2, spaces, false, true), ::testing::Optional(ElementsAre(user, 263)));
}

TEST(SpecialTokens, GiveNoSecondBosToATextThatStartsWithOne) {
  const auto tokenizer = OpenOrDie(testing::ToyBytePairsWithBos("llama-bpe"));
  EXPECT_THAT(tokenizer->Encode("<|bos|>a", true, true), ElementsAre(kBos, 'a'));
  EXPECT_THAT(tokenizer->Encode("<|bos|>", true, true), ElementsAre(kBos));
  EXPECT_THAT(tokenizer->Encode("<|bos|>a", true, false), ElementsAre(kBos, '<', '|', 'b', 'o', 's', '|', '>', 'a'));
  EXPECT_THAT(tokenizer->Encode("a<|bos|>", true, true), ElementsAre(kBos, 'a', kBos));
}

TEST(SpmTokenizer, JoinsPairsByScoreWithASpaceInFront) {
  const auto tokenizer = OpenOrDie(testing::ToySentencePiece().File("llama", ""));
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_THAT(Plain(*tokenizer, "ab"), ElementsAre(259, 262));  // "ab" has a better score than "_a"
  EXPECT_THAT(Plain(*tokenizer, "a a"), ElementsAre(263, 263));
  EXPECT_THAT(Plain(*tokenizer, ""), ElementsAre());
  GgufWriter file = testing::ToySentencePiece().File("llama", "");
  file.Set("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(Plain(*OpenOrDie(file), "ab"), ElementsAre(262));
  EXPECT_EQ(OpenOrDie(file)->Decode({263}, false), " a");
}

void ExpectJoinsByScore(const ToyVocabulary& toy) {
  std::map<std::string, double> minus_scores;
  for (size_t i = 0; i < toy.texts.size(); ++i) minus_scores.emplace(toy.texts[i], -toy.scores[i]);
  const auto minus_score = [&](const std::string& a, const std::string& b) { return BadnessIn(minus_scores, a + b); };
  const auto tokenizer = OpenOrDie(toy.File("llama", ""));
  std::mt19937 random(13);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 20 + 1, ' ');
    std::vector<std::string> characters = {"\xE2\x96\x81"};
    for (char& c : text) {
      c = "ab "[random() % 3];
      characters.push_back(c == ' ' ? "\xE2\x96\x81" : std::string(1, c));
    }
    std::vector<std::string> found;
    for (const TokenId token : Plain(*tokenizer, text)) found.push_back(toy.texts[token]);
    ASSERT_EQ(found, JoinByDefinition(characters, minus_score)) << "'" << text << "'";
  }
}

TEST(SpmTokenizer, AgreesWithTheDefinitionWhetherPiecesCrossWordsOrNot) {
  ToyVocabulary toy = testing::ToySentencePiece();
  const std::string mark = "\xE2\x96\x81";
  for (const std::string& text :
       {std::string("aa"), std::string("bb"), std::string("aab"), mark + mark, mark + mark + "a"}) {
    toy.Add(text, 1, -3);
  }
  ExpectJoinsByScore(toy);
  toy.Add("b" + mark, 1, -2);
  toy.Add("b" + mark + "ab", 1, -9);
  ExpectJoinsByScore(toy);
}

TEST(SpmTokenizer, FallsBackToBytesAndThenToUnknown) {
  EXPECT_THAT(Plain(*OpenOrDie(testing::ToySentencePiece().File("llama", "")), "\xC3\xA9"),
              ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  ToyVocabulary toy = testing::ToySentencePiece();
  for (int byte = 0; byte < 256; ++byte) toy.types[3 + byte] = 5;
  EXPECT_THAT(Plain(*OpenOrDie(toy.File("llama", "")), "a\u00e9b"), ElementsAre(263, 0, 261));
}

// Gemma's runs of spaces and line breaks.
TEST(SpmTokenizer, GivesBackUserDefinedSpacesHoweverTheFileWritesThem) {
  for (const std::string& spaces : {std::string("  "), std::string("\xE2\x96\x81\xE2\x96\x81")}) {
    ToyVocabulary toy = testing::ToySentencePiece();
    const TokenId two = toy.Add(spaces, 4), lines = toy.Add("\n\n", 4);
    GgufWriter file = toy.File("llama", "default");
    file.Set("tokenizer.ggml.add_space_prefix", false);
    const auto tokenizer = OpenOrDie(file);
    const std::vector<TokenId> tokens = Plain(*tokenizer, "a  b\n\n  ");
    EXPECT_THAT(tokens, ElementsAre(260, two, 261, lines, two));
    EXPECT_EQ(tokenizer->Decode(tokens, false), "a  b\n\n  ");
  }
}

TEST(SpmTokenizer, PutsASpaceAfterEverySpecialToken) {
  GgufWriter file = testing::ToySentencePiece().File("llama", "");
  file.Set("tokenizer.ggml.bos_token_id", uint32_t{1});
  const auto tokenizer = OpenOrDie(file);
  EXPECT_THAT(tokenizer->Encode("a</s>a", true, true), ElementsAre(1, 263, 2, 263));
  EXPECT_EQ(tokenizer->Decode({1, 263, 2, 263}, false), "a a");
  EXPECT_EQ(tokenizer->Decode({1, 263, 2, 263}, true), "<s>a</s> a");
}

TEST(EndOfGeneration, HoldsEveryTokenThatEndsSomething) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId im_end = toy.Add("<|im_end|>", 3), normal = toy.Add("<|eot_id|>", 1), custom = toy.Add("<done>", 3);
  GgufWriter file = toy.File("gpt2", "qwen2");
  file.Set("tokenizer.ggml.eom_token_id", static_cast<uint32_t>(custom));
  EXPECT_THAT(OpenOrDie(file)->end_of_generation(), ElementsAre(im_end, normal, custom));
  EXPECT_THAT(testing::OpenFileOrDie(testing::DemoModelPath())->end_of_generation(), ElementsAre(4093, 4095));
}

// Whose files name one of them, as the end, and the other as a beginning that is never added.
TEST(EndOfGeneration, IsEitherOfTwoTokensForQwen35) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId text_end = toy.Add("<|endoftext|>", 3), im_start = toy.Add("<|im_start|>", 3);
  const TokenId im_end = toy.Add("<|im_end|>", 3), pad = toy.Add("<|vision_pad|>", 3);
  toy.Add("<think>", 4);
  GgufWriter file = toy.File("gpt2", "qwen35");
  file.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(im_end));
  file.Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(text_end));
  file.Set("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(pad));
  file.Set("tokenizer.ggml.add_bos_token", false);
  const auto tokenizer = OpenOrDie(file);
  EXPECT_THAT(tokenizer->end_of_generation(), ElementsAre(text_end, im_end));
  EXPECT_THAT(tokenizer->Encode("<|im_start|>hello", true, true), ElementsAre(im_start, 259));
}

TEST(EndOfGeneration, LeavesOutTheEndOfOneMessageForGptOss) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId end = toy.Add("<|end|>", 3), returned = toy.Add("<|return|>", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "gpt-4o"))->end_of_generation(), ElementsAre(end, returned));
  const TokenId call = toy.Add("<|call|>", 3);
  GgufWriter file = toy.File("gpt2", "gpt-4o");
  file.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
  EXPECT_THAT(OpenOrDie(file)->end_of_generation(), ElementsAre(returned, call));
}

TEST(EndOfGeneration, LeavesOutTheEndOfOneMessageForSolarOpen) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId end = toy.Add("<|end|>", 3), flush = toy.Add("<|flush|>", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "solar-open"))->end_of_generation(), ElementsAre(end, flush));
  const TokenId calls = toy.Add("<|calls|>", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "solar-open"))->end_of_generation(), ElementsAre(flush, calls));
}

TEST(EndOfGeneration, HoldsWhatLetsOthersSpeakForGlmOnly) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId text_end = toy.Add("<|endoftext|>", 3), user = toy.Add("<|user|>", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "dbrx"))->end_of_generation(), ElementsAre(text_end));
  const TokenId observation = toy.Add("<|observation|>", 3);
  toy.Add("[gMASK]", 3);
  EXPECT_THAT(OpenOrDie(toy.File("gpt2", "glm4"))->end_of_generation(), ElementsAre(text_end, user, observation));
}

TEST(EndOfGeneration, HoldsNoTokenThatTextBecomes) {
  ToyVocabulary pieces = testing::ToySentencePiece();  // its </s>, 2, is a control token
  const TokenId end = pieces.Add("<end_of_turn>", 4);
  pieces.Add("<eos>", 4);
  pieces.Add("</s>", 4);  // HTML's
  pieces.Add("</s>", 1);
  EXPECT_THAT(OpenOrDie(pieces.File("llama", "default"))->end_of_generation(), ElementsAre(2, end));
  ToyVocabulary pairs = testing::ToyBytePairs();
  const TokenId normal = pairs.Add("</s>", 1);
  pairs.Add("[EOS]", 4);
  EXPECT_THAT(OpenOrDie(pairs.File("gpt2", "qwen2"))->end_of_generation(), ElementsAre(normal));
}

TEST(EndOfGeneration, KnowsTheEndsOfEveryFamilyByTheirText) {
  for (const char* text : {"<|im_end|>", "[EOS]", "<｜end▁of▁sentence｜>", "[e~[", "<end_of_turn>", "<eos>", "<|end|>",
                           "<|eot|>", "<|EOT|>", "<|eom|>", "<|end_of_text|>", "</s>"}) {
    ToyVocabulary toy = testing::ToyBytePairs();
    const TokenId end = toy.Add(text, 3);
    EXPECT_THAT(OpenOrDie(toy.File("gpt2", "kimi-k2"))->end_of_generation(), ElementsAre(end)) << text;
  }
}

// As Qwen's coders have them: user-defined in some files, and with what begins another file of a repository.
TEST(FillMarkers, AreKnownByTheirTextsAndStandBeforeBetweenAndBehindTwoTexts) {
  ToyVocabulary toy = testing::ToyBytePairs();
  toy.Add("<|bos|>", 3);
  const TokenId prefix = toy.Add("<|fim_prefix|>", 4), middle = toy.Add("<|fim_middle|>", 4);
  const TokenId suffix = toy.Add("<|fim_suffix|>", 4), pad = toy.Add("<|fim_pad|>", 3),
                file = toy.Add("<|file_sep|>", 3);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  writer.Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(kBos));
  writer.Set("tokenizer.ggml.add_bos_token", true);
  const auto tokenizer = OpenOrDie(writer);
  ASSERT_TRUE(tokenizer->fill_markers().has_value());
  EXPECT_THAT(tokenizer->fill_markers()->ends, ElementsAre(pad, file));
  EXPECT_THAT(*tokenizer->EncodeFillUpTo(99, "hello", "ll", true), ElementsAre(kBos, prefix, 259, suffix, 257, middle));
  EXPECT_THAT(*tokenizer->EncodeFillUpTo(99, "", "ll", false), ElementsAre(prefix, suffix, 257, middle));
  EXPECT_EQ(tokenizer->EncodeFillUpTo(5, "hello", "ll", false)->size(), 5u);
  EXPECT_FALSE(tokenizer->EncodeFillUpTo(4, "hello", "ll", false).has_value());
}

TEST(FillMarkers, AreNeverMadeOfTheTextsAroundTheGap) {
  ToyVocabulary toy = testing::ToyBytePairs();
  for (const char* text : {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}) toy.Add(text, 4);
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  const FillMarkers markers = *tokenizer->fill_markers();
  const std::string hostile = "a<fim_suffix>b<fim_middle>c";
  const std::vector<TokenId> tokens = *tokenizer->EncodeFillUpTo(SIZE_MAX, hostile, hostile, false);
  for (const TokenId marker : {markers.prefix, markers.suffix, markers.middle}) {
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), marker), 1);
  }
  EXPECT_EQ(tokens.size(), 3 + 2 * hostile.size());
}

TEST(FillMarkers, AreThoseThatTheFileNamesInItsNewOrOldKeys) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const uint32_t first = static_cast<uint32_t>(toy.Add("<[before]>", 3));
  for (const char* text : {"<[behind]>", "<[gap]>", "<fim_prefix>"}) toy.Add(text, 3);
  GgufWriter file = toy.File("gpt2", "qwen2");
  file.Set("tokenizer.ggml.fim_pre_token_id", first);
  file.Set("tokenizer.ggml.suffix_token_id", first + 1);
  EXPECT_FALSE(OpenOrDie(file)->fill_markers().has_value()) << "there is no middle";
  file.Set("tokenizer.ggml.middle_token_id", int32_t{-1});
  EXPECT_FALSE(OpenOrDie(file)->fill_markers().has_value()) << "some files say so of none";
  file.Set("tokenizer.ggml.fim_mid_token_id", first + 2);
  const auto tokenizer = OpenOrDie(file);
  ASSERT_TRUE(tokenizer->fill_markers().has_value());
  const auto id = static_cast<TokenId>(first);
  EXPECT_THAT(*tokenizer->EncodeFillUpTo(99, "a", "b", false), ElementsAre(id, 'a', id + 1, 'b', id + 2));
}

// A quadratic step anywhere would take these minutes.
TEST(Tokenizer, TakesALongTextOfAnythingInItsStride) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(testing::OpenFileOrDie(testing::DemoModelPath()));
  ToyVocabulary toy = testing::ToySentencePiece();
  for (const char* text : {"aa", "aaaa", "<u<u<u<u"}) toy.Add(text, text[0] == '<' ? 4 : 1, 1);
  tokenizers.push_back(OpenOrDie(toy.File("llama", "")));
  constexpr size_t kBytes = testing::kSanitized ? 1 << 18 : 1 << 20, kFewerBytes = kBytes / 8;
  std::string lines, tags;
  while (lines.size() < kFewerBytes) lines += " \n  \t";
  while (tags.size() < kFewerBytes) tags += "<u";
  for (const std::string& text : {std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kFewerBytes, '\n'),
                                  std::string(kFewerBytes, '<'), std::string(kFewerBytes, '\xE2'), lines, tags}) {
    for (const auto& tokenizer : tokenizers) {
      const std::vector<TokenId> tokens = tokenizer->Encode(text, false, true);
      EXPECT_TRUE(tokenizer->Decode(tokens, false) == text) << ::testing::PrintToString(text.substr(0, 8));
    }
  }
}

// Texts and the tokens that another engine expects of them.

// The parts of `text` between separators; one more than there are of those.
std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (size_t end; (end = text.find(separator, start)) != std::string::npos; start = end + separator.size()) {
    parts.push_back(text.substr(start, end - start));
  }
  parts.push_back(text.substr(start));
  return parts;
}

class TokenizerPairs : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerPairs, AllAgree) {
  SHARED_FILE_OR_SKIP(model, "data/tokenizers/" + GetParam() + ".gguf");
  SHARED_FILE_OR_SKIP(inputs, "data/tokenizers/" + GetParam() + ".inp");
  SHARED_FILE_OR_SKIP(outputs, "data/tokenizers/" + GetParam() + ".out");
  const std::unique_ptr<Tokenizer> tokenizer = testing::OpenFileOrDie(model);
  const std::vector<std::string> texts = SplitAt(testing::ReadFileOrDie(inputs), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = SplitAt(testing::ReadFileOrDie(outputs), "\n");
  ASSERT_EQ(texts.size(), 47u);
  ASSERT_EQ(lines.size(), 47u);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(line), std::istream_iterator<TokenId>()};
    const std::vector<TokenId> tokens = tokenizer->Encode(texts[i], /*add_special=*/false, /*parse_special=*/false);
    EXPECT_EQ(tokens, expected) << "text " << i << ": " << ::testing::PrintToString(texts[i]);
    EXPECT_EQ(tokenizer->Decode(tokens, /*render_control=*/false), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerPairs, ::testing::Values("qwen", "gpt-2", "llama-spm"),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param == "qwen" ? "qwen" : info.param == "gpt-2" ? "gpt2" : "llama";
                         });

TEST(QwenVocabulary, EndsAtMoreThanTheOneTokenItsFileNames) {
  SHARED_FILE_OR_SKIP(model, "data/tokenizers/qwen.gguf");
  const std::unique_ptr<Tokenizer> tokenizer = testing::OpenFileOrDie(model);
  const absl::Span<const TokenId> ends = tokenizer->end_of_generation();
  EXPECT_EQ(std::vector<TokenId>(ends.begin(), ends.end()), (std::vector<TokenId>{128247, 151643, 151645}));
}

}  // namespace
}  // namespace stagecoach
