#include "coordinator/front/parsed_completion.h"

#include "common/json/json_value.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

constexpr int32_t kControl = 3;

// Every byte is a token, and the marks are control tokens.
class ParsedCompletionTest : public ::testing::Test {
 protected:
  ParsedCompletionTest() {
    testing::ToyVocabulary toy = testing::ToyBytePairs();
    think_ = toy.Add("<think>", kControl);
    end_think_ = toy.Add("</think>", kControl);
    call_ = toy.Add("<tool_call>", kControl);
    end_call_ = toy.Add("</tool_call>", kControl);
    end_ = toy.Add("<|im_end|>", kControl);
    start_ = toy.Add("<|im_start|>", kControl);
    tokenizer_ = testing::OpenOrDie(toy.File("gpt2", "qwen2"));
  }

  ParsedCompletion Make(std::vector<std::string> stops) {
    auto tools =
        std::make_shared<const OutputTools>(Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
    return {tokenizer_.get(), std::move(stops), OutputParser::Make(OutputFormat::kHermesJson, {}, std::move(tools))};
  }

  static SessionEvent Of(const std::vector<TokenId>& tokens) {
    SessionEvent event;
    for (const TokenId token : tokens) event.tokens.push_back({.token = token});
    return event;
  }
  static SessionEvent End(pb::RequestFinished::Reason reason) {
    SessionEvent event;
    event.finished.emplace();
    event.finished->set_reason(reason);
    return event;
  }
  static std::vector<TokenId> Bytes(const std::string& text) {
    std::vector<TokenId> tokens;
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }

  std::string Take(const SessionEvent& event, ParsedCompletion* completion) {
    std::string summary;
    for (const OutputDelta& delta : completion->Take(event)) {
      summary += std::string(1, "RCNAE"[static_cast<int>(delta.kind)]) + "(" + delta.text + ")";
    }
    return summary;
  }

  TokenId think_, end_think_, call_, end_call_, end_, start_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(ParsedCompletionTest, ControlTokensArePrintedForTheParserButNotTheOneThatEndsTheAnswer) {
  ParsedCompletion completion = Make({});
  EXPECT_EQ(Take(Of({think_}), &completion), "");
  EXPECT_EQ(Take(Of(Bytes("Hm.")), &completion), "R(Hm.)");
  EXPECT_EQ(Take(Of({end_think_}), &completion), "");
  EXPECT_EQ(Take(Of(Bytes("Hi")), &completion), "C(Hi)");
  EXPECT_EQ(Take(Of({call_}), &completion), "");
  EXPECT_EQ(Take(Of(Bytes("{\"name\": \"f\"}")), &completion), "");
  EXPECT_EQ(completion.calls(), 0);
  EXPECT_EQ(Take(Of({end_call_}), &completion), "N(f)A({})E()");
  EXPECT_EQ(Take(Of({end_}), &completion), "");
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_STOP), &completion), "");
  EXPECT_EQ(completion.finish_reason(), "stop");
  EXPECT_EQ(completion.calls(), 1);
  EXPECT_EQ(completion.reasoning_tokens(), 3);
}

TEST_F(ParsedCompletionTest, ControlTokensThatAreNoMarkersAreDropped) {
  ParsedCompletion completion = Make({});
  std::vector<TokenId> all;
  const auto add = [&](const std::vector<TokenId>& tokens) { all.insert(all.end(), tokens.begin(), tokens.end()); };
  add({think_});
  add(Bytes("Hm"));
  add({start_});
  add(Bytes("."));
  add({end_think_, start_});
  add(Bytes("a "));
  add({start_, start_});
  add(Bytes("<|im_start|>\xC3"));
  add({start_});
  add(Bytes("b"));
  const std::string expected =
      "R(Hm.)C(a <|im_start|>\xEF\xBF\xBD"
      "b)";
  EXPECT_EQ(Take(Of(all), &completion), expected);
  ParsedCompletion by_token = Make({});
  std::string reasoning, content;
  for (const TokenId token : all) {
    for (const OutputDelta& delta : by_token.Take(Of({token}))) {
      (delta.kind == OutputKind::kReasoning ? reasoning : content) += delta.text;
    }
  }
  EXPECT_EQ("R(" + reasoning + ")C(" + content + ")", expected);
  EXPECT_EQ(by_token.released_tokens(), all.size());
  // A marker that turns out to be none is no text either.
  EXPECT_EQ(Take(Of({call_, 'x', end_call_, 'y'}), &completion), "C(xy)");
}

TEST_F(ParsedCompletionTest, ControlTokensAreTextWhereTheyAreWanted) {
  ParsedCompletion completion(tokenizer_.get(), {}, OutputParser::Make(OutputFormat::kHermesJson, {}, nullptr),
                              /*render_control=*/true);
  EXPECT_EQ(Take(Of({think_, 'a', end_think_, start_, 'b'}), &completion), "R(a)C(<|im_start|>b)");
}

TEST_F(ParsedCompletionTest, StopStringsAreSoughtInContentAlone) {
  ParsedCompletion completion = Make({"END"});
  EXPECT_EQ(Take(Of({think_}), &completion), "");
  EXPECT_EQ(Take(Of(Bytes("END END")), &completion), "R(END END)");
  EXPECT_EQ(Take(Of({end_think_}), &completion), "");
  EXPECT_EQ(Take(Of({call_}), &completion), "");
  EXPECT_EQ(Take(Of(Bytes(R"({"name": "f", "arguments": {"a": "END"}})")), &completion), "");
  EXPECT_EQ(Take(Of({end_call_}), &completion), R"(N(f)A({"a": "END"})E())");
  EXPECT_EQ(Take(Of(Bytes("the E")), &completion), "C(the )");
  EXPECT_EQ(Take(Of(Bytes("ND of")), &completion), "");
  EXPECT_TRUE(completion.stopped_by_text());
  EXPECT_EQ(completion.stop_string(), "END");
  EXPECT_EQ(completion.finish_reason(), "stop");
  EXPECT_EQ(Take(Of(Bytes("more")), &completion), "");
}

TEST_F(ParsedCompletionTest, AStopStringDoesNotReachOverACall) {
  ParsedCompletion completion = Make({"AB"});
  EXPECT_EQ(Take(Of(Bytes("A")), &completion), "");
  std::vector<TokenId> call = Bytes("{\"name\": \"f\"}");
  call.insert(call.begin(), call_);
  call.push_back(end_call_);
  EXPECT_EQ(Take(Of(call), &completion), "C(A)N(f)A({})E()");
  EXPECT_EQ(Take(Of(Bytes("B")), &completion), "C(B)");
  EXPECT_FALSE(completion.finished());
}

TEST_F(ParsedCompletionTest, ATokenIsReleasedWithTheLastByteOfItsText) {
  ParsedCompletion completion = Make({"stop"});
  Take(Of({think_}), &completion);
  EXPECT_EQ(completion.released_tokens(), 1);
  Take(Of(Bytes("a\xC3")), &completion);
  EXPECT_EQ(completion.released_tokens(), 2);
  Take(Of(Bytes("\xA9</")), &completion);
  EXPECT_EQ(completion.released_tokens(), 4);
  Take(Of(Bytes("think>b")), &completion);
  EXPECT_EQ(completion.released_tokens(), 13);
  Take(Of(Bytes("sto")), &completion);
  EXPECT_EQ(completion.released_tokens(), 13);
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_LENGTH), &completion), "C(sto)");
  EXPECT_EQ(completion.released_tokens(), 16);
  EXPECT_EQ(completion.tokens().size(), 16);
  const std::vector<int64_t> offsets(completion.text_offsets().begin(), completion.text_offsets().begin() + 5);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 7, 8, 8, 9}));
  EXPECT_EQ(completion.finish_reason(), "length");
}

TEST_F(ParsedCompletionTest, WhatIsHeldBackComesAtTheEnd) {
  ParsedCompletion completion = Make({"<tool_box"});
  EXPECT_EQ(Take(Of(Bytes("a <tool_")), &completion), "C(a)");
  const std::vector<OutputDelta> rest = completion.Abandon();
  ASSERT_EQ(rest.size(), 1);
  EXPECT_EQ(rest[0].text, " <tool_");
  EXPECT_EQ(completion.finish_reason(), "cancelled");
  EXPECT_TRUE(completion.Abandon().empty());
}

TEST_F(ParsedCompletionTest, AStopStringMayBeCompletedByTheEnd) {
  ParsedCompletion completion = Make({"<tool"});
  EXPECT_EQ(Take(Of(Bytes("a <tool")), &completion), "C(a)");
  EXPECT_FALSE(completion.finished());
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_LENGTH), &completion), "C( )");
  EXPECT_EQ(completion.finish_reason(), "stop");
}

TEST_F(ParsedCompletionTest, ARequestThatFailedSaysWhy) {
  ParsedCompletion completion = Make({});
  SessionEvent event = End(pb::RequestFinished::REASON_FAILED);
  event.finished->set_error("a stage died");
  Take(event, &completion);
  EXPECT_TRUE(completion.failed());
  EXPECT_EQ(completion.rejection(), "a stage died");
  EXPECT_EQ(completion.finish_reason(), "cancelled");
}

}  // namespace
}  // namespace stagecoach
