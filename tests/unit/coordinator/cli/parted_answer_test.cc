#include "coordinator/cli/parted_answer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

// A model whose markers of reasoning are control tokens.
class PartedAnswerTest : public ::testing::Test {
 protected:
  PartedAnswerTest() {
    testing::ToyVocabulary toy = testing::ToyBytePairs();
    think_ = toy.Add("[THINK]", 3);
    end_ = toy.Add("[/THINK]", 3);
    tokenizer_ = testing::OpenOrDie(toy.File("gpt2", "qwen2"));
  }

  PartedAnswer Answered(bool raw) {
    PartedAnswer answer(tokenizer_.get(), {},
                        raw ? nullptr : OutputParser::Make(OutputFormat::kMistralArgs, {}, /*tools=*/nullptr));
    SessionEvent event;
    for (const TokenId token : {think_, TokenId{'h'}, TokenId{'m'}, end_, TokenId{'N'}, TokenId{'o'}}) {
      event.tokens.emplace_back().token = token;
    }
    event.finished.emplace();
    event.finished->set_reason(pb::RequestFinished::REASON_LENGTH);
    std::string all;
    for (const OutputDelta& delta : answer.Take(event)) all += delta.text;
    EXPECT_EQ(all, answer.reasoning() + answer.text());
    EXPECT_TRUE(answer.finished());
    EXPECT_EQ(answer.tokens().size(), 6u);
    return answer;
  }

  TokenId think_, end_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(PartedAnswerTest, PartsWhatAModelThinksFromWhatItSays) {
  const PartedAnswer answer = Answered(/*raw=*/false);
  EXPECT_EQ(answer.reasoning(), "hm");
  EXPECT_EQ(answer.text(), "No");
}

TEST_F(PartedAnswerTest, LeavesTheAnswerToARawPromptAsItIs) {
  const PartedAnswer answer = Answered(/*raw=*/true);
  EXPECT_EQ(answer.reasoning(), "");
  EXPECT_EQ(answer.text(), "hmNo");
}

}  // namespace
}  // namespace stagecoach
