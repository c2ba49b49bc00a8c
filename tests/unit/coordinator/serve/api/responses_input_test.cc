#include "coordinator/serve/api/dialects/responses_input.h"

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

absl::StatusOr<ChatRequest> InputRequest(const std::string& fields) {
  const Json body = Json::parse(absl::StrCat("{", fields, "}"));
  FieldReader reader(&body);
  ChatRequest request;
  if (const absl::Status status = ReadResponsesInput(&reader, &request); !status.ok()) return status;
  return request;
}

std::string InputMessages(const std::string& fields) {
  const absl::StatusOr<ChatRequest> request = InputRequest(fields);
  EXPECT_EQ(request.status().ToString(), "OK") << fields;
  return request.ok() ? CompactJson(request->messages) : "";
}

TEST(ResponsesInput, OfEveryRoleBecomesAMessage) {
  EXPECT_EQ(
      InputMessages(
          R"("instructions":"i","input":[{"type":"message","id":"m1","role":"developer","content":[)"
          R"({"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},{"role":"system","content":"s"},)"
          R"({"type":"message","role":"user","content":[{"type":"input_text","text":"u","unknown":1}]},)"
          R"({"type":"message","role":"assistant","status":"completed","content":[)"
          R"({"type":"output_text","text":"x","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"no"}]}])"),
      R"([{"role":"system","content":"i"},)"
      R"({"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"system","content":"s"},{"role":"user","content":"u"},)"
      R"({"role":"assistant","content":[{"type":"text","text":"x"},{"type":"text","text":"no"}]}])");
}

TEST(ResponsesInput, ThatIsATextIsTheUsers) {
  EXPECT_EQ(InputMessages(R"("input":"Hi")"), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(InputMessages(R"("input":"Hi","instructions":"i")"),
            R"([{"role":"system","content":"i"},{"role":"user","content":"Hi"}])");
}

TEST(ResponsesInput, WithoutAnythingIsAnEmptyMessageOfTheUsers) {
  for (const char* fields : {R"("input":"")", R"("input":[])", R"("input":[{"type":"reasoning","summary":[]}])",
                             R"("input":[{"type":"compaction"}])"}) {
    EXPECT_EQ(InputMessages(fields), R"([{"role":"user","content":""}])") << fields;
  }
  EXPECT_EQ(InputMessages(R"("instructions":"i","input":[])"),
            R"([{"role":"system","content":"i"},{"role":"user","content":""}])");
}

constexpr char kLookCall[] = R"({"type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\": 1}"})";
constexpr char kLookOutput[] = R"({"type":"function_call_output","call_id":"c1","output":"A tree."})";

TEST(ResponsesInput, OfTheAssistantIsOneMessageUntilSomebodyElseSpeaks) {
  const std::string reasoning =
      R"({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]})";
  const std::string message =
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait."}]})";
  const std::string custom =
      R"({"type":"custom_tool_call","call_id":"c2","name":"patch","namespace":"n","input":"a\"b"})";
  const std::string calls =
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"n__patch","arguments":"{\"input\":\"a\\\"b\"}"}}]})";
  EXPECT_EQ(
      InputMessages(absl::StrCat(R"("input":[{"role":"user","content":"u"},)", reasoning, ",", message, ",", kLookCall,
                                 ",", custom, ",", kLookOutput, R"(,{"type":"custom_tool_call_output","call_id":"c2",)",
                                 R"("output":[{"type":"input_text","text":"Done."}]},)", message, "]")),
      absl::StrCat(R"([{"role":"user","content":"u"},{"role":"assistant","content":"Wait.",)",
                   R"("reasoning_content":"Hm.",)", calls, R"(,{"role":"tool","content":"A tree.",)",
                   R"("tool_call_id":"c1"},{"role":"tool","content":"Done.","tool_call_id":"c2"},)",
                   R"({"role":"assistant","content":"Wait."}])"));
  const std::string nothing = R"({"role":"assistant","content":[{"type":"output_text","text":""}]})";
  EXPECT_EQ(InputMessages(absl::StrCat("\"input\":[", kLookCall, ",", kLookOutput, ",", nothing, ",", kLookCall, "]")),
            R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"look","arguments":"{\"at\": 1}"}}]},)"
            R"({"role":"tool","content":"A tree.","tool_call_id":"c1"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"look","arguments":"{\"at\": 1}"}}]}])");
}

// As the same answer comes back by the other APIs, whose clients put its pieces together.
TEST(ResponsesInput, OfTheAssistantGoesOnBehindACall) {
  const auto thought = [](const std::string& text) {
    return absl::StrCat(R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":")", text,
                        "\"}]},");
  };
  const auto said = [](const std::string& text) {
    return absl::StrCat(R"({"role":"assistant","content":[{"type":"output_text","text":")", text, "\"}]}");
  };
  EXPECT_EQ(InputMessages(absl::StrCat("\"input\":[", thought("a"), said("b"), ",", kLookCall, ",", thought("c"),
                                       said("d"), "]")),
            R"([{"role":"assistant","content":"bd","reasoning_content":"ac","tool_calls":[{"id":"c1",)"
            R"("type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}])");
}

TEST(ResponsesInput, OfAnEmptyTextBesideCallsIsNone) {
  const std::string calls = absl::StrCat(R"("input":[{"role":"assistant","content":""},)", kLookCall, "]");
  EXPECT_EQ(InputMessages(calls), InputMessages(absl::StrCat("\"input\":[", kLookCall, "]")));
}

TEST(ResponsesInput, OfReasoningIsItsTextOrElseItsSummary) {
  const auto reasoning = [](const std::string& members) {
    return InputMessages(
        absl::StrCat(R"("input":[{"type":"reasoning",)", members, R"(},{"role":"user","content":"u"}])"));
  };
  EXPECT_EQ(
      reasoning(R"("summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"r"}])"),
      R"([{"role":"assistant","content":"","reasoning_content":"r"},{"role":"user","content":"u"}])");
  EXPECT_EQ(
      reasoning(R"("summary":[{"type":"summary_text","text":"s"},{"type":"summary_text","text":"t"}],"content":[])"),
      R"([{"role":"assistant","content":"","reasoning_content":"s\nt"},{"role":"user","content":"u"}])");
  EXPECT_EQ(reasoning(R"("summary":[],"content":null,"encrypted_content":"AAAA")"),
            R"([{"role":"user","content":"u"}])");
}

TEST(ResponsesInput, OfAToolsAnswerHasAWordInPlaceOfAnImage) {
  EXPECT_EQ(InputMessages(R"("input":[{"type":"function_call_output","call_id":"c","output":[)"
                          R"({"type":"input_text","text":"See:"},{"type":"input_image","image_url":"data:"}]}])"),
            R"([{"role":"tool","content":[{"type":"text","text":"See:"},)"
            R"({"type":"text","text":"[image omitted: this model reads text only]"}],"tool_call_id":"c"}])");
}

TEST(ResponsesInput, OfOthersMachineryIsSkippedAndNamedOnce) {
  const absl::StatusOr<ChatRequest> request =
      InputRequest(R"("input":[{"type":"web_search_call","id":"w"},{"role":"user","content":"u"},)"
                   R"({"type":"web_search_call","id":"x"},{"type":"mcp_call"}])");
  ASSERT_EQ(request.status().ToString(), "OK");
  EXPECT_EQ(CompactJson(request->messages), R"([{"role":"user","content":"u"}])");
  EXPECT_THAT(request->skipped, ElementsAre("input.web_search_call", "input.mcp_call"));
}

TEST(ResponsesInput, BringsToolsInItsItemsToo) {
  const absl::StatusOr<ChatRequest> request = InputRequest(
      R"("tools":[{"type":"function","name":"look","strict":false,"parameters":{"type":"object"}},)"
      R"({"type":"namespace","name":"team","description":"d","tools":[{"type":"function","name":"send"}]},)"
      R"({"type":"namespace","name":"functions","tools":[{"type":"custom","name":"patch"}]},)"
      R"({"type":"web_search","external_web_access":false}],)"
      R"("input":[{"type":"additional_tools","tools":[{"type":"function","name":"late"}]}])");
  ASSERT_EQ(request.status().ToString(), "OK");
  std::vector<std::string> names;
  for (const OfferedTool& tool : request->tools.offered()) {
    names.push_back(absl::StrCat(tool.name, "=", tool.name_space, "/", tool.own_name));
  }
  EXPECT_THAT(names, ElementsAre("look=/look", "team__send=team/send", "patch=functions/patch", "late=/late"));
  EXPECT_THAT(request->tools.skipped, ElementsAre("tools.web_search"));
}

struct WrongInput {
  const char* fields;
  const char* code;
  const char* place;
};

TEST(ResponsesInput, IsRefusedAtItsPlace) {
  for (const WrongInput& wrong : std::initializer_list<WrongInput>{
           {R"("model":"m")", "missing_parameter", "input"},
           {R"("input":7)", "invalid_value", "input"},
           {R"("input":{})", "invalid_value", "input"},
           {R"("input":[7])", "invalid_value", "input[0]"},
           {R"("input":[{}])", "missing_parameter", "input[0].type"},
           {R"("input":[{"type":7}])", "invalid_value", "input[0].type"},
           {R"("input":[{"type":"message","content":"x"}])", "missing_parameter", "input[0].role"},
           {R"("input":[{"role":"poet","content":"x"}])", "invalid_value", "input[0].role"},
           {R"("input":[{"role":"tool","content":"x"}])", "invalid_value", "input[0].role"},
           {R"("input":[{"role":"user"}])", "missing_parameter", "input[0].content"},
           {R"("input":[{"role":"user","content":7}])", "invalid_value", "input[0].content"},
           {R"("input":[{"role":"user","content":["x"]}])", "invalid_value", "input[0].content[0]"},
           {R"("input":[{"role":"user","content":[{}]}])", "missing_parameter", "input[0].content[0].type"},
           {R"("input":[{"role":"user","content":[{"type":"input_text"}]}])", "missing_parameter",
            "input[0].content[0].text"},
           {R"("input":["x",{"role":"user","content":"x"}])", "invalid_value", "input[0]"},
           {R"("input":[{"role":"user","content":"x"},{"role":"user","content":[{"type":"input_image"}]}])",
            "unsupported_content", "input[1].content[0].type"},
           {R"("input":[{"type":"item_reference","id":"msg_1"}])", "unsupported_parameter", "input[0]"},
           {R"("input":[{"type":"reasoning","content":7}])", "invalid_value", "input[0].content"},
           {R"("input":[{"type":"reasoning","summary":[{"type":"summary_text"}]}])", "missing_parameter",
            "input[0].summary[0].text"},
           {R"("input":[{"type":"function_call","name":"f"}])", "missing_parameter", "input[0].call_id"},
           {R"("input":[{"type":"function_call","call_id":"c"}])", "missing_parameter", "input[0].name"},
           {R"("input":[{"type":"function_call","call_id":"c","name":"f","arguments":7}])", "invalid_value",
            "input[0].arguments"},
           {R"("input":[{"type":"function_call","call_id":"c","name":"f","namespace":7}])", "invalid_value",
            "input[0].namespace"},
           {R"("input":[{"type":"custom_tool_call","call_id":"c","name":"f"}])", "missing_parameter", "input[0].input"},
           {R"("input":[{"type":"function_call_output","output":"x"}])", "missing_parameter", "input[0].call_id"},
           {R"("input":[{"type":"function_call_output","call_id":"c"}])", "missing_parameter", "input[0].output"},
           {R"("input":[{"type":"custom_tool_call_output","call_id":"c","output":[7]}])", "invalid_value",
            "input[0].output[0]"},
           {R"("input":[{"type":"additional_tools"}])", "missing_parameter", "input[0].tools"},
           {R"("input":[{"type":"additional_tools","tools":[{"type":"function","name":"a b"}]}])", "invalid_value",
            "input[0].tools[0].name"},
           {R"("input":"x","instructions":7)", "invalid_value", "instructions"},
           {R"("input":"x","tools":7)", "invalid_value", "tools"},
           {R"("input":"x","tools":[{"name":"f"}])", "invalid_value", "tools[0].type"},
           {R"("input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":""}]}])",
            "invalid_value", "tools[0].tools[0].name"},
           {R"("input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}])", "invalid_value",
            "tools[1].name"},
           {R"("input":"x","tool_choice":"required")", "invalid_value", "tool_choice"},
           {R"("input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"})",
            "invalid_value", "tool_choice"}}) {
    const absl::StatusOr<ChatRequest> request = InputRequest(wrong.fields);
    ASSERT_FALSE(request.ok()) << wrong.fields;
    const ApiError error = ApiErrorOf(request.status());
    EXPECT_EQ(error.code, wrong.code) << wrong.fields << error.message;
    EXPECT_EQ(error.param, wrong.place) << wrong.fields;
    EXPECT_THAT(error.message, HasSubstr(wrong.place));
  }
}

TEST(ResponsesInput, IsBounded) {
  const auto input_of = [](const Json& input) {
    const Json body = {{"input", input}};
    FieldReader reader(&body);
    ChatRequest request;
    return ReadResponsesInput(&reader, &request);
  };
  const Json item = {{"role", "user"}, {"content", "x"}};
  EXPECT_TRUE(input_of(Json(std::vector<Json>(kMostMessages, item))).ok());
  EXPECT_THAT(input_of(Json(std::vector<Json>(kMostMessages + 1, item))).message(),
              HasSubstr("has 4097 items, expected at most 4096"));
  const Json part = {{"type", "input_text"}, {"text", "x"}};
  const auto with_parts = [&](size_t parts) {
    return input_of(Json::array({{{"role", "user"}, {"content", std::vector<Json>(parts, part)}}})).ok();
  };
  EXPECT_TRUE(with_parts(kMostParts));
  EXPECT_FALSE(with_parts(kMostParts + 1));
}

}  // namespace
}  // namespace stagecoach::testing
