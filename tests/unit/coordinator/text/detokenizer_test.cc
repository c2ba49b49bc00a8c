#include <limits>
#include <random>

#include "common/text/vocabulary.h"
#include "coordinator/text/tokenizer.h"
#include "coordinator/text/utf8.h"
#include "tests/testing/matchers.h"
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

// What comes out when a text is pushed in pieces of `piece_bytes`.
std::string PushInPieces(const std::vector<std::string>& stops, const std::string& text, size_t piece_bytes,
                         bool* stopped) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece_bytes) out += matcher.Push(text.substr(i, piece_bytes));
  out += matcher.Flush();
  *stopped = matcher.stopped();
  return out;
}

// The definition, read off the whole text: the match that ends first, of several the longest.
std::string Expected(const std::vector<std::string>& stops, const std::string& text, bool* stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool ends_here =
          !stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (ends_here) longest = std::max(longest, stop.size());
    }
    *stopped = longest > 0;
    if (*stopped) return text.substr(0, end - longest);
  }
  *stopped = false;
  return text;
}

TEST(StopMatcher, FindsAStopStringAcrossPieces) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.Push("text<"), "text");
  EXPECT_EQ(matcher.Push("/en"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("d> more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Push("and more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, GivesBackAPrefixThatTurnsOutToBeNoStop) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Push("a\n\nUs"), "a");
  EXPECT_EQ(matcher.Push("e it"), "\n\nUse it");
  EXPECT_EQ(matcher.Push("\n"), "");
  EXPECT_EQ(matcher.Flush(), "\n");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, HoldsBackNoMoreThanMayStillMatch) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aaa"), "a");
  EXPECT_EQ(matcher.Push("a"), "a");
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, GivesTheSameForEveryWayToCutTheStream) {
  std::mt19937 random(7);
  const auto word = [&random](size_t max_bytes) {
    std::string text(random() % (max_bytes + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  int stops_seen = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<std::string> stops = {word(5), word(7), word(4)};
    const std::string text = word(40);
    bool expected_stop = false;
    const std::string expected = Expected(stops, text, &expected_stop);
    stops_seen += expected_stop ? 1 : 0;
    for (const size_t piece_bytes : {1, 2, 5, 40}) {
      bool stopped = false;
      ASSERT_EQ(PushInPieces(stops, text, piece_bytes, &stopped), expected)
          << ::testing::PrintToString(stops) << " in " << text;
      ASSERT_EQ(stopped, expected_stop);
    }
  }
  EXPECT_GT(stops_seen, 100);
  EXPECT_LT(stops_seen, 2900);
}

// Expects that the file is refused with the code, and that the message has the file and all parts.
void ExpectRefused(const GgufWriter& file, absl::StatusCode code, const std::vector<std::string>& parts) {
  const absl::Status status = testing::Open(file).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr("toy.gguf"));
  for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
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
