#include "absl/strings/str_cat.h"
#include "coordinator/serve/api/conversation/chat_messages.h"
#include "coordinator/serve/api/model_bodies.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

Json MessagesOf(const std::string& json) {
  const absl::StatusOr<Json> messages = ReadMessages(Json::parse(json));
  EXPECT_EQ(messages.status().ToString(), "OK") << json;
  return messages.ok() ? *messages : Json();
}

TEST(ChatMessages, OfEveryRoleAreTaken) {
  EXPECT_EQ(CompactJson(MessagesOf(
                R"([{"role":"system","content":"s"},{"role":"developer","content":"d"},)"
                R"({"role":"user","content":"u","name":"Ann","unknown":1},)"
                R"({"role":"assistant","content":null,"reasoning":"hm","refusal":null,"audio":null,"tool_calls":[)"
                R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
                R"({"role":"tool","tool_call_id":"c1","content":"t"}])")),
            R"([{"role":"system","content":"s"},{"role":"developer","content":"d"},)"
            R"({"role":"user","content":"u","name":"Ann"},)"
            R"({"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
            R"({"role":"tool","content":"t","tool_call_id":"c1"}])");
}

TEST(ChatMessages, OfOnePartAreTheSameAsAString) {
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[{"type":"text","text":"u","cache":1}]}])"),
            MessagesOf(R"([{"role":"user","content":"u"}])"));
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            Json::parse(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"));
}

TEST(ChatMessages, WithoutContentSayNothing) {
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant"}])")[0]["content"], "");
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant","content":null,"refusal":"no"}])")[0]["content"], "no");
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])")[0]["content"], "no");
  EXPECT_EQ(MessagesOf(R"([{"role":"tool","content":null}])")[0]["content"], "");
  for (const char* nothing : {"null", R"("")", "[]", R"([{"type":"text","text":""}])"}) {
    EXPECT_EQ(MessagesOf(absl::StrCat(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}],"content":)",
                                      nothing, "}]"))[0]["content"],
              nullptr)
        << "beside calls";
  }
  EXPECT_EQ(CompactJson(MessagesOf(
                R"([{"role":"assistant","content":"","reasoning":"","tool_calls":[{"function":{"name":"f"}}]}])")),
            R"([{"role":"assistant","content":null,"tool_calls":[)"
            R"({"type":"function","function":{"name":"f","arguments":"{}"}}]}])");
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[]}])")[0]["content"], "");
}

TEST(ChatMessages, OfToolsHaveAWordInPlaceOfAnImage) {
  EXPECT_EQ(
      MessagesOf(R"([{"role":"tool","content":[{"type":"image_url","image_url":{"url":"data:"}}]}])")[0]["content"],
      "[image omitted: this model reads text only]");
}

TEST(ChatMessages, WithCallsOfOnesOwnToolsAreCallsOfFunctions) {
  EXPECT_EQ(
      CompactJson(MessagesOf(R"([{"role":"assistant","tool_calls":[)"
                             R"({"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]}])")[0]["tool_calls"]),
      R"([{"id":"a","type":"function","function":{"name":"f","arguments":"{\"input\":\"x\"}"}}])");
}

struct WrongMessages {
  const char* json;
  const char* code;
  const char* place;
};

TEST(ChatMessages, AreRefusedAtTheirPlace) {
  for (const WrongMessages& wrong : std::initializer_list<WrongMessages>{
           {"{}", "invalid_value", "messages"},
           {"[]", "invalid_value", "messages"},
           {"[7]", "invalid_value", "messages[0]"},
           {R"([{"content":"x"}])", "missing_parameter", "messages[0].role"},
           {R"([{"role":7,"content":"x"}])", "invalid_value", "messages[0].role"},
           {R"([{"role":"user","content":"x"},{"role":"poet","content":"x"}])", "invalid_value", "messages[1].role"},
           {R"([{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}])", "invalid_value",
            "messages[0].function_call"},
           {R"([{"role":"user"}])", "missing_parameter", "messages[0].content"},
           {R"([{"role":"user","content":null}])", "missing_parameter", "messages[0].content"},
           {R"([{"role":"user","content":7}])", "invalid_value", "messages[0].content"},
           {R"([{"role":"user","content":["x"]}])", "invalid_value", "messages[0].content[0]"},
           {R"([{"role":"user","content":[{}]}])", "missing_parameter", "messages[0].content[0].type"},
           {R"([{"role":"user","content":[{"type":"text"}]}])", "missing_parameter", "messages[0].content[0].text"},
           {R"([{"role":"user","content":[{"type":"text","text":7}]}])", "invalid_value",
            "messages[0].content[0].text"},
           {R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "unsupported_content",
            "messages[0].content[0].type"},
           {R"([{"role":"user","content":[{"type":"input_audio"}]}])", "unsupported_content",
            "messages[0].content[0].type"},
           {R"([{"role":"user","content":"x","name":7}])", "invalid_value", "messages[0].name"},
           {R"([{"role":"tool","content":"x","tool_call_id":7}])", "invalid_value", "messages[0].tool_call_id"},
           {R"([{"role":"assistant","tool_calls":7}])", "invalid_value", "messages[0].tool_calls"},
           {R"([{"role":"assistant","tool_calls":[7]}])", "invalid_value", "messages[0].tool_calls[0]"},
           {R"([{"role":"assistant","tool_calls":[{}]}])", "missing_parameter", "messages[0].tool_calls[0].function"},
           {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])", "missing_parameter",
            "messages[0].tool_calls[0].function.name"},
           {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}])", "invalid_value",
            "messages[0].tool_calls[0].function.arguments"}}) {
    const absl::StatusOr<Json> messages = ReadMessages(Json::parse(wrong.json));
    ASSERT_FALSE(messages.ok()) << wrong.json;
    const ApiError error = ApiErrorOf(messages.status());
    EXPECT_EQ(error.code, wrong.code) << wrong.json;
    EXPECT_EQ(error.param, wrong.place) << wrong.json;
    EXPECT_THAT(error.message, HasSubstr(wrong.place));
  }
}

TEST(ChatMessages, AreBounded) {
  const Json message = {{"role", "user"}, {"content", "x"}};
  EXPECT_TRUE(ReadMessages(Json(std::vector<Json>(kMostMessages, message))).ok());
  EXPECT_THAT(ReadMessages(Json(std::vector<Json>(kMostMessages + 1, message))).status().message(),
              HasSubstr("has 4097 messages, expected at most 4096"));
  const Json part = {{"type", "text"}, {"text", "x"}};
  const auto with_parts = [&](size_t parts) {
    return ReadMessages(Json::array({{{"role", "user"}, {"content", std::vector<Json>(parts, part)}}})).ok();
  };
  EXPECT_TRUE(with_parts(kMostParts));
  EXPECT_FALSE(with_parts(kMostParts + 1));
}

using Conversation = ToyServiceTest;

TEST_F(Conversation, IsGivenToTheModelAsItsTemplateWritesIt) {
  EXPECT_EQ(service.Chat("").call->TakeRequests()[0].prompt,
            service.tokenizer->Encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", true, true));
  const PreparedCall continued = service.Prepare(
      kChatApi,
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hel"}],"continue_final_message":true})");
  EXPECT_EQ(continued.call->TakeRequests()[0].prompt,
            service.tokenizer->Encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHel", true, true));
}

TEST_F(Conversation, NeverMakesControlTokensOfWhatIsSaid) {
  const PreparedCall prepared = service.Prepare(kChatApi, R"({"messages":[{"role":"user","content":"<|im_end|>"}]})");
  const std::vector<TokenId> prompt = prepared.call->TakeRequests()[0].prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kImEnd), 1);
}

TEST_F(Conversation, HasAnErrorOfItsOwnForEachThingATemplateSays) {
  // chatml knows no tools.
  const PreparedCall tools = service.Chat(kTwoTools);
  EXPECT_EQ(tools.error->code, "template_error");
  EXPECT_THAT(tools.error->message, HasSubstr("cannot tell a model of tools"));
  const PreparedCall chosen = service.Chat(std::string(kTwoTools) + R"(,"tool_choice":"none")");
  EXPECT_FALSE(chosen.error.has_value()) << "they are not rendered";
  service.model.chat = nullptr;
  EXPECT_EQ(service.Chat("").error->code, "chat_template_unusable");
}

TEST_F(Conversation, SaysThatItsTemplateHasNoPlaceForTools) {
  service.context.context_tokens = 0;
  const auto ignored_with = [this](const std::string& source) {
    const ChatFormat chat({.given = ChatTemplateSource{"given", source}, .built_in = ""}, GgufMetadata(),
                          service.tokenizer.get());
    service.model.chat = &chat;
    const PreparedCall prepared = service.Chat(kTwoTools);
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    return prepared.error.has_value() ? std::vector<std::string>() : prepared.call->ignored();
  };
  const std::string messages = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(ignored_with(messages), ElementsAre("tools"));
  EXPECT_THAT(ignored_with("{% if tools %}{{ tools | tojson }}{% endif %}" + messages), ElementsAre());
}

using ModelBodies = ToyServiceTest;

TEST_F(ModelBodies, ListTheModel) {
  service.model.names = {"toy", "alias"};
  const Json list = Json::parse(ModelsBody(service.model, 100, false));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(CompactJson(list["data"][1]),
            R"({"id":"alias","object":"model","created":1600000000,"owned_by":"stagecoach","root":"toy",)"
            R"("max_model_len":100,"meta":{"n_params":0,"size":0,"n_ctx_train":4096,"n_vocab":264}})");
  EXPECT_EQ(list["models"], Json::array());
  EXPECT_TRUE(Json::parse(ModelsBody(service.model, 0, false))["data"][0]["max_model_len"].is_null());
  EXPECT_EQ(ModelsBody(service.model, 100, true),
            R"({"data":[{"id":"toy","type":"model","display_name":"toy","created_at":"2020-09-13T12:26:40Z"},)"
            R"({"id":"alias","type":"model","display_name":"alias","created_at":"2020-09-13T12:26:40Z"}],)"
            R"("has_more":false,"first_id":"toy","last_id":"alias"})");
  EXPECT_EQ(Json::parse(ModelBody(service.model, 100, "alias", false).body), list["data"][1]);
  EXPECT_EQ(ModelBody(service.model, 100, "other", false).error->status, 404);
}

TEST_F(ModelBodies, TokenizeInThreeForms) {
  EXPECT_EQ(TokenizeBody(R"({"prompt":"hello!","return_token_strs":true})", service.model, service.context).body,
            R"({"tokens":[259,33],"count":2,"max_model_len":100,"token_strs":["hello","!"]})");
  EXPECT_EQ(TokenizeBody(R"({"prompt":"<|im_end|>","add_special_tokens":false})", service.model, service.context).body,
            R"({"tokens":[261],"count":1,"max_model_len":100})");
  EXPECT_EQ(Json::parse(TokenizeBody(R"({"prompt":"<|im_end|>","parse_special":false})", service.model, service.context)
                            .body)["count"],
            10);
  EXPECT_EQ(TokenizeBody(R"({"content":"<|im_end|>\u00e9","with_pieces":true})", service.model, service.context).body,
            R"({"tokens":[261,195,169],"count":3,"max_model_len":100,"pieces":[{"id":261,"piece":"<|im_end|>"},)"
            R"({"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}])";
  const Json tokens = Json::parse(TokenizeBody("{" + messages + "}", service.model, service.context).body);
  EXPECT_EQ(tokens["tokens"], service.Chat("").call->TakeRequests()[0].prompt);
  EXPECT_EQ(TokenizeBody("{}", service.model, service.context).error->code, "missing_parameter");
  EXPECT_EQ(TokenizeBody("[", service.model, service.context).error->code, "invalid_json");
  EXPECT_EQ(TokenizeBody(R"({"prompt":7})", service.model, service.context).error->param, "prompt");
}

// As lm-evaluation-harness asks for them.
TEST_F(ModelBodies, TellWhatARemoteTokenizerHasToKnow) {
  const Json info = Json::parse(TokenizerInfoBody(service.model));
  EXPECT_EQ(info["eos_token"], "<|im_end|>");
  EXPECT_EQ(info["bos_token"], nullptr);
  EXPECT_EQ(info["pad_token"], nullptr);
  EXPECT_EQ(info["chat_template"], service.chat->source(/*with_tools=*/false));
  ServedModel mute = service.model;
  mute.chat = nullptr;
  EXPECT_EQ(Json::parse(TokenizerInfoBody(mute))["chat_template"], nullptr);
}

TEST_F(ModelBodies, RefuseWhatTakesTooMuch) {
  const auto refusal = [](const BodyAnswer& answer) {
    return answer.error.has_value() ? absl::StrCat(answer.error->code, ": ", answer.error->message) : "none";
  };
  const std::string most(kMostTextTokens, 'a'), listed(kMostListedTokens, 'a');
  const auto ask = [&](const std::string& text, const char* more) {
    return refusal(TokenizeBody(absl::StrCat(R"({"prompt":")", text, "\"", more, "}"), service.model, service.context));
  };
  EXPECT_EQ(ask(most, ""), "none");
  EXPECT_THAT(ask(most + "a", ""), HasSubstr("invalid_value: 'prompt': has more than 262144 tokens, expected at most"));
  EXPECT_EQ(ask(listed, R"(,"with_pieces":true)"), "none");
  EXPECT_THAT(ask(listed + "a", R"(,"with_pieces":true)"), HasSubstr("has 65537 tokens, whose texts are listed up to"));
  EXPECT_THAT(ask(listed + "a", R"(,"return_token_strs":true)"), HasSubstr("'return_token_strs'"));
  const std::string talk = absl::StrCat(R"({"messages":[{"role":"user","content":")", most, R"("}]})");
  const char* const too_much = "invalid_value: 'messages': have more than 262144 tokens, expected at most that";
  EXPECT_EQ(refusal(TokenizeBody(talk, service.model, service.context)), too_much);
  EXPECT_EQ(refusal(ApplyTemplateBody(talk, service.model, service.context)), too_much);
  std::string ids = "1";
  for (size_t i = 0; i < kMostTextTokens; ++i) ids += ",1";
  EXPECT_THAT(refusal(DetokenizeBody(absl::StrCat("{\"tokens\":[", ids, "]}"), service.model)),
              HasSubstr("has 262145 token ids, expected at most 262144"));
}

TEST_F(ModelBodies, DetokenizeAndRender) {
  EXPECT_EQ(DetokenizeBody(R"({"tokens":[259,261,33]})", service.model).body,
            R"({"prompt":"hello<|im_end|>!","content":"hello<|im_end|>!"})");
  EXPECT_EQ(DetokenizeBody(R"({"tokens":[264]})", service.model).error->param, "tokens");
  EXPECT_EQ(DetokenizeBody(R"({})", service.model).error->code, "missing_parameter");
  EXPECT_EQ(ApplyTemplateBody(R"({"messages":[{"role":"user","content":"Hi"}]})", service.model, service.context).body,
            R"({"prompt":"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"})");
  EXPECT_EQ(ApplyTemplateBody(R"({"messages":[]})", service.model, service.context).error->param, "messages");
}

TEST(ApiErrors, HaveTheirStatusesAndTypes) {
  struct {
    ApiErrorKind code;
    int status;
    const char* type;
    const char* name;
  } const rows[] = {{ApiErrorCode::kInvalidJson, 400, "invalid_request_error", "invalid_json"},
                    {ApiErrorCode::kInvalidApiKey, 401, "authentication_error", "invalid_api_key"},
                    {ApiErrorCode::kNotOwner, 403, "permission_error", "not_owner"},
                    {ApiErrorCode::kNotFound, 404, "invalid_request_error", "not_found"},
                    {ApiErrorCode::kTooLarge, 413, "invalid_request_error", "too_large"},
                    {ApiErrorCode::kQueueFull, 429, "rate_limit_error", "queue_full"},
                    {ApiErrorCode::kInternal, 500, "server_error", "internal"},
                    {ApiErrorCode::kNotSupported, 501, "not_supported_error", "not_supported"},
                    {ApiErrorCode::kDraining, 503, "unavailable_error", "draining"},
                    {ApiErrorCode::kQueueTimeout, 504, "timeout_error", "queue_timeout"}};
  for (const auto& row : rows) {
    const ApiError error = MakeApiError(row.code, "why");
    EXPECT_EQ(error.status, row.status);
    EXPECT_EQ(error.type, row.type);
    EXPECT_EQ(error.code, row.name);
  }
  EXPECT_EQ(ErrorBody(MakeApiError(ApiErrorCode::kInvalidValue, "why", "top_p")),
            R"({"error":{"message":"why","type":"invalid_request_error","param":"top_p","code":"invalid_value"}})");
}

TEST(ApiErrors, TravelInAStatus) {
  const ApiError error = ApiErrorOf(ApiStatus(ApiErrorCode::kUnsupportedContent, "why", "messages[0]"));
  EXPECT_EQ(error.code, "unsupported_content");
  EXPECT_EQ(error.message, "why");
  EXPECT_EQ(error.param, "messages[0]");
  EXPECT_EQ(ApiErrorOf(ApiStatus(ApiErrorCode::kInvalidJson, "why")).param, std::nullopt);
  EXPECT_EQ(ApiErrorOf(absl::UnavailableError("gone")).code, "internal");
  EXPECT_EQ(RefusedBySession(absl::OutOfRangeError("no room")).status, 400);
  EXPECT_EQ(RefusedBySession(absl::FailedPreconditionError("finished")).code, "draining");
  EXPECT_EQ(RefusedBySession(absl::UnavailableError("lost")).code, "stages_lost");
  EXPECT_EQ(RefusedBySession(absl::InvalidArgumentError("twice")).status, 500);
}

// "<|im_start|>user\nHi<|im_end|>\n", where each byte is a token, and then what asks for the answer.
TEST_F(ToyServiceTest, ARecurrentModelIsToldWhereTheNextTurnParts) {
  const auto named = [&] {
    PreparedCall prepared = service.Prepare(kChatApi, R"({"messages":[{"role":"user","content":"Hi"}],"n":2})");
    std::vector<int64_t> tokens;
    for (const GenerationRequest& request : prepared.call->TakeRequests())
      tokens.push_back(request.conversation_tokens);
    return tokens;
  };
  EXPECT_THAT(named(), ElementsAre(-1, -1));
  service.model.recurrent = true;
  EXPECT_THAT(named(), ElementsAre(1 + 5 + 2 + 1 + 1, 1 + 5 + 2 + 1 + 1));
}

}  // namespace
}  // namespace stagecoach::testing
