#include "coordinator/text/pretokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "coordinator/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/pcre2_oracle.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

// The published expressions, with contractions spelled out: caseless matching in PCRE2 would fold U+017F to s.
#define QWEN_CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define QWEN_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
constexpr char kQwen2Pattern[] = QWEN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" QWEN_REST;
constexpr char kLlamaBpePattern[] = QWEN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" QWEN_REST;
constexpr char kGpt2Pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";

std::vector<std::string> Split(PreTokenizer kind, absl::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t bytes = FirstPieceBytes(kind, text);
    if (bytes == 0 || bytes > text.size()) {
      ADD_FAILURE() << "a piece of " << bytes << " bytes of " << text.size();
      break;
    }
    pieces.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return pieces;
}

// Strings in which the expressions have something to decide: every kind of character, alone and in runs.
class RandomText {
 public:
  std::string Next() {
    std::string text;
    for (int parts = Below(12); parts >= 0; --parts) AppendPart(&text);
    return text;
  }

 private:
  uint32_t Below(uint32_t bound) { return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_); }
  template <size_t kCount>
  uint32_t OneOf(const uint32_t (&values)[kCount]) {
    return values[Below(kCount)];
  }

  uint32_t AnyCodePoint() {
    const uint32_t limits[] = {0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000};
    for (;;) {
      const uint32_t c = Below(OneOf(limits));
      if ((c < 0xD800 || c > 0xDFFF) && c != 0x180E) return c;  // U+180E: see unicode_tables.h
    }
  }

  void AppendPart(std::string* text) {
    static const uint32_t kSpaces[] = {' ', ' ', ' ', '\t', '\n', '\r', '\v', '\f', 0x85, 0xA0, 0x2003, 0x2028, 0x3000};
    static const uint32_t kLetters[] = {'a', 's', 'S', 'T', 'l', 0x17F, 0xE9, 0x3B1, 0x4E2D, 0xAC00, 0x1D538};
    static const uint32_t kNumbers[] = {'0', '7', '9', 0xB2, 0xBD, 0x664, 0x2167, 0x1D7D8};
    static const uint32_t kOthers[] = {'!', '\'', '\'', '_', '.', 0, 0x301, 0x20AC, 0xFE0F, 0x1F600, 0x10FFFF, 0xFFFD};
    static const char* const kContractions[] = {"'s",  "'S",  "'t", "'re", "'RE", "'ve", "'vE",      "'m",
                                                "'ll", "'Ll", "'d", "'l",  "'r",  "'v",  "'\xC5\xBF"};
    const uint32_t kind = Below(6);
    if (kind == 0) {
      *text += kContractions[Below(std::size(kContractions))];
      return;
    }
    for (uint32_t count = Below(4) + 1; count > 0; --count) {
      AppendUtf8(kind == 1   ? OneOf(kSpaces)
                 : kind == 2 ? OneOf(kLetters)
                 : kind == 3 ? OneOf(kNumbers)
                 : kind == 4 ? OneOf(kOthers)
                             : AnyCodePoint(),
                 text);
    }
  }

  std::mt19937 random_{20240229};
};

void ExpectSplitsLikePcre2(PreTokenizer kind, const char* pattern) {
  const testing::Pcre2Oracle oracle(pattern);
  RandomText random;
  for (int i = 0; i < 10000; ++i) {
    const std::string text = random.Next();
    ASSERT_EQ(Split(kind, text), oracle.Split(text)) << ::testing::PrintToString(text);
  }
}

TEST(PreTokenizer, SplitsLikePcre2ForQwen2) { ExpectSplitsLikePcre2(PreTokenizer::kQwen2, kQwen2Pattern); }
TEST(PreTokenizer, SplitsLikePcre2ForLlamaBpe) { ExpectSplitsLikePcre2(PreTokenizer::kLlamaBpe, kLlamaBpePattern); }
TEST(PreTokenizer, SplitsLikePcre2ForGpt2) { ExpectSplitsLikePcre2(PreTokenizer::kGpt2, kGpt2Pattern); }

TEST(PreTokenizer, LeavesTheLastSpaceOfARunToTheWord) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "a  \n  b  "), ElementsAre("a", "  \n", " ", " b", "  "));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, "a \n b"), ElementsAre("a", " \n", " b"));
}

TEST(PreTokenizer, TakesOneDigitOrThreeOrAll) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(Split(PreTokenizer::kLlamaBpe, "1234"), ElementsAre("123", "4"));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, "1234"), ElementsAre("1234"));
}

TEST(PreTokenizer, FoldsNoLetterButAsciiInContractions) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "X'Sy"), ElementsAre("X", "'S", "y"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "X'\xC5\xBFy"), ElementsAre("X", "'\xC5\xBFy"));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, "X'Sy"), ElementsAre("X", "'", "Sy"));
}

TEST(PreTokenizer, TakesInvalidBytesAsOneCharacterEach) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "a\xFF\xC3 b"), ElementsAre("a", "\xFF\xC3", " b"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2,
                    "a\xFF"
                    "b"),
              ElementsAre("a",
                          "\xFF"
                          "b"));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, " \xE2\x82"), ElementsAre(" \xE2\x82"));
}

TEST(PreTokenizer, KnowsTheNamesThatConvertersWrite) {
  EXPECT_EQ(PreTokenizerByName("qwen2"), PreTokenizer::kQwen2);
  EXPECT_EQ(PreTokenizerByName("deepseek-r1-qwen"), PreTokenizer::kQwen2);
  EXPECT_EQ(PreTokenizerByName("llama-v3"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(PreTokenizerByName("pixtral"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(PreTokenizerByName("olmo"), PreTokenizer::kGpt2);
  EXPECT_EQ(PreTokenizerByName("default"), std::nullopt);
  EXPECT_EQ(PreTokenizerByName(""), std::nullopt);
}

}  // namespace
}  // namespace stagecoach
