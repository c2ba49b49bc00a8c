#include "coordinator/answer/answer.h"

#include "absl/strings/match.h"
#include "common/json/json_value.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

constexpr int32_t kControl = 3;

// Every byte is a token, and the marks are control tokens.
struct AnswerTest : ::testing::Test {
  AnswerTest() {
    testing::ToyVocabulary toy = testing::ToyBytePairs();
    think_ = toy.Add("<think>", kControl);
    end_think_ = toy.Add("</think>", kControl);
    call_ = toy.Add("<tool_call>", kControl);
    end_call_ = toy.Add("</tool_call>", kControl);
    end_ = toy.Add("<|im_end|>", kControl);
    start_ = toy.Add("<|im_start|>", kControl);
    tokenizer_ = testing::OpenOrDie(toy.File("gpt2", "qwen2"));
  }

  // Parted, with a tool f.
  Answer Make(std::vector<std::string> stops, bool one_call = false, OutputFormat format = OutputFormat::kHermesJson) {
    auto tools =
        std::make_shared<const OutputTools>(Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
    return {
        tokenizer_.get(),
        {.stops = std::move(stops), .parser = OutputParser::Make(format, {}, std::move(tools)), .one_call = one_call}};
  }
  // As it is.
  Answer Raw(std::vector<std::string> stops) { return {tokenizer_.get(), {.stops = std::move(stops)}}; }

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
  std::vector<TokenId> Call(const std::string& arguments) {
    std::vector<TokenId> tokens = Bytes(R"({"name": "f", "arguments": )" + arguments + "}");
    tokens.insert(tokens.begin(), call_);
    tokens.push_back(end_call_);
    return tokens;
  }
  static std::vector<TokenId> Bytes(const std::string& text) {
    std::vector<TokenId> tokens;
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }

  std::string Take(const SessionEvent& event, Answer* answer) {
    std::string summary;
    for (const OutputDelta& delta : answer->Take(event)) {
      summary += std::string(1, "RCNAE"[static_cast<int>(delta.kind)]) + "(" + delta.text + ")";
    }
    return summary;
  }

  TokenId think_, end_think_, call_, end_call_, end_, start_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(AnswerTest, HowEventsAreCutMakesNoDifferenceToWhichTokensAreReleased) {
  const std::vector<TokenId> tokens = {think_, 'a', end_think_, 'b', 's'};  // the last may begin the stop string
  Answer at_once = Make({"st"}), by_token = Make({"st"});
  at_once.Take(Of(tokens));
  for (const TokenId token : tokens) by_token.Take(Of({token}));
  EXPECT_EQ(by_token.released_tokens(), 4u);
  EXPECT_EQ(at_once.released_tokens(), 4u);
}

TEST_F(AnswerTest, ControlTokensArePrintedForTheParserButNotTheOneThatEndsTheAnswer) {
  Answer answer = Make({});
  EXPECT_EQ(Take(Of({think_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes("Hm.")), &answer), "R(Hm.)");
  EXPECT_EQ(Take(Of({end_think_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes("Hi")), &answer), "C(Hi)");
  EXPECT_EQ(Take(Of({call_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes("{\"name\": \"f\"}")), &answer), "N(f)A({})E()");
  EXPECT_EQ(Take(Of({end_call_}), &answer), "");
  EXPECT_EQ(Take(Of({end_}), &answer), "");
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_STOP), &answer), "");
  EXPECT_EQ(answer.finish_reason(), "tool_calls");
  EXPECT_EQ(answer.reasoning_tokens(), 3);
}

TEST_F(AnswerTest, ControlTokensThatAreNoMarkersAreDropped) {
  Answer answer = Make({});
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
  EXPECT_EQ(Take(Of(all), &answer), expected);
  Answer by_token = Make({});
  std::string reasoning, content;
  for (const TokenId token : all) {
    for (const OutputDelta& delta : by_token.Take(Of({token}))) {
      (delta.kind == OutputKind::kReasoning ? reasoning : content) += delta.text;
    }
  }
  EXPECT_EQ("R(" + reasoning + ")C(" + content + ")", expected);
  EXPECT_EQ(by_token.reasoning(), reasoning);
  EXPECT_EQ(by_token.text(), content);
  EXPECT_EQ(by_token.released_tokens(), all.size());
  // A marker that turns out to be none is no text either.
  EXPECT_EQ(Take(Of({call_, 'x', end_call_, 'y'}), &answer), "C(xy)");
}

TEST_F(AnswerTest, ControlTokensAreTextWhereTheyAreWanted) {
  Answer answer(tokenizer_.get(),
                {.parser = OutputParser::Make(OutputFormat::kHermesJson, {}, nullptr), .render_control = true});
  EXPECT_EQ(Take(Of({think_, 'a', end_think_, start_, 'b'}), &answer), "R(a)C(<|im_start|>b)");
}

TEST_F(AnswerTest, StopStringsAreSoughtInContentAlone) {
  Answer answer = Make({"END"});
  EXPECT_EQ(Take(Of({think_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes("END END")), &answer), "R(END END)");
  EXPECT_EQ(Take(Of({end_think_}), &answer), "");
  EXPECT_EQ(Take(Of({call_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes(R"({"name": "f", "arguments": {"a": "END"}})")), &answer), R"(N(f)A({"a": "END"})E())");
  EXPECT_EQ(Take(Of({end_call_}), &answer), "");
  EXPECT_EQ(Take(Of(Bytes("the E")), &answer), "C(the )");
  EXPECT_EQ(Take(Of(Bytes("ND of")), &answer), "");
  EXPECT_TRUE(answer.stopped_by_text());
  EXPECT_EQ(answer.stop_string(), "END");
  EXPECT_EQ(answer.finish_reason(), "tool_calls");
  EXPECT_EQ(Take(Of(Bytes("more")), &answer), "");
}

TEST_F(AnswerTest, AStopStringDoesNotReachOverACall) {
  Answer answer = Make({"AB"});
  EXPECT_EQ(Take(Of(Bytes("A")), &answer), "");
  std::vector<TokenId> call = Bytes("{\"name\": \"f\"}");
  call.insert(call.begin(), call_);
  call.push_back(end_call_);
  EXPECT_EQ(Take(Of(call), &answer), "C(A)N(f)A({})E()");
  EXPECT_EQ(Take(Of(Bytes("B")), &answer), "C(B)");
  EXPECT_FALSE(answer.finished());
}

TEST_F(AnswerTest, ALongCallLeavesWhileItIsWrittenAndItsTokensWithIt) {
  Answer answer = Make({});
  const std::vector<TokenId> tokens = Call(R"({"a": ")" + std::string(600, 'x') + R"(\\n"})");
  std::string arguments;
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (const OutputDelta& delta : answer.Take(Of({tokens[i]}))) {
      if (delta.kind == OutputKind::kCallArguments) arguments += delta.text;
    }
    const bool is_trial = i + std::string("<tool_call>").size() < OutputParser::kTrialBytes;
    EXPECT_EQ(arguments.empty(), is_trial) << i;
    EXPECT_LE(answer.released_tokens(), is_trial ? 0 : i + 1) << i;
    EXPECT_GE(answer.released_tokens(), is_trial ? 0 : i) << "an escape waits for its end";
  }
  EXPECT_EQ(arguments, R"({"a": ")" + std::string(600, 'x') + R"(\\n"})");
  EXPECT_EQ(answer.TakeListed().size(), tokens.size());
  EXPECT_EQ(answer.calls(), 1);
  EXPECT_FALSE(answer.ended_by_call());
}

TEST_F(AnswerTest, AnAnswerWithCallsThatCameToItsEndSaysSo) {
  const auto reason = [&](const std::vector<TokenId>& tokens, pb::RequestFinished::Reason finished) {
    Answer answer = Make({});
    Take(Of(tokens), &answer);
    Take(End(finished), &answer);
    return answer.finish_reason();
  };
  EXPECT_EQ(reason(Call("{}"), pb::RequestFinished::REASON_STOP), "tool_calls");
  EXPECT_EQ(reason(Call("{}"), pb::RequestFinished::REASON_LENGTH), "length");
  EXPECT_EQ(reason(Call("{}"), pb::RequestFinished::REASON_CANCELLED), "cancelled");
  EXPECT_EQ(reason(Call("[]"), pb::RequestFinished::REASON_STOP), "stop") << "that is no call";
}

TEST_F(AnswerTest, TheTokenThatEndedAnAnswerWithCallsIsNotListed) {
  Answer answer = Make({});
  std::vector<TokenId> tokens = Call("{}");
  tokens.push_back(end_);
  Take(Of(tokens), &answer);
  Take(End(pb::RequestFinished::REASON_STOP), &answer);
  EXPECT_EQ(answer.TakeListed().size(), tokens.size() - 1);
}

TEST_F(AnswerTest, ACallThatTheLimitCutKeepsWhatHasLeft) {
  Answer answer = Make({});
  std::vector<TokenId> tokens = Call(R"({"a": ")" + std::string(300, 'x') + R"(")");
  tokens.resize(tokens.size() - 2);
  Take(Of(tokens), &answer);
  EXPECT_EQ(answer.calls(), 0);
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_LENGTH), &answer), "E()");
  EXPECT_EQ(answer.calls(), 1);
  EXPECT_EQ(answer.finish_reason(), "length");
}

TEST_F(AnswerTest, WhereOneCallIsWantedTheAnswerEndsBehindIt) {
  std::vector<TokenId> tokens = Bytes("Hm.");
  for (int calls = 0; calls < 2; ++calls) {
    const std::vector<TokenId> call = Call("{}");
    tokens.insert(tokens.end(), call.begin(), call.end());
  }
  for (const size_t cut : {tokens.size(), size_t{1}}) {
    Answer answer = Make({}, /*one_call=*/true);
    std::string all;
    for (size_t i = 0; i < tokens.size(); i += cut) {
      all += Take(Of({tokens.begin() + i, tokens.begin() + i + cut}), &answer);
    }
    EXPECT_TRUE(absl::EndsWith(all, "N(f)A({})E()")) << all;
    EXPECT_EQ(answer.text(), "Hm.");
    EXPECT_EQ(answer.calls(), 1);
    EXPECT_TRUE(answer.ended_by_call());
    EXPECT_FALSE(answer.stopped_by_text());
    EXPECT_EQ(answer.finish_reason(), "tool_calls");
    EXPECT_EQ(answer.tokens().size(), 3 + Call("{}").size() - 1) << "what follows is not even counted";
    EXPECT_EQ(answer.TakeListed().size(), answer.tokens().size());
    EXPECT_EQ(Take(End(pb::RequestFinished::REASON_CANCELLED), &answer), "");
    EXPECT_EQ(answer.finish_reason(), "tool_calls");
  }
}

TEST_F(AnswerTest, WhereOneCallIsWantedAListOfThemEndsBehindTheFirst) {
  Answer answer = Make({}, /*one_call=*/true, OutputFormat::kMistralV3);
  EXPECT_EQ(Take(Of(Bytes(R"([TOOL_CALLS][{"name": "f"}, {"name": "f"}])")), &answer), "N(f)A({})E()");
  EXPECT_EQ(answer.calls(), 1);
}

TEST_F(AnswerTest, ACallThatOnlyTheEndCompletesEndsAsTheAnswerDid) {
  for (const auto reason : {pb::RequestFinished::REASON_STOP, pb::RequestFinished::REASON_LENGTH}) {
    Answer answer = Make({}, /*one_call=*/true, OutputFormat::kLlama3Json);
    std::vector<TokenId> tokens = Bytes(R"({"name": "f", "parameters": {}})");
    const bool is_stop = reason == pb::RequestFinished::REASON_STOP;
    if (is_stop) tokens.push_back(end_);
    EXPECT_EQ(Take(Of(tokens), &answer), "");
    EXPECT_EQ(Take(End(reason), &answer), "N(f)A({})E()");
    EXPECT_EQ(answer.finish_reason(), is_stop ? "tool_calls" : "length");
    EXPECT_EQ(answer.TakeListed().size(), is_stop ? tokens.size() - 1 : tokens.size());
  }
}

TEST_F(AnswerTest, ATokenIsReleasedWithTheLastByteOfItsText) {
  Answer answer = Make({"stop"});
  Take(Of({think_}), &answer);
  EXPECT_EQ(answer.released_tokens(), 1);
  Take(Of(Bytes("a\xC3")), &answer);
  EXPECT_EQ(answer.released_tokens(), 2);
  Take(Of(Bytes("\xA9</")), &answer);
  EXPECT_EQ(answer.released_tokens(), 4);
  Take(Of(Bytes("think>b")), &answer);
  EXPECT_EQ(answer.released_tokens(), 13);
  Take(Of(Bytes("sto")), &answer);
  EXPECT_EQ(answer.released_tokens(), 13);
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_LENGTH), &answer), "C(sto)");
  EXPECT_EQ(answer.released_tokens(), 16);
  EXPECT_EQ(answer.tokens().size(), 16);
  const std::vector<int64_t> offsets(answer.text_offsets().begin(), answer.text_offsets().begin() + 5);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 7, 8, 8, 9}));
  EXPECT_EQ(answer.finish_reason(), "length");
}

TEST_F(AnswerTest, WhiteSpaceBeforeACallHoldsBackNoTokenOfIt) {
  Answer answer = Make({}, /*one_call=*/false, OutputFormat::kMistralArgs);
  const std::string text = "Hi.\n", call = "[TOOL_CALLS]f[ARGS]{}";
  for (const TokenId token : Bytes(text + call)) Take(Of({token}), &answer);
  EXPECT_EQ(answer.released_tokens(), text.size() + call.size());
  EXPECT_EQ(Take(Of(Bytes("Bye.")), &answer), "C(\nBye.)");
  const std::vector<ListedToken> listed = answer.TakeListed();
  ASSERT_EQ(listed.size(), text.size() + call.size() + 4);
  for (size_t i = 0; i < listed.size(); ++i) {
    EXPECT_EQ(listed[i].part, i < text.size() ? 0u : i < text.size() + call.size() ? 1u : 2u) << i;
  }
}

TEST_F(AnswerTest, WhatIsHeldBackComesAtTheEnd) {
  Answer answer = Make({"<tool_box"});
  EXPECT_EQ(Take(Of(Bytes("a <tool_")), &answer), "C(a)");
  const std::vector<OutputDelta> rest = answer.Abandon();
  ASSERT_EQ(rest.size(), 1);
  EXPECT_EQ(rest[0].text, " <tool_");
  EXPECT_EQ(answer.finish_reason(), "cancelled");
  EXPECT_TRUE(answer.Abandon().empty());
}

TEST_F(AnswerTest, AStopStringMayBeCompletedByTheEnd) {
  Answer answer = Make({"<tool"});
  EXPECT_EQ(Take(Of(Bytes("a <tool")), &answer), "C(a)");
  EXPECT_FALSE(answer.finished());
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_LENGTH), &answer), "C( )");
  EXPECT_EQ(answer.finish_reason(), "stop");
}

TEST_F(AnswerTest, WithoutAParserAllIsContent) {
  Answer answer = Raw({});
  EXPECT_EQ(Take(Of({think_, 'h', 'm', end_think_, 'N', 'o'}), &answer), "C(hmNo)");
  EXPECT_EQ(Take(Of({end_}), &answer), "");
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_STOP), &answer), "");
  EXPECT_EQ(answer.text(), "hmNo");
  EXPECT_EQ(answer.reasoning(), "");
  EXPECT_EQ(answer.finish_reason(), "stop");
  EXPECT_EQ(answer.tokens().size(), 7u);
  EXPECT_EQ(answer.tokens().back().token, end_) << "never printed, but listed";
}

TEST_F(AnswerTest, EndsBeforeAStopStringAndAfterItIgnoresEverything) {
  Answer answer = Raw({" king"});
  for (const TokenId token : Bytes("the king of")) Take(Of({token}), &answer);
  EXPECT_EQ(answer.text(), "the");
  EXPECT_TRUE(answer.stopped_by_text());
  EXPECT_EQ(answer.finish_reason(), "stop");
  EXPECT_EQ(answer.tokens().size(), 8u) << "what follows is not even counted";
  EXPECT_EQ(Take(End(pb::RequestFinished::REASON_CANCELLED), &answer), "");
  EXPECT_EQ(answer.finish_reason(), "stop");
}

TEST_F(AnswerTest, WithoutAParserTooWhatIsHeldBackComesAtTheEnd) {
  Answer answer = Raw({"kingdom"});
  EXPECT_EQ(Take(Of(Bytes("a king")), &answer), "C(a )");
  ASSERT_EQ(answer.Abandon().size(), 1u);
  EXPECT_EQ(answer.text(), "a king");
  EXPECT_EQ(answer.finish_reason(), "cancelled");
}

TEST_F(AnswerTest, ARequestThatWasRejectedOrFailedSaysWhy) {
  for (const auto reason : {pb::RequestFinished::REASON_REJECTED, pb::RequestFinished::REASON_FAILED}) {
    Answer answer = Make({});
    SessionEvent event = End(reason);
    event.finished->set_error("needs 9 blocks, the pool has 8");
    EXPECT_EQ(Take(event, &answer), "");
    EXPECT_EQ(answer.failed(), reason == pb::RequestFinished::REASON_FAILED);
    EXPECT_EQ(answer.rejection(), "needs 9 blocks, the pool has 8");
    EXPECT_EQ(answer.finish_reason(), "cancelled");
  }
}

}  // namespace
}  // namespace stagecoach
