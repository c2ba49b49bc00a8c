#include <random>
#include <string>
#include <vector>

#include "coordinator/text/tokenizer.h"
#include "coordinator/text/utf8.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::OpenOrDie;

bool IsWholeUtf8(const std::string& text) {
  std::string whole;
  return AppendWholeUtf8(text, &whole) == text.size() && whole == text;
}

TEST(Detokenizer, WaitsForTheLastByteOfACodePoint) {
  const auto tokenizer = OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push('a'), "a");
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push(0x9F), "");
  EXPECT_EQ(detokenizer.Push(0x98), "");
  EXPECT_EQ(detokenizer.Push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, ReplacesWhatNeverBecomesACodePoint) {
  const auto tokenizer = OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push(0xE2), "");
  EXPECT_EQ(detokenizer.Push(0x82), "");
  EXPECT_EQ(detokenizer.Push('x'), "\xEF\xBF\xBDx");
  EXPECT_EQ(detokenizer.Push(0x80), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push(0x9F), "");
  EXPECT_EQ(detokenizer.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, NeverEndsInsideACodePointWhateverTheTokens) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    Detokenizer detokenizer(tokenizer.get());
    for (int step = 0; step < 50; ++step) {
      const TokenId token = static_cast<TokenId>(random() % (random() % 2 == 0 ? 256 : 4096));
      const std::string text = detokenizer.Push(token);
      ASSERT_TRUE(IsWholeUtf8(text)) << ::testing::PrintToString(text);
    }
    ASSERT_TRUE(IsWholeUtf8(detokenizer.Flush()));
  }
}

TEST(Detokenizer, StreamsWhatDecodeGives) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  const std::string text = "In the beginning \xE2\x80\x94 \xE5\xA4\xAA\xE5\x88\x9D \xF0\x9F\x8C\x8D\n";
  Detokenizer detokenizer(tokenizer.get());
  std::string streamed;
  for (const TokenId token : tokenizer->Encode(text, false, false)) streamed += detokenizer.Push(token);
  EXPECT_EQ(streamed + detokenizer.Flush(), text);
}

TEST(Detokenizer, StripsOneSpaceAtTheStartOfASentencePieceText) {
  const auto tokenizer = OpenOrDie(testing::ToySentencePiece().File("llama", ""));
  Detokenizer from_start(tokenizer.get());
  EXPECT_EQ(from_start.Push(1), "");  // a control token is not the start
  EXPECT_EQ(from_start.Push(263), "a");
  EXPECT_EQ(from_start.Push(263), " a");
  Detokenizer in_the_middle(tokenizer.get(), /*at_text_start=*/false);
  EXPECT_EQ(in_the_middle.Push(263), " a");
  Detokenizer two_spaces(tokenizer.get());
  EXPECT_EQ(two_spaces.Push(259), "");
  EXPECT_EQ(two_spaces.Push(259), " ");
}

TEST(Detokenizer, LeavesControlTokensOut) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  Detokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push(4095), "");
}

}  // namespace
}  // namespace stagecoach
