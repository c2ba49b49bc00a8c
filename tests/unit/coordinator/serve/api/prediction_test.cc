// The field `prediction` of chat completions, and what usage says of it.

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

using Prediction = ToyServiceTest;

// With that content, as JSON, and further fields.
std::string PredictionOf(const std::string& content, const std::string& more = "") {
  return absl::StrCat(R"("prediction":{"type":"content","content":)", content, "}", more);
}

TEST_F(Prediction, BecomesTokensOfPlainTextThatAllChoicesShare) {
  const std::vector<TokenId> prompt = service.Chat("").call->TakeRequests().front().prompt;
  const std::vector<TokenId> tokens = service.tokenizer->Encode("hello <|im_end|>", false, /*parse_special=*/false);
  EXPECT_THAT(tokens, Not(Contains(kImEnd)));
  for (const char* content :
       {R"("hello <|im_end|>")", R"([{"type":"text","text":"hello <|im"},{"type":"text","text":"_end|>"}])"}) {
    const PreparedCall prepared = service.Chat(PredictionOf(content, R"(,"n":2)"));
    ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
    EXPECT_THAT(prepared.call->ignored(), IsEmpty());
    const std::vector<GenerationRequest> requests = prepared.call->TakeRequests();
    ASSERT_EQ(requests.size(), 2u);
    ASSERT_NE(requests[0].prediction, nullptr);
    EXPECT_EQ(*requests[0].prediction, tokens);
    EXPECT_EQ(requests[1].prediction, requests[0].prediction);
    EXPECT_EQ(requests[0].prompt, prompt) << "the model is not told";
  }
}

TEST_F(Prediction, OfNothingIsNone) {
  for (const std::string& fields : {PredictionOf(R"("")"), PredictionOf("[]")}) {
    const PreparedCall prepared = service.Chat(fields);
    ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
    EXPECT_EQ(prepared.call->TakeRequests().front().prediction, nullptr) << fields;
  }
}

TEST_F(Prediction, HasAtMostAsManyTokensAsTheContext) {
  const std::string longest(static_cast<size_t>(service.context.context_tokens), 'a');
  const PreparedCall taken = service.Chat(PredictionOf(absl::StrCat("\"", longest, "\"")));
  ASSERT_FALSE(taken.error.has_value()) << taken.error->message;
  EXPECT_EQ(taken.call->TakeRequests().front().prediction->size(), longest.size());
  const std::string longer = PredictionOf(absl::StrCat("\"", longest, "a\""));
  const PreparedCall refused = service.Chat(longer);
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->status, 400);
  EXPECT_EQ(refused.error->message,
            "'prediction': has more than 100 tokens, expected at most that; leave out what the answer will not repeat");
  service.context.context_tokens = 0;
  EXPECT_FALSE(service.Chat(longer).error.has_value()) << "the context is not known";
}

TEST_F(Prediction, MeansNothingToACompletion) {
  const PreparedCall prepared = service.Complete(PredictionOf(R"("x")"));
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_THAT(prepared.call->ignored(), ElementsAre("prediction"));
  EXPECT_EQ(prepared.call->TakeRequests().front().prediction, nullptr);
}

// The end of a stream with usage, or a body.
Json PredictionDetails(const std::string& bytes, bool stream) {
  const Json usage = stream ? (*(Events(bytes).end() - 2))["usage"] : Json::parse(bytes)["usage"];
  return usage["completion_tokens_details"];
}

TEST_F(Prediction, UsageAddsUpWhatBecameOfItInAllChoices) {
  for (const bool stream : {false, true}) {
    const std::string streamed = R"(,"stream":true,"stream_options":{"include_usage":true})";
    const PreparedCall prepared = service.Chat(PredictionOf(R"("abc")", R"(,"n":2)" + (stream ? streamed : "")));
    ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
    std::string bytes = prepared.call->Begin().bytes;
    for (int choice = 0; choice < 2; ++choice) {
      SessionEvent event = Text("ab");
      event.cost.emplace().set_predicted_right(1);
      bytes += prepared.call->Take(choice, event).bytes;
      SessionEvent end = Finished(pb::RequestFinished::REASON_LENGTH);
      end.finished->mutable_cost()->set_predicted_right(2);
      end.finished->mutable_cost()->set_predicted_wrong(1 + choice);
      bytes += prepared.call->Take(choice, end).bytes;
    }
    const Json details = PredictionDetails(bytes, stream);
    EXPECT_EQ(details["accepted_prediction_tokens"], 4) << bytes;
    EXPECT_EQ(details["rejected_prediction_tokens"], 3) << bytes;
  }
}

// The engine says no more of a request whose answer is over before.
TEST_F(Prediction, UsageOfAnAnswerThatAStopStringEndsIsThatOfItsLastTokens) {
  const PreparedCall prepared = service.Chat(PredictionOf(R"("abc")", R"(,"stop":"c")"));
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  prepared.call->Begin();
  SessionEvent first = Text("ab"), last = Text("c");
  first.cost.emplace().set_predicted_right(1);
  last.cost.emplace().set_predicted_right(3);
  prepared.call->Take(0, first);
  const ApiCall::Output output = prepared.call->Take(0, last);
  ASSERT_TRUE(output.ended);
  EXPECT_EQ(PredictionDetails(output.bytes, /*stream=*/false)["accepted_prediction_tokens"], 3);
}

}  // namespace
}  // namespace stagecoach::testing
