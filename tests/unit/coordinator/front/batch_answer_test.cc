#include "coordinator/front/batch_answer.h"

#include "coordinator/front/model_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

BatchLine Line(int64_t number, const std::string& custom_id) {
  BatchLine line;
  line.number = number;
  line.custom_id = custom_id;
  return line;
}

class BatchAnswer : public ::testing::Test {
 protected:
  BatchAnswer() : file_(*OpenGguf(testing::DemoModelPath())), tokenizer_(*OpenTokenizer(*file_)) {}

  // The finished completion of a text.
  Completion Complete(const std::string& text, std::vector<std::string> stops) {
    Completion completion(tokenizer_.get(), std::move(stops));
    SessionEvent event;
    for (TokenId token : tokenizer_->Encode(text, false, false)) {
      SampledToken sampled;
      sampled.token = token;
      sampled.logprob = -0.5f;
      sampled.top = {{token, -0.5f}, {1, -2.0f}};
      event.tokens.push_back(sampled);
    }
    event.finished.emplace();
    event.finished->set_reason(pb::RequestFinished::REASON_LENGTH);
    completion.Take(event);
    return completion;
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(BatchAnswer, HasOpenAisForm) {
  BatchLine line = Line(1, "a");
  const Completion completion = Complete("In the beginning", {});
  const Json json = BatchAnswerJson("7", line, "demo", 1700000000, 3, completion, *tokenizer_);
  EXPECT_EQ(json["custom_id"], "a");
  EXPECT_TRUE(json["error"].is_null());
  const Json& body = json["response"]["body"];
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["choices"][0]["text"], "In the beginning");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 3 + static_cast<int64_t>(completion.tokens().size()));
}

TEST_F(BatchAnswer, GivesLogprobsWithTextOffsets) {
  BatchLine line = Line(1, "a");
  line.request.sampling.logprobs = 2;
  const Completion completion = Complete("the king", {});
  const Json logprobs =
      BatchAnswerJson("7", line, "demo", 0, 3, completion, *tokenizer_)["response"]["body"]["choices"][0]["logprobs"];
  std::string joined;
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], joined.size());
    EXPECT_EQ(logprobs["token_logprobs"][i], -0.5);
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 2u);
    joined += logprobs["tokens"][i].get<std::string>();
  }
  EXPECT_EQ(joined, "the king");
}

TEST_F(BatchAnswer, ShowsTokensThatAreNoTextAsBytes) {
  const std::vector<TokenId> tokens = tokenizer_->Encode("\xff", false, false);
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(TokenText(*tokenizer_, tokens[0]), "bytes:\\xff");
}

TEST_F(BatchAnswer, CompletionEndsBeforeAStopStringAndAfterItIgnoresEverything) {
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

TEST_F(BatchAnswer, CompletionNeverPrintsTheTokenThatEndsItButLists) {
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

TEST_F(BatchAnswer, CompletionHandsOutWhatItHeldBackWhenItEnds) {
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

TEST_F(BatchAnswer, CompletionTellsWhyItWasRejected) {
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
