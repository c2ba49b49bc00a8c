#include "coordinator/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"

namespace stagecoach {
namespace {

// A regular expression compiled by PCRE2 with UTF and UCP: what the scanners and tables are held against.
class Pcre2Oracle {
 public:
  explicit Pcre2Oracle(const std::string& pattern) {  // CHECK-fails when the pattern does not compile
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                          &offset, nullptr);
    CHECK(code_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pcre2Oracle() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Pcre2Oracle(const Pcre2Oracle&) = delete;

  // The text, which is valid UTF-8, cut into its matches, one after the other. What lies between two matches is a piece
  // of its own.
  std::vector<std::string> Split(const std::string& text) const {
    std::vector<std::string> pieces;
    size_t position = 0;
    while (position < text.size()) {
      const int found =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position, 0, match_, nullptr);
      if (found == PCRE2_ERROR_NOMATCH) {
        pieces.push_back(text.substr(position));
        break;
      }
      CHECK_GT(found, 0);
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_);
      CHECK_GT(ends[1], ends[0]);
      if (ends[0] > position) pieces.push_back(text.substr(position, ends[0] - position));
      pieces.push_back(text.substr(ends[0], ends[1] - ends[0]));
      position = ends[1];
    }
    return pieces;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// The published expressions, with contractions spelled out: caseless matching in PCRE2 would fold U+017F to s.
#define CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define WHITESPACE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITESPACE
constexpr char kQwen2Pattern[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" QWEN_REST;
constexpr char kQwen35Pattern[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITESPACE;
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
std::vector<std::string> SplitOneAfterTheOther(const std::vector<std::unique_ptr<Pcre2Oracle>>& oracles,
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

TEST(PreTokenizer, SplitsLikePcre2) {
  const std::pair<PreTokenizer, std::vector<std::string>> kinds[] = {
      {PreTokenizer::kQwen2, {kQwen2Pattern}},
      {PreTokenizer::kQwen35, {kQwen35Pattern}},
      {PreTokenizer::kLlamaBpe, {kLlamaBpePattern}},
      {PreTokenizer::kGpt2, {kGpt2Pattern}},
      {PreTokenizer::kGpt4o, {kGpt4oPattern}},
      {PreTokenizer::kTekken, {kTekkenPattern}},
      {PreTokenizer::kKimiK2, {kKimiK2Pattern}},
      {PreTokenizer::kStarCoder, {"\\p{N}", kGpt2Pattern}},
      {PreTokenizer::kDeepSeekV3,
       {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", kDeepSeekV3Pattern}},
      {PreTokenizer::kDeepSeekLlm,
       {"[\\r\\n]", kCasedLettersPattern, kAsciiSignsPattern, "\\s+$", kAsianPattern, "\\p{N}+"}},
      {PreTokenizer::kDeepSeekCoder, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kAsianPattern, "\\p{N}"}}};
  for (const auto& [kind, patterns] : kinds) {
    std::vector<std::unique_ptr<Pcre2Oracle>> oracles;
    for (const std::string& pattern : patterns) oracles.push_back(std::make_unique<Pcre2Oracle>(pattern));
    SCOPED_TRACE(absl::StrCat("kind ", static_cast<int>(kind)));
    RandomText random;
    for (int i = 0; i < 10000; ++i) {
      const std::string text = random.Next();
      const std::vector<std::string> expected = SplitOneAfterTheOther(oracles, text);
      EXPECT_EQ(Split(kind, text), expected) << ::testing::PrintToString(text);
      if (Split(kind, text) != expected) break;
    }
  }
}

// Thai and Hindi have vowel signs that are marks: words of their texts stay whole.
TEST(PreTokenizer, OfQwen35KeepsMarksInWords) {
  EXPECT_THAT(Split(PreTokenizer::kQwen35, "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u093e\u092e!\u0301"),
              ElementsAre("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", " \u0928\u093e\u092e", "!\u0301"));
  EXPECT_THAT(Split(PreTokenizer::kQwen2, "\u0928\u093e\u092e"), ElementsAre("\u0928", "\u093e\u092e"));
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
  EXPECT_EQ(kind_of("qwen35"), PreTokenizer::kQwen35);
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
  for (const char* name : {"qwen2", "qwen35", "llama-bpe", "gpt-2", "starcoder", "gpt-4o", "tekken", "kimi-k2",
                           "deepseek-v3", "deepseek-llm", "deepseek-coder"}) {
    for (const std::string& text : texts) {
      PieceCutter cutter(PreTokenizerByName(name)->kind, text);
      size_t bytes = 0;
      for (absl::string_view piece = cutter.Next(); !piece.empty(); piece = cutter.Next()) bytes += piece.size();
      ASSERT_EQ(bytes, text.size()) << name << ", " << ::testing::PrintToString(text.substr(0, 8));
    }
  }
}

constexpr uint32_t kMongolianVowelSeparator = 0x180E;

bool IsSurrogate(uint32_t code_point) { return code_point >= 0xD800 && code_point <= 0xDFFF; }

std::string Utf8(uint32_t code_point) {
  std::string text;
  AppendUtf8(code_point, &text);
  return text;
}

// All code points of which `is_member` is true must be what PCRE2 takes as one run of the classes, and all others a run
// of what is not.
template <typename IsMember>
void ExpectMembersArePcre2s(IsMember is_member, const std::string& pcre_class) {
  const Pcre2Oracle inside("[" + pcre_class + "]+");
  const Pcre2Oracle outside("[^" + pcre_class + "]+");
  std::string members, others;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (IsSurrogate(c) || c == kMongolianVowelSeparator) continue;
    AppendUtf8(c, is_member(c) ? &members : &others);
  }
  EXPECT_EQ(inside.Split(members), std::vector<std::string>{members}) << pcre_class;
  EXPECT_EQ(outside.Split(others), std::vector<std::string>{others}) << pcre_class;
}

void ExpectClassIsPcre2s(CharClass char_class, const std::string& pcre_class) {
  ExpectMembersArePcre2s([char_class](uint32_t c) { return ClassOf(c) == char_class; }, pcre_class);
}

void ExpectCategoryIsPcre2s(CharCategory category, const std::string& pcre_class) {
  ExpectMembersArePcre2s([category](uint32_t c) { return CategoryOf(c) == category; }, pcre_class);
}

TEST(UnicodeTables, AgreeWithPcre2OnEveryLetterNumberAndSpaceButOne) {
  ExpectClassIsPcre2s(CharClass::kLetter, "\\p{L}");
  ExpectClassIsPcre2s(CharClass::kNumber, "\\p{N}");
  ExpectClassIsPcre2s(CharClass::kSpace, "\\s");
  // White space until Unicode 6.2. PCRE2 keeps it in \s; the tokenizers the models were trained with do not.
  EXPECT_EQ(ClassOf(kMongolianVowelSeparator), CharClass::kOther);
}

TEST(UnicodeTables, TakeWhatLiesBeyondUnicodeForOther) {
  EXPECT_EQ(ClassOf(0x110000), CharClass::kOther);
  EXPECT_EQ(ClassOf(0xFFFFFFFF), CharClass::kOther);
  EXPECT_EQ(CategoryOf(0x110000), CharCategory::kOther);
  EXPECT_EQ(CategoryOf(0xFFFFFFFF), CharCategory::kOther);
}

TEST(UnicodeCategories, AgreeWithPcre2OnEveryLetterAndItsCase) {
  ExpectCategoryIsPcre2s(CharCategory::kUpperLetter, "\\p{Lu}\\p{Lt}");
  ExpectCategoryIsPcre2s(CharCategory::kLowerLetter, "\\p{Ll}");
  ExpectCategoryIsPcre2s(CharCategory::kOtherLetter, "\\p{Lm}\\p{Lo}");
}

TEST(UnicodeCategories, AgreeWithPcre2OnEveryMarkNumberAndSign) {
  ExpectCategoryIsPcre2s(CharCategory::kMark, "\\p{M}");
  ExpectCategoryIsPcre2s(CharCategory::kNumber, "\\p{N}");
  ExpectCategoryIsPcre2s(CharCategory::kPunctuation, "\\p{P}");
  ExpectCategoryIsPcre2s(CharCategory::kSymbol, "\\p{S}");
  ExpectCategoryIsPcre2s(CharCategory::kSpace, "\\s");
}

TEST(UnicodeCategories, AgreeWithPcre2OnEveryHanCharacter) { ExpectMembersArePcre2s(IsHan, "\\p{sc:Han}"); }

TEST(Utf8, DecodesEveryCodePointItEncodes) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (IsSurrogate(c)) continue;
    const std::string text = Utf8(c);
    const DecodedChar decoded = DecodeUtf8(text, 0);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.bytes, text.size());
  }
}

TEST(Utf8, TakesBrokenSequencesByteByByte) {
  for (const std::string text : {"\x80", "\xBF\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                 "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xC3(",
                                 "\xE2\x82", "\xE2\x82(", "\xF0\x9F\x98", "\xF0\x9F\x98x"}) {
    const DecodedChar decoded = DecodeUtf8(text, 0);
    EXPECT_EQ(decoded.bytes, 1u) << ::testing::PrintToString(text);
    EXPECT_EQ(decoded.code_point, kReplacementCharacter) << ::testing::PrintToString(text);
  }
}

TEST(Utf8, ReplacesBrokenPartsAndLeavesACutSequenceAlone) {
  const auto whole = [](const std::string& text) {
    std::string out;
    const size_t taken = AppendWholeUtf8(text, &out);
    return std::make_pair(taken, out);
  };
  using Result = std::pair<size_t, std::string>;
  EXPECT_EQ(whole("a\xC3\xA9"), Result(3, "a\xC3\xA9"));
  EXPECT_EQ(whole("a\xF0\x9F\x98"), Result(1, "a"));
  EXPECT_EQ(whole("\xE2\x82(\x80)"), Result(5, "\xEF\xBF\xBD(\xEF\xBF\xBD)"));
  EXPECT_EQ(whole("\xED\xA0\x80"), Result(3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
}

}  // namespace
}  // namespace stagecoach
