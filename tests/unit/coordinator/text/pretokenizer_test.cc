#include "coordinator/text/pretokenizer.h"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/text/pcre2_oracle.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

using Patterns = std::vector<std::string>;

// The published expressions, with contractions spelled out: caseless matching in PCRE2 would fold U+017F to s.
#define CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define WHITESPACE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITESPACE
constexpr char kQwen2Pattern[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" QWEN_REST;
constexpr char kLlamaBpePattern[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" QWEN_REST;
constexpr char kGpt2Pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";

#define SIGN "[^\\r\\n\\p{L}\\p{N}]?"
#define HEAD "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TAIL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
constexpr char kGpt4oPattern[] = SIGN HEAD "*" TAIL "+(?:" CONTRACTIONS ")?|" SIGN HEAD "+" TAIL "*(?:" CONTRACTIONS
                                           ")?|\\p{N}{1,3}"
                                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITESPACE;
constexpr char kTekkenPattern[] =
    SIGN HEAD "*" TAIL "+|" SIGN HEAD "+" TAIL "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITESPACE;
// PCRE2 has no intersection of classes, and of scripts it takes the extensions unless told otherwise.
#define NO_HAN(of) "(?:(?!\\p{sc:Han})" of ")"
constexpr char kKimiK2Pattern[] =
    "\\p{sc:Han}+|" SIGN NO_HAN(HEAD) "*" NO_HAN(TAIL) "+(?:" CONTRACTIONS ")?|" SIGN NO_HAN(HEAD) "+" NO_HAN(
        TAIL) "*(?:" CONTRACTIONS ")?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITESPACE;

constexpr char kDeepSeekV3Pattern[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" WHITESPACE;
constexpr char kAsianPattern[] = "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
constexpr char kCasedLettersPattern[] =
    "\\s?["
    "\\x{41}-\\x{5A}\\x{61}-\\x{7A}\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";
constexpr char kAsciiSignsPattern[] =
    "\\s?[!-\\/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";

std::vector<std::string> Split(PreTokenizer kind, absl::string_view text) {
  std::vector<std::string> pieces;
  PieceCutter cutter(kind, text);
  for (absl::string_view piece = cutter.Next(); !piece.empty(); piece = cutter.Next()) pieces.emplace_back(piece);
  EXPECT_EQ(cutter.bytes_left(), 0u);
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
    // Of either case and of none, and Han as letters, numbers, marks and symbols.
    static const uint32_t kLetters[] = {'a',    's',    'S',    'T',    'l',    'A',    'B',     0x17F,  0xE9,
                                        0xC9,   0x1C5,  0x2B0,  0x3B1,  0x416,  0x10D0, 0x1F00,  0x2D00, 0x5D0,
                                        0x4E2D, 0x9FA6, 0x3005, 0x3042, 0x30A2, 0xAC00, 0x1D538, 0x20000};
    static const uint32_t kNumbers[] = {'0', '1', '7', '9', 0xB2, 0xBD, 0x664, 0x2167, 0x3007, 0x1D7D8};
    static const uint32_t kOthers[] = {'!',    '/',    '\'',   '\'',    '_',     '.',     '-',      '$',    0,
                                       7,      0x301,  0x903,  0x200B,  0x20AC,  0x2019,  0x2E80,   0x3002, 0x3099,
                                       0x30FB, 0xFE0F, 0xFF01, 0x16FF0, 0x1F600, 0x1F3FB, 0x10FFFF, 0xFFFD};
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

// Each expression applied to the pieces that those before it have made.
std::vector<std::string> SplitOneAfterTheOther(const std::vector<std::unique_ptr<testing::Pcre2Oracle>>& oracles,
                                               const std::string& text) {
  std::vector<std::string> pieces = {text};
  for (const auto& oracle : oracles) {
    std::vector<std::string> parts;
    for (const std::string& piece : pieces) {
      for (std::string& part : oracle->Split(piece)) parts.push_back(std::move(part));
    }
    pieces = std::move(parts);
  }
  return pieces;
}

void ExpectSplitsLikePcre2(PreTokenizer kind, const Patterns& patterns) {
  std::vector<std::unique_ptr<testing::Pcre2Oracle>> oracles;
  for (const std::string& pattern : patterns) oracles.push_back(std::make_unique<testing::Pcre2Oracle>(pattern));
  RandomText random;
  for (int i = 0; i < 10000; ++i) {
    const std::string text = random.Next();
    ASSERT_EQ(Split(kind, text), SplitOneAfterTheOther(oracles, text)) << ::testing::PrintToString(text);
  }
}

TEST(PreTokenizer, SplitsLikePcre2ForQwen2) { ExpectSplitsLikePcre2(PreTokenizer::kQwen2, {kQwen2Pattern}); }
TEST(PreTokenizer, SplitsLikePcre2ForLlamaBpe) { ExpectSplitsLikePcre2(PreTokenizer::kLlamaBpe, {kLlamaBpePattern}); }
TEST(PreTokenizer, SplitsLikePcre2ForGpt2) { ExpectSplitsLikePcre2(PreTokenizer::kGpt2, {kGpt2Pattern}); }
TEST(PreTokenizer, SplitsLikePcre2ForGpt4o) { ExpectSplitsLikePcre2(PreTokenizer::kGpt4o, {kGpt4oPattern}); }
TEST(PreTokenizer, SplitsLikePcre2ForTekken) { ExpectSplitsLikePcre2(PreTokenizer::kTekken, {kTekkenPattern}); }
TEST(PreTokenizer, SplitsLikePcre2ForKimiK2) { ExpectSplitsLikePcre2(PreTokenizer::kKimiK2, {kKimiK2Pattern}); }

TEST(PreTokenizer, SplitsLikePcre2ForStarCoder) {
  ExpectSplitsLikePcre2(PreTokenizer::kStarCoder, {"\\p{N}", kGpt2Pattern});
}

TEST(PreTokenizer, SplitsLikePcre2ForDeepSeekV3) {
  ExpectSplitsLikePcre2(
      PreTokenizer::kDeepSeekV3,
      {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", kDeepSeekV3Pattern});
}

TEST(PreTokenizer, SplitsLikePcre2ForDeepSeekLlm) {
  ExpectSplitsLikePcre2(PreTokenizer::kDeepSeekLlm,
                        {"[\\r\\n]", kCasedLettersPattern, kAsciiSignsPattern, "\\s+$", kAsianPattern, "\\p{N}+"});
}

TEST(PreTokenizer, SplitsLikePcre2ForDeepSeekCoder) {
  ExpectSplitsLikePcre2(PreTokenizer::kDeepSeekCoder,
                        {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kAsianPattern, "\\p{N}"});
}

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

TEST(PreTokenizer, TakesCapitalsOnlyBeforeSmallLetters) {
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "HTTPServer camelCase"), ElementsAre("HTTPServer", " camel", "Case"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "camelCase"), ElementsAre("camelCase"));
  // What has no case is a tail too, so that capitals after it stand alone.
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "中AB"), ElementsAre("中", "AB"));
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "中ABc"), ElementsAre("中ABc"));
}

TEST(PreTokenizer, LeavesAContractionToItsWordOrNot) {
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "it's 5's"), ElementsAre("it's", " ", "5", "'s"));
  EXPECT_THAT(Split(PreTokenizer::kTekken, "it's"), ElementsAre("it", "'s"));
  EXPECT_THAT(Split(PreTokenizer::kKimiK2, "it's"), ElementsAre("it's"));
  EXPECT_THAT(Split(PreTokenizer::kDeepSeekV3, "it's"), ElementsAre("it", "'s"));
}

TEST(PreTokenizer, PartsHanFromOtherLettersWhereItsModelWants) {
  EXPECT_THAT(Split(PreTokenizer::kKimiK2, "a中文b、ひらがな"), ElementsAre("a", "中文", "b", "、ひらがな"));
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "a中文b、ひらがな"), ElementsAre("a中文b", "、ひらがな"));
  EXPECT_THAT(Split(PreTokenizer::kDeepSeekV3, "a中文b、ひらがな"), ElementsAre("a", "中文", "b", "、", "ひらがな"));
}

TEST(PreTokenizer, SplitsWhatEarlierExpressionsLeft) {
  EXPECT_THAT(Split(PreTokenizer::kDeepSeekV3, "x  12345\n  y"),
              ElementsAre("x", "  ", "123", "45", "\n", " ", " y"));  // not " 12": the digits were cut out first
  EXPECT_THAT(Split(PreTokenizer::kStarCoder, "x  123"), ElementsAre("x", "  ", "1", "2", "3"));
  EXPECT_THAT(Split(PreTokenizer::kDeepSeekLlm, "caf\xC3\xA9s"), ElementsAre("caf", "\xC3\xA9", "s"));
}

TEST(PreTokenizer, FoldsNoLetterButAsciiInContractions) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "X'Sy"), ElementsAre("X", "'S", "y"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "X'\xC5\xBFy"), ElementsAre("X", "'\xC5\xBFy"));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, "X'Sy"), ElementsAre("X", "'", "Sy"));
}

TEST(PreTokenizer, TakesInvalidBytesAsOneCharacterEach) {
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "a\xFF\xC3 b"), ElementsAre("a", "\xFF\xC3", " b"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "a\377b"), ElementsAre("a", "\377b"));
  EXPECT_THAT(Split(PreTokenizer::kGpt2, " \xE2\x82"), ElementsAre(" \xE2\x82"));
  EXPECT_THAT(Split(PreTokenizer::kGpt4o, "a\xFF\xC3/ b"), ElementsAre("a", "\xFF\xC3/", " b"));
  EXPECT_THAT(Split(PreTokenizer::kDeepSeekV3, "a\xFF\xC3 b"), ElementsAre("a", "\xFF\xC3", " b"));
}

TEST(PreTokenizer, KnowsTheNamesThatConvertersWrite) {
  const auto kind_of = [](absl::string_view name) {
    const std::optional<PreTokenizerHabits> habits = PreTokenizerByName(name);
    return habits.has_value() ? std::make_optional(habits->kind) : std::nullopt;
  };
  EXPECT_EQ(kind_of("qwen2"), PreTokenizer::kQwen2);
  EXPECT_EQ(kind_of("deepseek-r1-qwen"), PreTokenizer::kQwen2);
  EXPECT_EQ(kind_of("llama-v3"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(kind_of("pixtral"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(kind_of("glm4"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(kind_of("dbrx"), PreTokenizer::kLlamaBpe);
  EXPECT_EQ(kind_of("olmo"), PreTokenizer::kGpt2);
  EXPECT_EQ(kind_of("refact"), PreTokenizer::kStarCoder);
  EXPECT_EQ(kind_of("llama4"), PreTokenizer::kGpt4o);
  EXPECT_EQ(kind_of("minimax-m2"), PreTokenizer::kGpt4o);
  EXPECT_EQ(kind_of("kimi-k2"), PreTokenizer::kKimiK2);
  EXPECT_EQ(kind_of("deepseek-v3"), PreTokenizer::kDeepSeekV3);
  EXPECT_EQ(kind_of("deepseek-llm"), PreTokenizer::kDeepSeekLlm);
  EXPECT_EQ(kind_of("joyai-llm"), PreTokenizer::kDeepSeekV3);
  EXPECT_EQ(kind_of("solar-open"), PreTokenizer::kQwen2);
  EXPECT_EQ(kind_of("kanana2"), PreTokenizer::kGpt4o);
  EXPECT_EQ(kind_of("default"), std::nullopt);
  EXPECT_EQ(kind_of(""), std::nullopt);
}

// Whatever is scanned again for the next piece, for every expression and text.
TEST(PreTokenizer, TakesTimeInProportionToTheText) {
  constexpr size_t kBytes = testing::kSanitized ? 1 << 15 : 1 << 17;
  const auto repeated = [](absl::string_view unit) {
    std::string text;
    while (text.size() < kBytes) text.append(unit.data(), unit.size());
    return text;
  };
  std::vector<std::string> texts = {"中" + repeated("A")};
  for (const absl::string_view unit : {"A", "a", "1", "!", " ", "\n", "中", "\u0301", "\x01", "\xFF", "\u0301A",
                                       " \n\t", "中A", "\x01 ", "! ", "a1", "\u2003"}) {
    texts.push_back(repeated(unit));
  }
  for (const char* name : {"qwen2", "llama-bpe", "gpt-2", "starcoder", "gpt-4o", "tekken", "kimi-k2", "deepseek-v3",
                           "deepseek-llm", "deepseek-coder"}) {
    for (const std::string& text : texts) {
      PieceCutter cutter(PreTokenizerByName(name)->kind, text);
      size_t bytes = 0;
      for (absl::string_view piece = cutter.Next(); !piece.empty(); piece = cutter.Next()) bytes += piece.size();
      ASSERT_EQ(bytes, text.size()) << name << ", " << ::testing::PrintToString(text.substr(0, 8));
    }
  }
}

}  // namespace
}  // namespace stagecoach
