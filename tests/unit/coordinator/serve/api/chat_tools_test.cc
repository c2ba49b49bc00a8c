// Chat completions whose model calls tools.

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/serve/api/batch_line.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

using Reason = pb::RequestFinished;

// Tools of every kind: look, a patch that takes a text, and a member of a namespace.
constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}},)"
    R"({"type":"custom","custom":{"name":"patch"}},)"
    R"({"type":"namespace","namespace":{"name":"agents","tools":[{"type":"function","function":{"name":"send"}}]}}])";

std::string CallText(const std::string& name, const std::string& arguments) {
  return absl::StrCat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": ", arguments, "}\n</tool_call>");
}

std::vector<TokenId> EndedText(const std::string& text) {
  std::vector<TokenId> tokens = Bytes(text);
  tokens.push_back(kImEnd);
  return tokens;
}

struct ChatCalls : ToyServiceTest {
  ChatCalls()
      : format({.given = ChatTemplateSource{"tools", kToolTemplate}, .built_in = ""}, GgufMetadata(),
               service.tokenizer.get()) {
    service.model.chat = &format;
    service.model.output_format = service.model.tool_format = OutputFormat::kHermesJson;
    service.context.context_tokens = 2000;
  }

  PreparedCall Ask(const std::string& more = "") const {
    return service.Chat(absl::StrCat(kTools, more.empty() ? "" : ",", more));
  }
  // The first choice of an answer.
  Json Said(const std::string& text, const std::string& more = "") const {
    return Whole(Ask(more), EndedText(text), Reason::REASON_STOP)["choices"][0];
  }

  ChatFormat format;
};

// A message as the parts of a stream make it, checked against what clients count on.
struct JoinedMessage {
  std::string content, finish_reason;
  Json calls = Json::array(), tokens = Json::array();
};

void JoinCall(const Json& part, JoinedMessage* joined) {
  const size_t index = part["index"].get<size_t>();
  if (index == joined->calls.size()) {
    ASSERT_TRUE(part.contains("id") && part.contains("type")) << part;
    Json call = part;
    call.erase("index");
    joined->calls.push_back(std::move(call));
    return;
  }
  ASSERT_EQ(index + 1, joined->calls.size()) << "calls come one after the other";
  EXPECT_FALSE(part.contains("id") || part.contains("type")) << part;
  Json& call = joined->calls.back();
  const char* kind = part.contains("custom") ? "custom" : "function";
  const char* text = part.contains("custom") ? "input" : "arguments";
  EXPECT_EQ(part[kind].size(), 1u) << part;
  call[kind][text] = call[kind][text].get<std::string>() + part[kind][text].get<std::string>();
}

JoinedMessage JoinStream(const std::string& bytes) {
  JoinedMessage joined;
  for (const Json& event : Events(bytes)) {
    if (!event.is_object() || event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    EXPECT_TRUE(choice["delta"]["content"].is_string()) << event;
    joined.content += choice["delta"]["content"].get<std::string>();
    if (choice["delta"].contains("tool_calls")) {
      EXPECT_EQ(choice["delta"]["tool_calls"].size(), 1u);
      JoinCall(choice["delta"]["tool_calls"][0], &joined);
    }
    if (choice["logprobs"].is_object()) {
      for (const Json& token : choice["logprobs"]["content"]) joined.tokens.push_back(token);
    }
    if (!choice["finish_reason"].is_null()) joined.finish_reason = choice["finish_reason"].get<std::string>();
  }
  return joined;
}

TEST_F(ChatCalls, AreTheBodyThatClientsKnow) {
  const Json choice = Said(absl::StrCat("Let me look.\n", CallText("look", R"({"where": "here"})"), "\n",
                                        CallText("look", R"({"n": 1.50})")));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << choice;
  EXPECT_THAT(calls[0]["id"].get<std::string>(), ::testing::MatchesRegex("call_[A-Za-z0-9]{24}"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_EQ(CompactJson(choice["message"]),
            absl::StrCat(R"({"role":"assistant","content":"Let me look.","refusal":null,"tool_calls":[{"id":)",
                         CompactJson(calls[0]["id"]),
                         R"(,"type":"function","function":{"name":"look","arguments":"{\"where\": \"here\"}"}},{"id":)",
                         CompactJson(calls[1]["id"]),
                         R"(,"type":"function","function":{"name":"look","arguments":"{\"n\": 1.50}"}}]})"));
}

TEST_F(ChatCalls, HaveNullForContentWhereThereIsNone) {
  const Json message = Said(CallText("look", "{}"))["message"];
  EXPECT_EQ(message["content"], nullptr);
  EXPECT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(Said("")["message"]["content"], "") << "only beside calls";
}

TEST_F(ChatCalls, AreStreamedAsClientsPutThemTogether) {
  const PreparedCall prepared = Ask(R"("stream":true)");
  const std::vector<Json> events = Events(
      Answer(prepared.call.get(), EndedText(CallText("look", R"({"a": 1})")), Reason::REASON_STOP, /*at_once=*/true));
  ASSERT_EQ(events.size(), 5u);
  const Json& first = events[1]["choices"][0]["delta"];
  ASSERT_TRUE(first.contains("tool_calls")) << first;
  EXPECT_EQ(CompactJson(first),
            absl::StrCat(R"({"content":"","tool_calls":[{"index":0,"id":)", CompactJson(first["tool_calls"][0]["id"]),
                         R"(,"type":"function","function":{"name":"look","arguments":""}}]})"));
  EXPECT_EQ(CompactJson(events[2]["choices"][0]["delta"]),
            R"({"content":"","tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 1}"}}]})");
  EXPECT_EQ(CompactJson(events[3]["choices"][0]),
            R"({"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"tool_calls"})");
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(ChatCalls, AreTheSameAsAStreamAndWholeAndHoweverEventsAreCut) {
  const std::string call = CallText("look", absl::StrCat(R"({"text": ")", std::string(400, 'x'), R"(\n\u00e9"})"));
  struct {
    std::string text;
    Reason::Reason end;
  } const scripts[] = {
      {absl::StrCat("a ", call, call), Reason::REASON_STOP},
      {absl::StrCat(call, "\n", CallText("patch", R"({"input": "*** a\n\"b\""})"), " b"), Reason::REASON_STOP},
      {CallText("agents__send", R"({"to": [1, {}]})"), Reason::REASON_LENGTH},
      {absl::StrCat(call, "<tool_call>\n{\"name\": \"look\", \"argu"), Reason::REASON_LENGTH},
      {"<tool_call> no call </tool_call>", Reason::REASON_STOP},
      {"plain", Reason::REASON_STOP},
      {CallText("invented", "{}"), Reason::REASON_STOP},
  };
  for (const auto& script : scripts) {
    std::vector<TokenId> tokens = Bytes(script.text);
    if (script.end == Reason::REASON_STOP) tokens.push_back(kImEnd);
    const std::string fields = R"("logprobs":true,"top_logprobs":1)";
    const PreparedCall whole = Ask(fields), at_once = Ask(fields);
    const std::string body = Answer(whole.call.get(), tokens, script.end);
    EXPECT_EQ(Answer(at_once.call.get(), tokens, script.end, true), body) << script.text;
    const Json choice = Json::parse(body)["choices"][0];
    EXPECT_EQ(choice["logprobs"]["content"].size(), script.text.size()) << "every token is listed";
    const Json calls = choice["message"].value("tool_calls", Json::array());
    for (const bool merged : {false, true}) {
      const PreparedCall stream = Ask(fields + R"(,"stream":true)");
      const JoinedMessage joined = JoinStream(Answer(stream.call.get(), tokens, script.end, merged));
      EXPECT_EQ(joined.content, choice["message"]["content"].is_null() ? Json("") : choice["message"]["content"])
          << script.text;
      EXPECT_EQ(joined.calls, calls) << script.text;
      EXPECT_EQ(joined.finish_reason, choice["finish_reason"]) << script.text;
      EXPECT_EQ(joined.tokens, choice["logprobs"]["content"]) << script.text;
    }
  }
}

// The name of the call and 256 bytes: what comes from there on, comes as it is written.
TEST_F(ChatCalls, ArriveWhileTheModelWritesThem) {
  const PreparedCall prepared = Ask(R"("stream":true)");
  const std::string text = CallText("look", absl::StrCat(R"({"text": ")", std::string(1000, 'x'), "\"}"));
  std::string early = prepared.call->Begin().bytes;
  for (const TokenId token : Bytes(text.substr(0, 800))) early += prepared.call->Take(0, Tokens({token})).bytes;
  const JoinedMessage joined = JoinStream(early);
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_GT(joined.calls[0]["function"]["arguments"].get<std::string>().size(), 500u);
  EXPECT_EQ(joined.content, "");
}

TEST_F(ChatCalls, OfAToolThatTakesATextAreAnsweredAsItWasOffered) {
  const Json choice = Said(CallText("patch", R"({"input": "*** Begin\n+\"é\""})"));
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  Json call = choice["message"]["tool_calls"][0];
  call.erase("id");
  EXPECT_EQ(call, Json::parse(R"({"type":"custom","custom":{"name":"patch","input":"*** Begin\n+\"é\""}})"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(ChatCalls, OfANamespacesMemberHaveBothNamesApart) {
  const Json choice = Said(CallText("agents__send", R"({"to": 1})"));
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
            Json::parse(R"({"name":"send","namespace":"agents","arguments":"{\"to\": 1}"})"));
}

TEST_F(ChatCalls, EndAfterTheFirstWhereTheyAreNotToBeParallel) {
  const PreparedCall prepared = Ask(R"("parallel_tool_calls":false,"stream":true)");
  prepared.call->Begin();
  const ApiCall::Output output = prepared.call->Take(
      0, Text(absl::StrCat(CallText("look", R"({"a": 1})"), "\n", CallText("look", R"({"a": 2})"), "more")));
  EXPECT_TRUE(output.ended);
  EXPECT_THAT(output.cancel, ElementsAre(0)) << "the rest is of no use";
  const JoinedMessage joined = JoinStream(output.bytes);
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_EQ(joined.calls[0]["function"]["arguments"], R"({"a": 1})");
  EXPECT_EQ(joined.content, "");
  EXPECT_EQ(joined.finish_reason, "tool_calls");
  EXPECT_EQ(Said(absl::StrCat(CallText("look", "{}"), CallText("look", "{}")))["message"]["tool_calls"].size(), 2u);
}

TEST_F(ChatCalls, AreTextWhereNobodyReadsThem) {
  const std::string text = CallText("look", "{}");
  const auto expect_text = [&](const char* why, const PreparedCall& prepared) {
    const Json choice = Whole(prepared, EndedText(text), Reason::REASON_STOP)["choices"][0];
    EXPECT_EQ(choice["message"]["content"], text) << why;
    EXPECT_FALSE(choice["message"].contains("tool_calls")) << why;
    EXPECT_EQ(choice["finish_reason"], "stop") << why;
  };
  expect_text("no tools", service.Chat(""));
  expect_text("none to be called", Ask(R"("tool_choice":"none")"));
  service.model.tool_format = OutputFormat::kPlain;
  expect_text("an unknown family", Ask());
  service.model.tool_format = OutputFormat::kHermesJson;
  service.model.parse_calls = false;
  expect_text("not wanted", Ask());
}

// A mark that is a control token belongs to the text that a client is to read itself.
TEST_F(ChatCalls, ThatNobodyReadsKeepTheirMarks) {
  const std::vector<TokenId> tokens = {kImStart, 'a', kImEnd};
  const auto content = [&](const PreparedCall& prepared) {
    return Whole(prepared, tokens, Reason::REASON_STOP)["choices"][0]["message"]["content"];
  };
  EXPECT_EQ(content(Ask()), "a");
  service.model.tool_format = OutputFormat::kPlain;
  EXPECT_EQ(content(Ask()), "<|im_start|>a");
  EXPECT_EQ(content(Ask(R"("skip_special_tokens":true)")), "a");
}

TEST_F(ChatCalls, AreReadWhereReasoningIsNot) {
  service.model.reasoning.parse = false;
  std::vector<TokenId> tokens = {kThink, 'h', 'm', kEndThink};
  for (const TokenId token : EndedText(CallText("look", "{}"))) tokens.push_back(token);
  const Json choice = Whole(Ask(), tokens, Reason::REASON_STOP)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "<think>hm</think>");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
}

TEST_F(ChatCalls, OfTwoChoicesHaveIdsOfTheirOwn) {
  const PreparedCall prepared = Ask(R"("n":2)");
  prepared.call->Begin();
  const SessionEvent event = Then(Tokens(EndedText(CallText("look", "{}"))), Finished(Reason::REASON_STOP));
  prepared.call->Take(1, event);
  const Json body = Json::parse(prepared.call->Take(0, event).bytes);
  std::set<std::string> ids;
  for (const Json& choice : body["choices"]) ids.insert(choice["message"]["tool_calls"][0]["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2 * (CallText("look", "{}").size() + 1));
}

// Some models count from 0 in each turn.
TEST_F(ChatCalls, HaveTheModelsOwnIdsUnlessOthersHaveThem) {
  service.model.output_format = service.model.tool_format = OutputFormat::kMistralSmall32;
  const std::string call = "[TOOL_CALLS]look[CALL_ID]call00001[ARGS]{}";
  const Json calls = Said(call + call)["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << calls;
  const auto ends_otherwise = ::testing::MatchesRegex("call00001_[A-Za-z0-9]{24}");
  EXPECT_EQ(calls[0]["id"], "call00001");
  EXPECT_THAT(calls[1]["id"].get<std::string>(), ends_otherwise);
  const PreparedCall next = service.Prepare(
      kChatApi, absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,)",
                             R"("tool_calls":[{"id":"call00001","type":"function","function":{"name":"look"}}]},)",
                             R"({"role":"tool","tool_call_id":"call00001","content":"ok"}],)", kTools, "}"));
  const Json later = Whole(next, EndedText(call), Reason::REASON_STOP)["choices"][0]["message"]["tool_calls"];
  ASSERT_EQ(later.size(), 1u) << later;
  EXPECT_THAT(later[0]["id"].get<std::string>(), ends_otherwise);
}

TEST_F(ChatCalls, OfEarlierTurnsAreGivenToTheModelUnderItsOwnNames) {
  const auto prompt_of = [&](const std::string& calls) {
    const PreparedCall prepared = service.Prepare(
        kChatApi, absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,)",
                               R"("tool_calls":[)", calls, R"(]},{"role":"tool","tool_call_id":"c","content":"ok"}],)",
                               kTools, "}"));
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    return service.tokenizer->Decode(prepared.call->TakeRequests()[0].prompt, /*render_control=*/true);
  };
  EXPECT_THAT(prompt_of(R"({"id":"c","type":"function","function":{"name":"send","namespace":"agents",)"
                        R"("arguments":"{\"to\": 1}"}})"),
              HasSubstr("agents__send("));
  EXPECT_THAT(prompt_of(R"({"id":"c","type":"custom","custom":{"name":"patch","input":"x"}})"), HasSubstr("patch("));
  EXPECT_THAT(prompt_of(R"({"id":"c","type":"function","function":{"name":"send","namespace":"functions"}})"),
              HasSubstr("\nsend("));
}

TEST_F(ChatCalls, AreGivenInBatchesToo) {
  BatchLine line = ParseBatchLine(1, absl::StrCat(R"({"custom_id":"a","url":"/v1/chat/completions","body":{)",
                                                  R"("messages":[{"role":"user","content":"Hi"}],)", kTools, "}}"));
  PrepareBatchLine(service.model, service.context, &line);
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  const std::string body =
      Answer(line.call.get(), EndedText(CallText("look", R"({"a": 1})")), Reason::REASON_STOP, /*at_once=*/true);
  const Json choice = BatchAnswerJson("1", line, body)["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");
}

TEST_F(ChatCalls, SayWhichToolsWereSkipped) {
  const PreparedCall prepared =
      service.Chat(R"("tools":[{"type":"web_search"},{"type":"function","function":{"name":"a"}}])");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_THAT(prepared.call->skipped(), ElementsAre("tools.web_search"));
}

}  // namespace
}  // namespace stagecoach::testing
