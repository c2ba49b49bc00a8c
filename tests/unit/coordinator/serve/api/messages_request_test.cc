// What the bodies of Messages become, and what is said of those that are wrong.

#include "coordinator/serve/api/dialects/messages_request.h"

#include "absl/strings/str_cat.h"
#include "coordinator/serve/api/conversation/chat_messages.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

struct ReadBody {
  absl::StatusOr<ChatRequest> request;
  std::vector<std::string> ignored;
};

ReadBody ReadOf(const std::string& body, bool keep_client_stamp = false) {
  const Json json = Json::parse(body);
  FieldReader fields(&json);
  std::vector<std::string> ignored;
  absl::StatusOr<ChatRequest> request = ReadMessagesRequest(&fields, keep_client_stamp, &ignored);
  return {std::move(request), std::move(ignored)};
}

ChatRequest RequestOf(const std::string& body, bool keep_client_stamp = false) {
  ReadBody read = ReadOf(body, keep_client_stamp);
  EXPECT_EQ(read.request.status().ToString(), "OK") << body;
  return read.request.ok() ? *std::move(read.request) : ChatRequest();
}

// The messages of such a list, and of such a system field.
std::string MessagesOf(const std::string& messages, const std::string& system = "null") {
  return CompactJson(RequestOf(absl::StrCat(R"({"system":)", system, R"(,"messages":)", messages, "}")).messages);
}

// A body that is right without `more`.
std::string Asking(const std::string& more) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"Hi"}])", more.empty() ? "" : ",", more, "}");
}

TEST(MessagesRequest, HasEveryBlockInItsPlace) {
  EXPECT_EQ(
      MessagesOf(R"([{"role":"user","content":"q","unknown":1},)"
                 R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},)"
                 R"({"type":"redacted_thinking","data":"x"},{"type":"text","text":"a","citations":null},)"
                 R"({"type":"tool_use","id":"toolu_1","name":"f","input":{"b":[1,"é"],"a":null},"cache_control":{}},)"
                 R"({"type":"tool_use","id":"toolu_2","name":"g"}]},)"
                 R"({"role":"user","content":[{"type":"text","text":"and"},)"
                 R"({"type":"tool_result","tool_use_id":"toolu_1","content":"r"},)"
                 R"({"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":)"
                 R"([{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","data":"AA=="}},)"
                 R"({"type":"tool_reference","tool_name":"h"}]},)"
                 R"({"type":"text","text":"so?"}]},)"
                 R"({"role":"system","content":[{"type":"text","text":"be"},{"type":"text","text":"brief"}]}])",
                 R"([{"type":"text","text":"s1","cache_control":{"type":"ephemeral"}},{"type":"text","text":"s2"}])"),
      R"([{"role":"system","content":"s1\n\ns2"},{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":"a","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{\"b\":[1,\"é\"],\"a\":null}"}},)"
      R"({"id":"toolu_2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"r","tool_call_id":"toolu_1"},)"
      R"({"role":"tool","content":[{"type":"text","text":"x"},)"
      R"({"type":"text","text":"[image omitted: this model reads text only]"},{"type":"text","text":"h"}],)"
      R"("tool_call_id":"toolu_2"},)"
      R"({"role":"user","content":[{"type":"text","text":"and"},{"type":"text","text":"so?"}]},)"
      R"({"role":"system","content":"be\n\nbrief"}])");
}

TEST(MessagesRequest, TakesATextForABlock) {
  for (const char* text : {R"("x")", R"([{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}])"}) {
    for (const char* role : {"user", "assistant", "system"}) {
      EXPECT_EQ(MessagesOf(absl::StrCat(R"([{"role":")", role, R"(","content":)", text, "}]"), text),
                absl::StrCat(R"([{"role":"system","content":"x"},{"role":")", role, R"(","content":"x"}])"));
    }
    const std::string result =
        absl::StrCat(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":)", text, "}]}]");
    EXPECT_EQ(MessagesOf(result), R"([{"role":"tool","content":"x","tool_call_id":"t"}])") << "and no empty message";
  }
}

TEST(MessagesRequest, SaysNothingWhereNothingIsSaid) {
  const std::string user = R"({"role":"user","content":"q"})";
  for (const char* system : {"null", R"("")", "[]", R"([{"type":"text","text":""}])"}) {
    EXPECT_EQ(MessagesOf("[" + user + "]", system), "[" + user + "]") << system;
  }
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}])"),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}])"),
            R"([{"role":"tool","content":"","tool_call_id":"t"}])");
  EXPECT_EQ(MessagesOf(R"([{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}])"),
            R"([{"role":"assistant","content":null,"tool_calls":[)"
            R"({"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]}])");
}

TEST(MessagesRequest, PutsWhatTheAssistantSaidInPiecesTogether) {
  EXPECT_EQ(
      MessagesOf(R"([{"role":"assistant","content":[{"type":"thinking","thinking":"a"},{"type":"text","text":"b"},)"
                 R"({"type":"thinking","thinking":"c"},{"type":"text","text":"d"}]}])"),
      R"([{"role":"assistant","content":"bd","reasoning_content":"ac"}])");
}

// What another server's tools did: an agent that came from there says it again.
TEST(MessagesRequest, SkipsBlocksOfTheAssistantThatItDoesNotKnow) {
  const ChatRequest request = RequestOf(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)"
      R"({"type":"text","text":"I look. "},{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search",)"
      R"("input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[)"
      R"({"type":"web_search_result","url":"u","title":"t","encrypted_content":"x","page_age":null}]},)"
      R"({"type":"mcp_tool_use","id":"m1","name":"n","server_name":"s","input":{}},{"type":"mcp_tool_result",)"
      R"("tool_use_id":"m1","is_error":false,"content":[{"type":"text","text":"no"}]},{"type":"server_tool_use"},)"
      R"({"type":"text","text":"A tree.","citations":[{"type":"web_search_result_location","url":"u"}]}]},)"
      R"({"role":"user","content":"and?"},{"role":"assistant","content":[{"type":"server_tool_use"}]},)"
      R"({"role":"user","content":"so?"}]})");
  EXPECT_EQ(CompactJson(request.messages),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"I look. A tree."},)"
            R"({"role":"user","content":"and?"},{"role":"assistant","content":""},{"role":"user","content":"so?"}])");
  EXPECT_THAT(request.skipped, ElementsAre("messages.server_tool_use", "messages.web_search_tool_result",
                                           "messages.mcp_tool_use", "messages.mcp_tool_result"));
}

TEST(MessagesRequest, ContinuesAnAssistantsMessageThatIsTheLast) {
  const std::string user = R"({"role":"user","content":"q"})", said = R"({"role":"assistant","content":"a"})";
  const std::string thought = R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]})";
  const std::string call = R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]})";
  const auto continues = [](const std::string& messages) {
    return RequestOf(absl::StrCat(R"({"messages":[)", messages, "]}")).continue_final_message;
  };
  EXPECT_FALSE(continues(user));
  EXPECT_TRUE(continues(user + "," + said));
  EXPECT_TRUE(continues(user + "," + thought));
  EXPECT_FALSE(continues(user + "," + call));
  EXPECT_FALSE(continues(user + "," + said + "," + user));
  EXPECT_FALSE(continues(user + "," + said + R"(,{"role":"system","content":"s"})"));
}

struct Stamped {
  const char* text;
  const char* without;
};

TEST(MessagesRequest, LosesTheStampThatDiffersFromCallToCall) {
  for (const Stamped& stamped : std::initializer_list<Stamped>{
           {"x-anthropic-billing-header: cc_version=2.1.330.572; cc_entrypoint=sdk-cli;", ""},
           {"x-anthropic-billing-header: cc_version=2.1.330.001; cc_entrypoint=cli; cch=a5145;\nYou are", "You are"},
           {"x-anthropic-billing-header: cch=a5145; You are a=b; and", "You are a=b; and"},
           {"x-anthropic-billing-header:a=b;c=d;\r\n\r\nYou", "You"},
           {"x-anthropic-billing-header: a=b; cch=a5145", ""},
           {"x-anthropic-billing-header: a=b; cch=a5145\nYou are", "You are"},
           {"x-anthropic-billing-header: cch=;", ""},
           {"x-anthropic-billing-header:", ""},
           {"x-anthropic-billing-header: You are", "You are"},
           {"x-anthropic-billing-header: =b; c", "=b; c"},
           {"An x-anthropic-billing-header: a=b;", "An x-anthropic-billing-header: a=b;"},
           {"X-Anthropic-Billing-Header: a=b;", "X-Anthropic-Billing-Header: a=b;"}}) {
    const Json block = {{"type", "text"}, {"text", stamped.text}}, plain = {{"type", "text"}, {"text", "plain"}};
    const std::string texts = CompactJson(Json::array({block, plain}));
    const std::string body = absl::StrCat(R"({"system":)", texts, R"(,"messages":[{"role":"user","content":"q"},)",
                                          R"({"role":"system","content":)", texts, "}]}");
    const std::string without = absl::StrCat(stamped.without, *stamped.without == '\0' ? "" : "\n\n", "plain");
    const Json messages = RequestOf(body).messages;
    EXPECT_EQ(messages[0]["content"], without) << stamped.text;
    EXPECT_EQ(messages[2]["content"], without) << stamped.text;
    EXPECT_EQ(RequestOf(body, /*keep_client_stamp=*/true).messages[0]["content"],
              absl::StrCat(stamped.text, "\n\nplain"));
  }
  const std::string only = R"("x-anthropic-billing-header: cch=1;")";
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":"q"}])", only), R"([{"role":"user","content":"q"}])");
}

TEST(MessagesRequest, OffersToolsWithASchemaAndSkipsThoseOfOthersMachinery) {
  const ChatRequest request = RequestOf(
      Asking(R"("tools":[{"name":"Bash","description":"d","input_schema":{"type":"object","properties":)"
             R"({"command":{"type":"string","maxLength":9}},"required":["command"]},"cache_control":{}},)"
             R"({"type":"custom","name":"later","defer_loading":true},{"type":"web_search_20250305","name":"web"},)"
             R"({"type":"bash_20250124","name":"Bash"}])"));
  ASSERT_EQ(request.tools.offered().size(), 2u);
  const Json offered = request.tools.ForTemplate();
  EXPECT_EQ(CompactJson(offered[0]),
            R"({"type":"function","function":{"name":"Bash","description":"d","parameters":{"type":"object",)"
            R"("properties":{"command":{"type":"string","maxLength":9}},"required":["command"]}}})");
  EXPECT_EQ(offered[1]["function"]["name"], "later");
  EXPECT_EQ(offered[1]["function"]["parameters"]["type"], "object");
  EXPECT_THAT(request.tools.skipped, ElementsAre("tools.web_search_20250305", "tools.bash_20250124"));
  EXPECT_TRUE(request.tools.parallel);
}

TEST(MessagesRequest, ChoosesAmongTools) {
  const std::string tools = R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":)";
  const auto chosen = [&](const std::string& choice) { return RequestOf(Asking(tools + choice)).tools; };
  EXPECT_FALSE(chosen(R"({"type":"auto"})").empty());
  EXPECT_TRUE(chosen(R"({"type":"auto","disable_parallel_tool_use":false})").parallel);
  EXPECT_FALSE(chosen(R"({"type":"auto","disable_parallel_tool_use":true})").parallel);
  EXPECT_TRUE(chosen(R"({"type":"none"})").ForTemplate().empty()) << "the model is told of none";
  EXPECT_FALSE(chosen("null").empty());
  EXPECT_EQ(chosen("null").choice(), ToolSet::Choice::kAuto);
  EXPECT_EQ(chosen(R"({"type":"any"})").choice(), ToolSet::Choice::kRequired);
  EXPECT_EQ(chosen(R"({"type":"tool","name":"f"})").choice(), ToolSet::Choice::kNamed);
  EXPECT_EQ(chosen(R"({"type":"tool","name":"f"})").chosen(), "f");
}

struct Thought {
  const char* fields;
  std::optional<bool> thinking;
  const char* variables;
};

TEST(MessagesRequest, ThinksAsAsked) {
  for (const Thought& thought : std::initializer_list<Thought>{
           {"", std::nullopt, "{}"},
           {R"("thinking":{"type":"adaptive","display":"omitted"})", true, "{}"},
           {R"("thinking":{"type":"enabled","budget_tokens":1024})", true, "{}"},
           {R"("thinking":{"type":"disabled"})", false, "{}"},
           {R"("output_config":{"effort":"high","unknown":1})", true, R"({"reasoning_effort":"high"})"},
           {R"("output_config":{"effort":"max"})", true, R"({"reasoning_effort":"high"})"},
           {R"("output_config":{"effort":null,"format":null})", std::nullopt, "{}"},
           {R"("output_config":{"format":{"type":"text"}})", std::nullopt, "{}"},
           {R"("thinking":{"type":"adaptive"},"output_config":{"effort":"low"})", true,
            R"({"reasoning_effort":"low"})"},
           {R"("thinking":{"type":"disabled"},"output_config":{"effort":"low"})", false, "{}"},
           {R"("output_config":{"effort":"low"},"chat_template_kwargs":{"reasoning_effort":"odd","a":1})", true,
            R"({"reasoning_effort":"odd","a":1})"}}) {
    const ChatRequest request = RequestOf(Asking(thought.fields));
    EXPECT_EQ(request.thinking, thought.thinking) << thought.fields;
    EXPECT_EQ(CompactJson(request.variables), thought.variables) << thought.fields;
  }
  EXPECT_THAT(ReadOf(Asking(R"("thinking":{"type":"enabled","budget_tokens":1024})")).ignored,
              ElementsAre("thinking.budget_tokens"));
}

struct WrongBody {
  std::string body;
  const char* code;
  const char* place;
};

// A message whose content is the list of one block, after one that is right.
std::string Block(const std::string& role, const std::string& block) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"q"},{"role":")", role, R"(","content":[)", block,
                      "]}]}");
}

TEST(MessagesRequest, IsRefusedAtTheWrongPlace) {
  for (const WrongBody& wrong : std::vector<WrongBody>{
           {"{}", "missing_parameter", "messages"},
           {R"({"messages":{}})", "invalid_value", "messages"},
           {R"({"messages":[]})", "invalid_value", "messages"},
           {R"({"messages":[],"system":"s"})", "invalid_value", "messages"},
           {R"({"messages":[{"role":"system","content":""}]})", "invalid_value", "messages"},
           {R"({"messages":["x"]})", "invalid_value", "messages[0]"},
           {R"({"messages":[{"content":"x"}]})", "missing_parameter", "messages[0].role"},
           {R"({"messages":[{"role":"tool","content":"x"}]})", "invalid_value", "messages[0].role"},
           {R"({"messages":[{"role":"user"}]})", "missing_parameter", "messages[0].content"},
           {R"({"messages":[{"role":"assistant","content":null}]})", "missing_parameter", "messages[0].content"},
           {R"({"messages":[{"role":"user","content":{}}]})", "invalid_value", "messages[0].content"},
           {Block("user", "7"), "invalid_value", "messages[1].content[0]"},
           {Block("user", "{}"), "missing_parameter", "messages[1].content[0].type"},
           {Block("user", R"({"type":"text"})"), "missing_parameter", "messages[1].content[0].text"},
           {Block("user", R"({"type":"text","text":7})"), "invalid_value", "messages[1].content[0].text"},
           {Block("user", R"({"type":"image","source":{}})"), "unsupported_content", "messages[1].content[0].type"},
           {Block("user", R"({"type":"document","source":{}})"), "unsupported_content", "messages[1].content[0].type"},
           {Block("user", R"({"type":"tool_use","id":"t","name":"f"})"), "unsupported_content",
            "messages[1].content[0].type"},
           {Block("user", R"({"type":"tool_result","content":"x"})"), "missing_parameter",
            "messages[1].content[0].tool_use_id"},
           {Block("user", R"({"type":"tool_result","tool_use_id":"t","content":7})"), "invalid_value",
            "messages[1].content[0].content"},
           {Block("user", R"({"type":"tool_result","tool_use_id":"t","content":[{"type":"text"}]})"),
            "missing_parameter", "messages[1].content[0].content[0].text"},
           {Block("assistant", R"({"type":"tool_result","tool_use_id":"t"})"), "unsupported_content",
            "messages[1].content[0].type"},
           {Block("assistant", R"({"type":"thinking"})"), "missing_parameter", "messages[1].content[0].thinking"},
           {Block("assistant", R"({"type":"tool_use","name":"f"})"), "missing_parameter", "messages[1].content[0].id"},
           {Block("assistant", R"({"type":"tool_use","id":"t"})"), "missing_parameter", "messages[1].content[0].name"},
           {Block("assistant", R"({"type":"tool_use","id":"t","name":"f","input":"{}"})"), "invalid_value",
            "messages[1].content[0].input"},
           {Block("system", R"({"type":"thinking","thinking":"x"})"), "unsupported_content",
            "messages[1].content[0].type"},
           {Asking(R"("system":7)"), "invalid_value", "system"},
           {Asking(R"("system":[{"type":"image"}])"), "unsupported_content", "system[0].type"},
           {Asking(R"("tools":{})"), "invalid_value", "tools"},
           {Asking(R"("tools":[7])"), "invalid_value", "tools[0]"},
           {Asking(R"("tools":[{"input_schema":{}}])"), "invalid_value", "tools[0].name"},
           {Asking(R"("tools":[{"name":"a b"}])"), "invalid_value", "tools[0].name"},
           {Asking(R"("tools":[{"name":"a"},{"name":"a"}])"), "invalid_value", "tools[1].name"},
           {Asking(R"("tools":[{"name":"a","input_schema":7}])"), "invalid_value", "tools[0].input_schema"},
           {Asking(R"("tools":[{"name":"a","description":7}])"), "invalid_value", "tools[0].description"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":"auto")"), "invalid_value", "tool_choice"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":{})"), "missing_parameter", "tool_choice.type"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":{"type":"some"})"), "invalid_value", "tool_choice.type"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":{"type":"tool"})"), "missing_parameter", "tool_choice.name"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":{"type":"auto","disable_parallel_tool_use":1})"),
            "invalid_value", "tool_choice.disable_parallel_tool_use"},
           {Asking(R"("tool_choice":{"type":"any"})"), "invalid_value", "tool_choice"},
           {Asking(R"("thinking":true)"), "invalid_value", "thinking"},
           {Asking(R"("thinking":{})"), "missing_parameter", "thinking.type"},
           {Asking(R"("thinking":{"type":"hard"})"), "invalid_value", "thinking.type"},
           {Asking(R"("thinking":{"type":"enabled","budget_tokens":0})"), "invalid_value", "thinking.budget_tokens"},
           {Asking(R"("output_config":"high")"), "invalid_value", "output_config"},
           {Asking(R"("output_config":{"effort":7})"), "invalid_value", "output_config.effort"},
           {Asking(R"("output_config":{"effort":"extreme"})"), "invalid_value", "output_config.effort"},
           {Asking(R"("tools":[{"name":"a"}],"tool_choice":{"type":"tool","name":"b"})"), "invalid_value",
            "tool_choice"},
           {Asking(R"("chat_template_kwargs":[])"), "invalid_value", "chat_template_kwargs"}}) {
    const ReadBody read = ReadOf(wrong.body);
    ASSERT_FALSE(read.request.ok()) << wrong.body;
    const ApiError error = ApiErrorOf(read.request.status());
    EXPECT_EQ(error.code, wrong.code) << wrong.body;
    EXPECT_EQ(error.param, wrong.place) << wrong.body << error.message;
    EXPECT_THAT(error.message, HasSubstr(wrong.place));
  }
}

TEST(MessagesRequest, IsBounded) {
  const std::string message = R"({"role":"user","content":"x"})", block = R"({"type":"text","text":"x"})";
  const auto list = [](const std::string& item, size_t count) {
    std::string text = item;
    for (size_t i = 1; i < count; ++i) absl::StrAppend(&text, ",", item);
    return "[" + text + "]";
  };
  const auto messages = [&](size_t count) {
    return ReadOf(absl::StrCat(R"({"messages":)", list(message, count), "}"));
  };
  EXPECT_TRUE(messages(kMostMessages).request.ok());
  EXPECT_THAT(messages(kMostMessages + 1).request.status().message(), HasSubstr("has 4097 messages, expected at most"));
  const auto blocks = [&](size_t count) {
    return ReadOf(absl::StrCat(R"({"messages":[{"role":"user","content":)", list(block, count), "}]}"));
  };
  EXPECT_TRUE(blocks(kMostParts).request.ok());
  EXPECT_FALSE(blocks(kMostParts + 1).request.ok());
}

// The same conversation, as chat completions have it.
TEST(MessagesRequest, IsTheSameAsThatOfChatCompletions) {
  const Json chat = Json::parse(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[)"
      R"({"id":"t","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},)"
      R"({"role":"tool","tool_call_id":"t","content":"r"},{"role":"user","content":"go on"},)"
      R"({"role":"assistant","content":"We"}],"continue_final_message":true,"reasoning_effort":"max",)"
      R"("parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"f","description":"d",)"
      R"("parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}]})");
  FieldReader fields(&chat);
  const absl::StatusOr<ChatRequest> expected = ReadChatRequest(&fields);
  ASSERT_EQ(expected.status().ToString(), "OK");
  const ChatRequest request = RequestOf(
      R"({"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},)"
      R"({"type":"tool_use","id":"t","name":"f","input":{"x":1}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},)"
      R"({"type":"text","text":"go on"}]},{"role":"assistant","content":"We"}],)"
      R"("output_config":{"effort":"max"},"tool_choice":{"type":"auto","disable_parallel_tool_use":true},)"
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g"}]})");
  EXPECT_EQ(CompactJson(request.messages), CompactJson(expected->messages));
  EXPECT_EQ(CompactJson(request.tools.ForTemplate()), CompactJson(expected->tools.ForTemplate()));
  EXPECT_EQ(request.tools.parallel, expected->tools.parallel);
  EXPECT_EQ(request.thinking, expected->thinking);
  EXPECT_EQ(CompactJson(request.variables), CompactJson(expected->variables));
  EXPECT_EQ(request.continue_final_message, expected->continue_final_message);
}

}  // namespace
}  // namespace stagecoach
