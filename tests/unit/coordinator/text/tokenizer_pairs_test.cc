// Texts and the tokens that another engine expects of them.

#include <sstream>
#include <string>
#include <vector>

#include "coordinator/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

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
