// Answers in the form of Messages, of a toy that thinks and calls tools.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/serve/api/batch_line.h"
#include "coordinator/serve/api/dialects/messages.h"
#include "coordinator/serve/api/dialects/messages_writer.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

using Reason = pb::RequestFinished;

// chatml, with tools, calls and reasoning as Hermes and Qwen write them.
constexpr char kThinkingToolTemplate[] = R"(
{%- if tools -%}{{- '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' -}}{%- endif -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\n' -}}
  {%- if m.reasoning_content -%}{{- '<think>' + m.reasoning_content + '</think>' -}}{%- endif -%}
  {{- m.content or '' -}}
  {%- for c in m.tool_calls or [] -%}
    {{- '<tool_call>{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) -}}
    {{- '}</tool_call>' -}}
  {%- endfor -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

struct MessagesAnswer : ToyServiceTest {
  MessagesAnswer() {
    ChatTemplateChoice choice;
    choice.given = ChatTemplateSource{.name = "with tools", .text = kThinkingToolTemplate};
    format = std::make_unique<ChatFormat>(choice, GgufMetadata(), service.tokenizer.get());
    service.model.chat = format.get();
    service.model.output_format = service.model.tool_format = OutputFormat::kHermesJson;
    service.context.context_tokens = 4000;
    service.context.request_id = "req9";
  }

  // A question with further fields; with room for 50 tokens unless they say otherwise.
  PreparedCall Ask(const std::string& fields) const {
    return service.Prepare(kMessagesApi,
                           absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"}])",
                                        absl::StrContains(fields, "max_tokens") ? "" : R"(,"max_tokens":50)",
                                        fields.empty() ? "" : ",", fields, "}"));
  }
  Json Body(const std::string& fields, const std::vector<TokenId>& tokens, Reason::Reason reason) const {
    return Whole(Ask(fields), tokens, reason);
  }
  std::string Stream(const std::string& fields, const std::vector<TokenId>& tokens, Reason::Reason reason,
                     bool at_once = false) const {
    const PreparedCall prepared = Ask(absl::StrCat(R"("stream":true)", fields.empty() ? "" : ",", fields));
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    return prepared.error.has_value() ? "" : Answer(prepared.call.get(), tokens, reason, at_once);
  }

  std::unique_ptr<ChatFormat> format;
};

std::vector<TokenId> SaidTokens(const std::string& text) {
  std::vector<TokenId> tokens = Bytes(text);
  tokens.push_back(kImEnd);
  return tokens;
}

std::vector<TokenId> ThoughtTokens(const std::string& thought, const std::string& text) {
  std::vector<TokenId> tokens = {kThink};
  for (const TokenId token : Bytes(thought)) tokens.push_back(token);
  tokens.push_back(kEndThink);
  for (const TokenId token : SaidTokens(text)) tokens.push_back(token);
  return tokens;
}

constexpr char kTwoSchemaTools[] =
    R"("tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}},)"
    R"({"name":"g"}])";
constexpr char kTwoCalls[] =
    "Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

std::string ToolId(size_t index) { return MakeCallId("toolu_", "id7", 0, index); }

// An event; `members`: those behind its type.
std::string MessagesEventOf(const std::string& type, const std::string& members = "") {
  return absl::StrCat("event: ", type, "\ndata: {\"type\":\"", type, "\"", members.empty() ? "" : ",", members,
                      "}\n\n");
}

std::string MessageStart(int64_t prompt_tokens) {
  return MessagesEventOf(
      "message_start",
      absl::StrCat(R"("message":{"id":"msg_id7","type":"message","role":"assistant","model":"toy",)"
                   R"("content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,)"
                   R"("container":null,"usage":{"input_tokens":)",
                   prompt_tokens,
                   R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}})"));
}

std::string BlockStart(int index, const std::string& block) {
  return MessagesEventOf("content_block_start", absl::StrCat("\"index\":", index, ",\"content_block\":{", block, "}"));
}
std::string BlockDelta(int index, const std::string& type, const std::string& member, const std::string& text) {
  return MessagesEventOf("content_block_delta", absl::StrCat("\"index\":", index, R"(,"delta":{"type":")", type,
                                                             R"(",")", member, "\":", JsonString(text), "}"));
}
std::string BlockStop(int index) { return MessagesEventOf("content_block_stop", absl::StrCat("\"index\":", index)); }

std::string MessageEnd(const std::string& reason, const std::string& stop, int64_t prompt_tokens,
                       int64_t output_tokens) {
  return MessagesEventOf(
             "message_delta",
             absl::StrCat(R"("delta":{"stop_reason":")", reason, R"(","stop_sequence":)", stop,
                          R"(,"stop_details":null,"container":null},"usage":{"input_tokens":)", prompt_tokens,
                          R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":)",
                          output_tokens, "}")) +
         MessagesEventOf("message_stop");
}

constexpr char kTextBlock[] = R"("type":"text","text":"","citations":null)";
constexpr char kThinkingBlock[] = R"("type":"thinking","thinking":"","signature":"")";

TEST_F(MessagesAnswer, IsTheBodyThatClientsKnow) {
  const PreparedCall prepared = Ask("");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_FALSE(prepared.call->streams());
  EXPECT_EQ(Answer(prepared.call.get(), ThoughtTokens("hm", "Yes"), Reason::REASON_STOP),
            R"({"id":"msg_id7","type":"message","role":"assistant","model":"toy","content":[)"
            R"({"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Yes","citations":null}],)"
            R"("stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"container":null,)"
            R"("usage":{"input_tokens":21,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,)"
            R"("output_tokens":8}})");
}

TEST_F(MessagesAnswer, IsAStreamOfEventsInTheOrderThatClientsKnow) {
  EXPECT_EQ(Stream("", SaidTokens("No"), Reason::REASON_STOP),
            MessageStart(21) + BlockStart(0, kTextBlock) + BlockDelta(0, "text_delta", "text", "N") +
                BlockDelta(0, "text_delta", "text", "o") + BlockStop(0) + MessageEnd("end_turn", "null", 21, 3));
}

TEST_F(MessagesAnswer, StreamsWhatWasThoughtInABlockOfItsOwn) {
  EXPECT_EQ(Stream("", ThoughtTokens("hm", "ok"), Reason::REASON_STOP, /*at_once=*/true),
            MessageStart(21) + BlockStart(0, kThinkingBlock) + BlockDelta(0, "thinking_delta", "thinking", "hm") +
                BlockDelta(0, "signature_delta", "signature", "") + BlockStop(0) + BlockStart(1, kTextBlock) +
                BlockDelta(1, "text_delta", "text", "ok") + BlockStop(1) + MessageEnd("end_turn", "null", 21, 7));
}

TEST_F(MessagesAnswer, StreamsEachCallInABlockOfItsOwn) {
  const PreparedCall counted = Ask(kTwoSchemaTools);
  ASSERT_FALSE(counted.error.has_value()) << counted.error->message;
  const int64_t prompt = counted.call->usage().prompt_tokens;
  const auto tokens = SaidTokens(kTwoCalls);
  const auto call = [](int index, const char* name) {
    return absl::StrCat(R"("type":"tool_use","id":")", ToolId(static_cast<size_t>(index) - 1), R"(","name":")", name,
                        R"(","input":{})");
  };
  EXPECT_EQ(
      Stream(absl::StrCat(kTwoSchemaTools, R"(,"max_tokens":500)"), tokens, Reason::REASON_STOP, /*at_once=*/true),
      MessageStart(prompt) + BlockStart(0, kTextBlock) + BlockDelta(0, "text_delta", "text", "Look.") + BlockStop(0) +
          BlockStart(1, call(1, "f")) + BlockDelta(1, "input_json_delta", "partial_json", "{\"a\": 1}") + BlockStop(1) +
          BlockStart(2, call(2, "g")) + BlockDelta(2, "input_json_delta", "partial_json", "{}") + BlockStop(2) +
          MessageEnd("tool_use", "null", prompt, static_cast<int64_t>(tokens.size())));
  EXPECT_NE(ToolId(0), ToolId(1));
}

TEST_F(MessagesAnswer, HasCallsWithTheirInput) {
  const std::string fields = absl::StrCat(kTwoSchemaTools, R"(,"max_tokens":500)");
  const Json body = Body(fields, SaidTokens(kTwoCalls), Reason::REASON_STOP);
  EXPECT_EQ(CompactJson(body["content"]),
            absl::StrCat(R"([{"type":"text","text":"Look.","citations":null},{"type":"tool_use","id":")", ToolId(0),
                         R"(","name":"f","input":{"a":1}},{"type":"tool_use","id":")", ToolId(1),
                         R"(","name":"g","input":{}}])"));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  const Json one = Body(fields + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})",
                        SaidTokens(kTwoCalls), Reason::REASON_STOP);
  EXPECT_EQ(one["content"].size(), 2u) << one;
  EXPECT_EQ(one["stop_reason"], "tool_use");
  const Json none = Body(fields + R"(,"tool_choice":{"type":"none"})", SaidTokens(kTwoCalls), Reason::REASON_STOP);
  EXPECT_EQ(none["content"].size(), 1u) << "without tools the text of a call is text";
  EXPECT_EQ(none["stop_reason"], "end_turn");
  const Json twice =
      Body(fields, SaidTokens("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>"),
           Reason::REASON_STOP);
  EXPECT_EQ(twice["content"][0]["input"], (Json{{"a", 2}})) << "as clients read it in a stream";
}

TEST_F(MessagesAnswer, SaysWhyItStopped) {
  EXPECT_EQ(Stream(R"("stop_sequences":["lo w","never"])", Bytes("Hello world"), Reason::REASON_LENGTH, true),
            MessageStart(21) + BlockStart(0, kTextBlock) + BlockDelta(0, "text_delta", "text", "Hel") + BlockStop(0) +
                MessageEnd("stop_sequence", "\"lo w\"", 21, 7));
  EXPECT_EQ(Stream(R"("max_tokens":2)", Bytes("No"), Reason::REASON_LENGTH, true),
            MessageStart(21) + BlockStart(0, kTextBlock) + BlockDelta(0, "text_delta", "text", "No") + BlockStop(0) +
                MessageEnd("max_tokens", "null", 21, 2));
  const Json stopped = Body(R"("stop_sequences":["lo w"])", Bytes("Hello world"), Reason::REASON_LENGTH);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "lo w");
  const Json marked =
      Body(R"("stop_sequences":["<|im_start|>","<|im_end|>"])", {'N', 'o', kImStart}, Reason::REASON_STOP);
  EXPECT_EQ(marked["content"][0]["text"], "No");
  EXPECT_EQ(marked["stop_reason"], "stop_sequence") << "of a control token";
  EXPECT_EQ(marked["stop_sequence"], "<|im_start|>");
  EXPECT_EQ(Body(R"("stop_sequences":["<|im_end|>"])", SaidTokens("No"), Reason::REASON_STOP)["stop_reason"],
            "end_turn")
      << "where the model ends anyway";
  EXPECT_EQ(Body("", SaidTokens(""), Reason::REASON_STOP)["content"], Json::array());
  EXPECT_EQ(Body("", Bytes("Hel"), Reason::REASON_CANCELLED)["stop_reason"], "max_tokens");
  service.context.context_tokens = 24;  // 21 are the prompt's
  EXPECT_EQ(Body(R"("max_tokens":32000)", Bytes("Hey"), Reason::REASON_LENGTH)["stop_reason"],
            "model_context_window_exceeded");
  EXPECT_EQ(Body(R"("max_tokens":2)", Bytes("He"), Reason::REASON_LENGTH)["stop_reason"], "max_tokens");
}

// A stream as Anthropic's client puts it together.
Json AccumulatedMessage(const std::string& bytes) {
  Json message;
  std::string input;
  for (absl::string_view text : absl::StrSplit(bytes, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    EXPECT_EQ(lines.size(), 2u) << text;
    const Json event = Json::parse(lines.back().substr(6));
    const std::string type = event["type"];
    EXPECT_EQ(lines[0], "event: " + type);
    if (type == "message_start") message = event["message"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      input.clear();
    }
    if (type == "content_block_delta" || type == "content_block_stop") {
      EXPECT_EQ(event["index"].get<size_t>() + 1, message["content"].size()) << "one is open at a time";
    }
    if (type == "content_block_delta") {
      const Json& delta = event["delta"];
      Json& block = message["content"].back();
      for (const char* member : {"text", "thinking", "signature"}) {
        if (delta.contains(member)) block[member] = block[member].get<std::string>() + delta[member].get<std::string>();
      }
      if (delta.contains("partial_json")) input += delta["partial_json"].get<std::string>();
      if (!input.empty()) block["input"] = Json::parse(input, nullptr, /*allow_exceptions=*/false);
    }
    if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
    }
  }
  return message;
}

TEST_F(MessagesAnswer, IsTheSameAsAStreamAndWholeAndHoweverEventsAreCut) {
  const std::string tools = absl::StrCat(kTwoSchemaTools, R"(,"max_tokens":500)");
  struct Case {
    const char* name;
    std::string fields;
    std::vector<TokenId> tokens;
    Reason::Reason end;
  };
  for (const Case& one : std::vector<Case>{
           {"text", "", SaidTokens("Hello"), Reason::REASON_STOP},
           {"cut", "", Bytes("Hello"), Reason::REASON_LENGTH},
           {"nothing", "", SaidTokens(""), Reason::REASON_STOP},
           {"stop", R"("stop_sequences":["lo w"])", Bytes("Hello world"), Reason::REASON_LENGTH},
           {"thought", "", ThoughtTokens("hm\n\nso", "\n\nok"), Reason::REASON_STOP},
           {"only thought", "", {kThink, 'h', 'm'}, Reason::REASON_LENGTH},
           {"calls", tools, SaidTokens(kTwoCalls), Reason::REASON_STOP},
           {"thought and calls", tools, ThoughtTokens("hm", kTwoCalls), Reason::REASON_STOP},
           {"no call", tools, SaidTokens("Look.\n<tool_call>\n{\"name\": 7}\n</tool_call>"), Reason::REASON_STOP},
           {"characters", "", SaidTokens("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"), Reason::REASON_STOP},
           {"half a character", "", Bytes("a\xE2\x82"), Reason::REASON_LENGTH}}) {
    const Json body = Body(one.fields, one.tokens, one.end);
    EXPECT_EQ(AccumulatedMessage(Stream(one.fields, one.tokens, one.end)), body) << one.name;
    EXPECT_EQ(AccumulatedMessage(Stream(one.fields, one.tokens, one.end, /*at_once=*/true)), body) << one.name;
  }
}

TEST_F(MessagesAnswer, TellsCachedTokensApart) {
  SessionEvent end = Then(Tokens(SaidTokens("No")), Finished(Reason::REASON_STOP));
  end.finished->mutable_cost()->set_cached_tokens(16);
  const PreparedCall whole = Ask("");
  const Json usage = Json::parse(whole.call->Take(0, end).bytes)["usage"];
  EXPECT_EQ(usage["input_tokens"], 5);
  EXPECT_EQ(usage["cache_read_input_tokens"], 16);
  EXPECT_EQ(usage["output_tokens"], 3);
  const PreparedCall stream = Ask(R"("stream":true)");
  const std::string bytes = stream.call->Begin().bytes;
  EXPECT_EQ(bytes, MessageStart(21)) << "nobody knows yet";
  EXPECT_EQ(AccumulatedMessage(bytes + stream.call->Take(0, end).bytes)["usage"], usage);
}

TEST_F(MessagesAnswer, StreamsArgumentsWhileTheModelWritesThem) {
  const std::string fields = absl::StrCat(kTwoSchemaTools, R"(,"max_tokens":900)");
  const std::string written = "{\"b\": \"" + std::string(600, 'x');
  const std::vector<TokenId> tokens = Bytes("<tool_call>\n{\"name\": \"f\", \"arguments\": " + written);
  const std::string stream = Stream(fields, tokens, Reason::REASON_LENGTH);
  std::string said;
  int deltas = 0;
  for (const absl::string_view event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const Json json = Json::parse(event.begin() + event.find("data: ") + 6, event.end());
    if (json["type"] != "content_block_delta") continue;
    said += json["delta"]["partial_json"].get<std::string>();
    ++deltas;
  }
  EXPECT_EQ(said, written) << "all that there is of a call that was cut";
  EXPECT_GT(deltas, 100);
  EXPECT_EQ(AccumulatedMessage(stream)["stop_reason"], "max_tokens");
  const Json body = Body(fields, tokens, Reason::REASON_LENGTH);
  EXPECT_EQ(body["stop_reason"], "max_tokens");
  EXPECT_EQ(body["content"][0]["name"], "f");
  EXPECT_EQ(body["content"][0]["input"], Json::object()) << "that is no object yet";
}

TEST_F(MessagesAnswer, EndsWithAnErrorWhereItCannotGoOn) {
  const PreparedCall stream = Ask(R"("stream":true)"), whole = Ask("");
  stream.call->Begin();
  stream.call->Take(0, Text("He"));
  const ApiCall::Output failed = stream.call->Take(0, Finished(Reason::REASON_FAILED, "no finite logits"));
  EXPECT_TRUE(failed.ended);
  EXPECT_EQ(
      failed.bytes,
      MessagesEventOf("error", R"("error":{"type":"api_error","message":"no finite logits"},"request_id":"req9")"));
  EXPECT_EQ(stream.call->Take(0, Text("more")).bytes, "");
  const ApiCall::Output lost = whole.call->Fail(MakeApiError(ApiErrorCode::kStagesLost, "gone"));
  EXPECT_EQ(lost.bytes, R"({"type":"error","error":{"type":"overloaded_error","message":"gone"},"request_id":"req9"})");
  EXPECT_EQ(lost.error->status, 503);
}

TEST(MessagesErrors, HaveAnthropicsWords) {
  for (const auto& [kind, type] : std::initializer_list<std::pair<ApiErrorKind, const char*>>{
           {ApiErrorCode::kInvalidValue, "invalid_request_error"},
           {ApiErrorCode::kContextLengthExceeded, "invalid_request_error"},
           {ApiErrorCode::kInvalidApiKey, "authentication_error"},
           {ApiErrorCode::kNotOwner, "permission_error"},
           {ApiErrorCode::kModelNotFound, "not_found_error"},
           {ApiErrorCode::kTooLarge, "invalid_request_error"},
           {ApiErrorCode::kQueueFull, "rate_limit_error"},
           {ApiErrorCode::kInternal, "api_error"},
           {ApiErrorCode::kNotSupported, "invalid_request_error"},
           {ApiErrorCode::kLoading, "overloaded_error"},
           {ApiErrorCode::kQueueTimeout, "timeout_error"}}) {
    EXPECT_EQ(MessagesErrorBody(MakeApiError(kind, "why"), "r1"),
              absl::StrCat(R"({"type":"error","error":{"type":")", type, R"(","message":"why"},"request_id":"r1"})"));
  }
}

TEST_F(MessagesAnswer, SaysEventsThatClientsKnowWhereItHasNothingToSay) {
  EXPECT_EQ(std::string(kMessagesApi.ping), MessagesEventOf("ping"));
  const PreparedCall prepared = Ask(R"("stream":true)");
  prepared.call->Begin();
  EXPECT_EQ(prepared.call->Take(0, Tokens({kImStart})).bytes, "") << "a token without a text";
  EXPECT_EQ(prepared.call->Idle().bytes, "");
}

struct WrongMessagesCall {
  const char* fields;
  const char* code;
  const char* param;
};

TEST_F(MessagesAnswer, IsRefusedWithTheFieldThatIsWrong) {
  EXPECT_EQ(service.Prepare(kMessagesApi, R"({"messages":[{"role":"user","content":"Hi"}]})").error->param,
            "max_tokens");
  service.model.any_name = false;
  for (const WrongMessagesCall& wrong :
       std::initializer_list<WrongMessagesCall>{{R"("max_tokens":0)", "invalid_value", "max_tokens"},
                                                {R"("max_tokens":"9")", "invalid_value", "max_tokens"},
                                                {R"("model":"other")", "model_not_found", "model"},
                                                {R"("temperature":3)", "invalid_value", "temperature"},
                                                {R"("chat_template":"x")", "unsupported_parameter", "chat_template"},
                                                {R"("top_k":-2)", "invalid_value", "top_k"},
                                                {R"("stop_sequences":[""])", "invalid_value", "stop_sequences"},
                                                {R"("stop_sequences":7)", "invalid_value", "stop_sequences"},
                                                {R"("messages_":1,"system":7)", "invalid_value", "system"}}) {
    const PreparedCall prepared = Ask(wrong.fields);
    ASSERT_TRUE(prepared.error.has_value()) << wrong.fields;
    EXPECT_EQ(prepared.error->code, wrong.code) << wrong.fields;
    EXPECT_EQ(prepared.error->param, wrong.param) << prepared.error->message;
  }
  service.context.context_tokens = 21;
  EXPECT_EQ(Ask("").error->message, "prompt is too long: 21 tokens > 20 maximum");
}

TEST_F(MessagesAnswer, IgnoresWhatItsApiDoesNotHave) {
  const PreparedCall prepared =
      Ask(R"("frequency_penalty":9,"stop":"x","n":2,"metadata":{"user_id":"u"},"context_management":{},)"
          R"("cache_control":{},"betas":[],"thinking":{"type":"enabled","budget_tokens":9},)"
          R"("tools":[{"type":"web_search_20250305","name":"web_search"}])");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_EQ(prepared.call->choices(), 1u);
  for (const char* name : {"frequency_penalty", "stop", "n", "context_management", "thinking.budget_tokens"}) {
    EXPECT_THAT(prepared.call->ignored(), ::testing::Contains(name));
  }
  EXPECT_THAT(prepared.call->skipped(), ElementsAre("tools.web_search_20250305"));
}

// The same conversation by chat completions and by Messages: field for field the same request to the engine.
TEST_F(MessagesAnswer, IsMadeOfTheSameTokensAsThatOfChatCompletions) {
  const std::pair<const char*, const char*> pairs[] = {
      {R"("messages":[{"role":"user","content":"Hi"}])", R"("messages":[{"role":"user","content":"Hi"}])"},
      {R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"Hi"},)"
       R"({"role":"system","content":"late"}],"reasoning_effort":"none")",
       R"("system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"thinking":{"type":"disabled"},)"
       R"("messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"system","content":"late"}])"},
      {R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"reasoning_content":"hm",)"
       R"("tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},)"
       R"({"role":"tool","tool_call_id":"t","content":"r"}],"tools":[{"type":"function","function":)"
       R"({"name":"f","description":"d","parameters":{"type":"object"}}}],"stop":["x"])",
       R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[)"
       R"({"type":"thinking","thinking":"hm","signature":""},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},)"
       R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}],)"
       R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"stop_sequences":["x"])"},
      {R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"We"}],)"
       R"("continue_final_message":true)",
       R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"We"}])"}};
  constexpr char kSame[] = R"(,"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":7,"seed":3})";
  for (const auto& [chat, messages] : pairs) {
    const PreparedCall by_chat = service.Prepare(kChatApi, absl::StrCat("{", chat, kSame));
    const PreparedCall by_messages = service.Prepare(kMessagesApi, absl::StrCat("{", messages, kSame));
    ASSERT_FALSE(by_chat.error.has_value()) << by_chat.error->message;
    ASSERT_FALSE(by_messages.error.has_value()) << by_messages.error->message;
    const GenerationRequest expected = by_chat.call->TakeRequests()[0], request = by_messages.call->TakeRequests()[0];
    EXPECT_EQ(request.prompt, expected.prompt) << service.tokenizer->Decode(request.prompt, true);
    EXPECT_EQ(request.max_new_tokens, expected.max_new_tokens);
    EXPECT_EQ(request.stop_tokens, expected.stop_tokens);
    EXPECT_EQ(request.sampling.seed, expected.sampling.seed);
    EXPECT_EQ(request.sampling.temperature, expected.sampling.temperature);
    EXPECT_EQ(request.sampling.top_p, expected.sampling.top_p);
    EXPECT_EQ(request.sampling.top_k, expected.sampling.top_k);
  }
}

TEST_F(MessagesAnswer, IsOneOfABatchToo) {
  const auto prepared = [&](const std::string& more) {
    BatchLine line = ParseBatchLine(1, absl::StrCat(R"({"custom_id":"a","url":"/v1/messages","body":{"max_tokens":9,)",
                                                    more, R"("messages":[{"role":"user","content":"Hi"}]}})"));
    PrepareBatchLine(service.model, service.context, &line);
    return line;
  };
  const BatchLine line = prepared(R"("metadata":{},"context_management":{},)");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  const Json body = Json::parse(Answer(line.call.get(), SaidTokens("Yes"), Reason::REASON_STOP));
  EXPECT_EQ(body["content"][0]["text"], "Yes");
  EXPECT_THAT(prepared(R"("frequency_penalty":1,)").error->message, HasSubstr("'frequency_penalty'"));
}

TEST_F(MessagesAnswer, ContinuesWhatTheAssistantBegan) {
  const PreparedCall prepared = service.Prepare(
      kMessagesApi,
      R"({"max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"{"}]})");
  const std::string prompt = service.tokenizer->Decode(prepared.call->TakeRequests()[0].prompt, true);
  EXPECT_THAT(prompt, ::testing::EndsWith("<|im_start|>assistant\n{"));
}

TEST_F(MessagesAnswer, HasTheTokensThatWereCountedBefore) {
  for (const std::string& fields : std::vector<std::string>{
           "", R"("system":"s")", kTwoSchemaTools,
           R"("system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"}])",
           absl::StrCat(kTwoSchemaTools, R"(,"tool_choice":{"type":"none"})"),
           R"("thinking":{"type":"enabled","budget_tokens":9})", R"("model":"any","metadata":{},"unknown":1)"}) {
    const std::string body =
        absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"}])", fields.empty() ? "" : ",", fields, "}");
    const BodyAnswer counted = CountTokensBody(body, service.model, service.context);
    ASSERT_FALSE(counted.error.has_value()) << counted.error->message;
    const Json usage = Body(fields, SaidTokens("x"), Reason::REASON_STOP)["usage"];
    EXPECT_EQ(counted.body, absl::StrCat(R"({"input_tokens":)", usage["input_tokens"].get<int64_t>(), "}")) << fields;
  }
}

TEST_F(MessagesAnswer, IsCountedBeyondTheContextUpToTwiceThat) {
  const auto count = [&](size_t letters) {
    return CountTokensBody(
        absl::StrCat(R"({"messages":[{"role":"user","content":")", std::string(letters, 'x'), R"("}]})"), service.model,
        service.context);
  };
  service.context.context_tokens = 100;
  EXPECT_EQ(count(150).body, R"({"input_tokens":169})");
  EXPECT_EQ(count(180).error->message, "prompt is too long: 199 tokens > 99 maximum, and more that were not counted");
  EXPECT_EQ(count(180).error->code, "context_length_exceeded");
  EXPECT_EQ(CountTokensBody("[", service.model, service.context).error->code, "invalid_json");
  EXPECT_EQ(CountTokensBody("{}", service.model, service.context).error->param, "messages");
  service.context.context_tokens = 0;
  EXPECT_EQ(count(180).body, R"({"input_tokens":199})") << "the model loads";
}

}  // namespace
}  // namespace stagecoach::testing
