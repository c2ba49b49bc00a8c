#include "common/text/token_bytes.h"

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::ToyModel;
using testing::ToyVocabulary;
using Kind = GrammarVocabulary::Kind;

constexpr int32_t kControlType = 3, kUserDefinedType = 4;

TEST(GrammarVocabularyOfAFile, KnowsWhatBytePairsStandForAndWhichTokensEndAGeneration) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId tool = toy.Add("<tool\xC3\xA9>", kUserDefinedType);
  const TokenId control = toy.Add("<|other|>", kControlType);
  const TokenId end = toy.Add("<|im_end|>", kControlType);
  const TokenId padded = end + 3;
  const ToyModel model(toy.File("gpt2", "qwen2"));
  const auto vocabulary = ReadGrammarVocabulary(model.metadata(), padded).value();
  EXPECT_EQ(vocabulary->size(), padded);
  for (TokenId byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(vocabulary->BytesOf(byte), std::string(1, static_cast<char>(byte))) << byte;
  }
  EXPECT_EQ(vocabulary->BytesOf(259), "hello");
  EXPECT_EQ(vocabulary->BytesOf(tool), "<tool\xC3\xA9>") << "as it is written";
  EXPECT_EQ(vocabulary->KindOf(tool), Kind::kText);
  EXPECT_EQ(vocabulary->KindOf(control), Kind::kControl);
  EXPECT_EQ(vocabulary->KindOf(end + 1), Kind::kControl) << "the model has more tokens than the file has texts";
  EXPECT_THAT(vocabulary->ends(), ElementsAre(end));
}

TEST(GrammarVocabularyOfAFile, KnowsTheBytesAndSpacesOfSentencePiece) {
  ToyVocabulary toy = testing::ToySentencePiece();
  const ToyModel model(toy.File("llama", ""));
  const auto vocabulary = ReadGrammarVocabulary(model.metadata(), static_cast<int64_t>(toy.texts.size())).value();
  EXPECT_EQ(vocabulary->BytesOf(3), std::string(1, '\0'));
  EXPECT_EQ(vocabulary->BytesOf(258), "\xFF");
  EXPECT_EQ(vocabulary->BytesOf(263), " a");
  EXPECT_EQ(vocabulary->KindOf(0), Kind::kControl) << "the unknown token";
  EXPECT_THAT(vocabulary->ends(), ElementsAre(2));
}

TEST(GrammarVocabularyOfAFile, IsRefusedWhereATextCouldNotBeWrittenOrNotEnd) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const auto tokens = static_cast<int64_t>(toy.texts.size());
  EXPECT_THAT(ReadGrammarVocabulary(ToyModel(toy.File("gpt2", "qwen2")).metadata(), tokens).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no token that ends a generation")));
  toy.texts[7] = toy.texts[8];
  toy.Add("<|im_end|>", kControlType);
  EXPECT_THAT(ReadGrammarVocabulary(ToyModel(toy.File("gpt2", "qwen2")).metadata(), tokens + 1).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("byte 7")));
}

TEST(BytesSpelled, AreThoseOfTheAlphabetAndOtherCharactersAreThemselves) {
  std::string bytes;
  EXPECT_TRUE(AppendBytesSpelled("a\xC4\xA0z\xC5\x83", &bytes));  // U+0120 is the space, U+0143 byte 173
  EXPECT_EQ(bytes, "a z\xAD");
  bytes.clear();
  EXPECT_FALSE(AppendBytesSpelled("\xE2\x82\xACx\xC5\x84\xFF\xC4", &bytes)) << "beyond the alphabet, or no UTF-8";
  EXPECT_EQ(bytes, "\xE2\x82\xACx\xC5\x84\xFF\xC4");
}

}  // namespace
}  // namespace stagecoach
