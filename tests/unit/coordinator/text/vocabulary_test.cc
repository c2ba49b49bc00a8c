#include "coordinator/text/vocabulary.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

// Expects that the file is refused with the code, and that the message has the file and all parts.
void ExpectRefused(const GgufWriter& file, absl::StatusCode code, const std::vector<std::string>& parts) {
  const absl::Status status = testing::Open(file).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("toy.gguf"));
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

constexpr absl::StatusCode kMalformed = absl::StatusCode::kInvalidArgument;

GgufWriter BytePairs() { return testing::ToyBytePairs().File("gpt2", "qwen2"); }
GgufWriter SentencePiece() { return testing::ToySentencePiece().File("llama", "default"); }

template <typename T>
GgufWriter With(GgufWriter file, const std::string& key, const T& value) {
  file.Set(key, value);
  return file;
}

GgufWriter Without(GgufWriter file, const std::string& key) {
  file.Remove(key);
  return file;
}

TEST(Vocabulary, RefusesAnotherModelOrPreTokenizerWithTheList) {
  const auto refused = absl::StatusCode::kUnimplemented;
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.model", "bert"), refused, {"'bert'", "gpt2", "llama"});
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.pre", "bloom"), refused,
                {"'bloom'", "qwen2", "llama-bpe", "gpt-2", "gpt-4o", "deepseek-v3"});
  ExpectRefused(Without(BytePairs(), "tokenizer.ggml.pre"), refused, {"tokenizer.ggml.pre", "qwen2"});
}

TEST(Vocabulary, NamesAMissingKey) {
  const auto missing = absl::StatusCode::kNotFound;
  for (const std::string key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    ExpectRefused(Without(BytePairs(), key), missing, {key});
  }
  for (const std::string key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    ExpectRefused(Without(SentencePiece(), key), missing, {key});
  }
}

TEST(Vocabulary, NamesAKeyOfTheWrongType) {
  for (const std::string key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                                "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    ExpectRefused(With(BytePairs(), key, uint32_t{1}), kMalformed, {key});
  }
  for (const std::string key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"}) {
    ExpectRefused(With(BytePairs(), key, "1"), kMalformed, {key});
  }
  ExpectRefused(With(SentencePiece(), "tokenizer.ggml.scores", std::vector<int32_t>{1}), kMalformed,
                {"tokenizer.ggml.scores"});
  ExpectRefused(With(SentencePiece(), "tokenizer.ggml.add_space_prefix", uint32_t{1}), kMalformed,
                {"add_space_prefix"});
}

TEST(Vocabulary, RefusesArraysOfDifferentLength) {
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.token_type", std::vector<int32_t>(7, 1)), kMalformed,
                {"tokenizer.ggml.token_type", "7", "260"});
  ExpectRefused(With(SentencePiece(), "tokenizer.ggml.scores", std::vector<float>(3)), kMalformed,
                {"tokenizer.ggml.scores", "3", "264"});
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.tokens", std::vector<std::string>()), kMalformed,
                {"tokenizer.ggml.tokens"});
}

TEST(Vocabulary, RefusesATokenIdOutsideTheVocabulary) {
  for (const std::string key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id", "tokenizer.ggml.unknown_token_id"}) {
    ExpectRefused(With(BytePairs(), key, uint32_t{260}), kMalformed, {key, "260", "259"});
    ExpectRefused(With(BytePairs(), key, int32_t{-1}), kMalformed, {key, "-1"});
    EXPECT_TRUE(testing::Open(With(BytePairs(), key, uint64_t{259})).ok());
  }
}

TEST(Vocabulary, RefusesATokenTypeThatDoesNotExist) {
  testing::ToyVocabulary toy = testing::ToyBytePairs();
  toy.types[42] = 7;
  ExpectRefused(toy.File("gpt2", "qwen2"), kMalformed, {"tokenizer.ggml.token_type", "7", "42"});
}

TEST(Vocabulary, RefusesAScoreThatIsNoNumber) {
  testing::ToyVocabulary toy = testing::ToySentencePiece();
  toy.scores[260] = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(toy.File("llama", ""), kMalformed, {"tokenizer.ggml.scores", "260"});
}

TEST(Vocabulary, RefusesAMergeThatIsNotTwoParts) {
  for (const char* merge : {"", "ab", "a ", " b"}) {
    testing::ToyVocabulary toy = testing::ToyBytePairs();
    toy.merges.push_back(merge);
    ExpectRefused(toy.File("gpt2", "qwen2"), kMalformed, {"tokenizer.ggml.merges", "index 4"});
  }
}

TEST(Vocabulary, RefusesToAddATokenThatDoesNotExist) {
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.add_bos_token", true), kMalformed, {"tokenizer.ggml.bos_token_id"});
  ExpectRefused(With(BytePairs(), "tokenizer.ggml.add_eos_token", true), kMalformed, {"tokenizer.ggml.eos_token_id"});
}

TEST(Vocabulary, TakesTokensWithoutTypesForNormalOnes) {
  const auto tokenizer = testing::OpenOrDie(Without(BytePairs(), "tokenizer.ggml.token_type"));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("hello", true, true), false), "hello");
}

}  // namespace
}  // namespace stagecoach
