#include "coordinator/front/completion.h"

#include "coordinator/front/model_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() : file_(*OpenGguf(testing::DemoModelPath())), tokenizer_(*OpenTokenizer(*file_)) {}

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(CompletionTest, EndsBeforeAStopStringAndAfterItIgnoresEverything) {
  Completion completion(tokenizer_.get(), {" king"});
  SessionEvent event;
  std::string text;
  for (TokenId token : tokenizer_->Encode("the king of", false, false)) {
    event.tokens.assign(1, SampledToken{});
    event.tokens[0].token = token;
    text += completion.Take(event);
  }
  EXPECT_EQ(text, "the");
  EXPECT_EQ(completion.text(), "the");
  EXPECT_TRUE(completion.stopped_by_text());
  EXPECT_EQ(completion.finish_reason(), "stop");
  event.tokens.clear();
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_CANCELLED);
  EXPECT_EQ(completion.Take(event), "");
  EXPECT_EQ(completion.finish_reason(), "stop");
}

TEST_F(CompletionTest, NeverPrintsTheTokenThatEndsItButLists) {
  Completion completion(tokenizer_.get(), {});
  SessionEvent event;
  for (TokenId token : tokenizer_->Encode("amen", false, false)) {
    event.tokens.emplace_back();
    event.tokens.back().token = token;
  }
  event.tokens.emplace_back();
  event.tokens.back().token = tokenizer_->end_of_generation().back();
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_STOP);
  EXPECT_EQ(completion.Take(event), "amen");
  EXPECT_EQ(completion.finish_reason(), "stop");
  EXPECT_EQ(completion.tokens().back().token, tokenizer_->end_of_generation().back());
}

TEST_F(CompletionTest, HandsOutWhatItHeldBackWhenItEnds) {
  Completion completion(tokenizer_.get(), {"kingdom"});
  SessionEvent event;
  for (TokenId token : tokenizer_->Encode("a king", false, false)) {
    event.tokens.emplace_back();
    event.tokens.back().token = token;
  }
  EXPECT_EQ(completion.Take(event), "a ");
  EXPECT_EQ(completion.Abandon(), "king");
  EXPECT_EQ(completion.text(), "a king");
  EXPECT_EQ(completion.finish_reason(), "cancelled");
}

TEST_F(CompletionTest, TellsWhyItWasRejected) {
  Completion completion(tokenizer_.get(), {});
  SessionEvent event;
  event.finished.emplace();
  event.finished->set_reason(pb::RequestFinished::REASON_REJECTED);
  event.finished->set_error("needs 9 blocks, the pool has 8");
  EXPECT_EQ(completion.Take(event), "");
  EXPECT_EQ(completion.rejection(), "needs 9 blocks, the pool has 8");
}

}  // namespace
}  // namespace stagecoach
