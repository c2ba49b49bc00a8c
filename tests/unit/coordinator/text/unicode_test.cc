#include <string>

#include "coordinator/text/unicode_tables.h"
#include "coordinator/text/utf8.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/pcre2_oracle.h"

namespace stagecoach {
namespace {

using testing::Pcre2Oracle;

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

TEST(UnicodeTables, AgreeWithPcre2OnEveryLetter) { ExpectClassIsPcre2s(CharClass::kLetter, "\\p{L}"); }
TEST(UnicodeTables, AgreeWithPcre2OnEveryNumber) { ExpectClassIsPcre2s(CharClass::kNumber, "\\p{N}"); }
TEST(UnicodeTables, AgreeWithPcre2OnEverySpaceButOne) { ExpectClassIsPcre2s(CharClass::kSpace, "\\s"); }

TEST(UnicodeTables, TakeTheMongolianVowelSeparatorForNoSpace) {
  // White space until Unicode 6.2. PCRE2 keeps it in \s; the tokenizers the models were trained with do not.
  EXPECT_EQ(ClassOf(kMongolianVowelSeparator), CharClass::kOther);
}

TEST(UnicodeTables, TakeWhatLiesBeyondUnicodeForOther) {
  EXPECT_EQ(ClassOf(0x110000), CharClass::kOther);
  EXPECT_EQ(ClassOf(0xFFFFFFFF), CharClass::kOther);
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

TEST(UnicodeCategories, TakeWhatLiesBeyondUnicodeForOther) {
  EXPECT_EQ(CategoryOf(0x110000), CharCategory::kOther);
  EXPECT_EQ(CategoryOf(0xFFFFFFFF), CharCategory::kOther);
}

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
