#include "coordinator/serve/api/conversation/tools.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

absl::StatusOr<ToolSet> ToolsOf(const std::string& fields, ToolSpelling spelling = ToolSpelling::kNested) {
  const Json body = Json::parse("{" + fields + "}");
  FieldReader reader(&body);
  ToolSet tools;
  if (const Json* list = reader.Find("tools"); list != nullptr) {
    RETURN_IF_ERROR(ReadTools("tools", *list, spelling, &tools));
  }
  RETURN_IF_ERROR(ReadToolChoice(&reader, spelling, &tools));
  return tools;
}

std::vector<std::string> NamesOf(const absl::StatusOr<ToolSet>& tools) {
  EXPECT_EQ(tools.status().ToString(), "OK");
  std::vector<std::string> names;
  if (!tools.ok()) return names;
  for (const OfferedTool& tool : tools->offered()) names.push_back(tool.name);
  return names;
}

TEST(ChatTools, AreFunctionsOfOneForm) {
  EXPECT_EQ(CompactJson(ToolsOf(kTwoTools)->ForTemplate()),
            R"([{"type":"function","function":{"name":"a","parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"b","description":"d",)"
            R"("parameters":{"type":"object","properties":{}}}}])");
  // However they were spelt.
  EXPECT_EQ(ToolsOf(R"("tools":[{"type":"function","parameters":{"type":"object"},"name":"a","x":1},)"
                    R"({"type":"function","name":"b","description":"d","strict":false,"parameters":null}])",
                    ToolSpelling::kFlat)
                ->ForTemplate(),
            ToolsOf(kTwoTools)->ForTemplate());
}

TEST(ChatTools, OfOthersMachineryAreSkippedAndNamed) {
  const absl::StatusOr<ToolSet> tools =
      ToolsOf(R"("tools":[{"type":"web_search"},{"type":"mcp","x":1},{"type":"custom","custom":{"name":"c"}}])");
  EXPECT_THAT(NamesOf(tools), ElementsAre("c"));
  EXPECT_THAT(tools->skipped, ElementsAre("tools.web_search", "tools.mcp"));
}

TEST(ChatTools, ThatTakeATextAreFunctionsOfOneString) {
  const absl::StatusOr<ToolSet> tools = ToolsOf(
      R"("tools":[{"type":"custom","name":"patch","description":"d","format":{"type":"text"}}])", ToolSpelling::kFlat);
  EXPECT_THAT(NamesOf(tools), ElementsAre("patch"));
  EXPECT_EQ(tools->offered()[0].kind, OfferedTool::Kind::kCustom);
  EXPECT_EQ(CompactJson(tools->offered()[0].function),
            R"({"name":"patch","description":"d","parameters":{"type":"object",)"
            R"("properties":{"input":{"type":"string"}},"required":["input"]}})");
  EXPECT_FALSE(tools->offered()[0].strict);
  EXPECT_THAT(tools->skipped, IsEmpty());
  EXPECT_EQ(ArgumentsOfInput("a\n\"b\""), R"({"input":"a\n\"b\""})");
}

TEST(ChatTools, ThatTakeATextOfAGrammarAreHeldToAPatternAndElseTellOfIt) {
  struct {
    const char* format;  // as Responses have it
    const char* input;   // what the model is told of the text
    bool held;
  } const cases[] = {
      {R"({"type":"grammar","syntax":"regex","definition":"[a-z]+"})", R"({"type":"string","pattern":"[a-z]+"})", true},
      {R"({"type":"grammar","syntax":"regex","definition":"(?i)a"})",
       R"({"type":"string","description":"Follows this grammar (regex):\n(?i)a"})", false},
      {R"({"type":"grammar","syntax":"lark","definition":"start: \"x\"+\n"})",
       R"({"type":"string","description":"Follows this grammar (lark):\nstart: \"x\"+\n"})", false},
      {R"({"type":"grammar","syntax":"regex"})", R"({"type":"string"})", false},
      {R"({"type":"odd"})", R"({"type":"string"})", false},
      {"7", R"({"type":"string"})", false}};
  for (const auto& given : cases) {
    Json tool = Json::parse(absl::StrCat(R"({"type":"custom","name":"put","format":)", given.format, "}"));
    const auto check = [&](ToolSpelling spelling) {
      const absl::StatusOr<ToolSet> tools = ToolsOf("\"tools\":" + CompactJson(Json::array({tool})), spelling);
      ASSERT_THAT(NamesOf(tools), ElementsAre("put")) << given.format;
      const OfferedTool& offered = tools->offered()[0];
      EXPECT_EQ(CompactJson(offered.function["parameters"]["properties"]["input"]), given.input);
      EXPECT_EQ(offered.strict, given.held) << given.format;
      EXPECT_EQ(tools->skipped, given.held ? std::vector<std::string>() : std::vector<std::string>{"tools.format"});
    };
    check(ToolSpelling::kFlat);
    if (Json& format = tool["format"]; format.is_object() && format["type"] == "grammar") {
      Json nested = {{"type", "grammar"}, {"grammar", format}};
      nested["grammar"].erase("type");
      format = nested;
    }
    tool = {{"type", "custom"}, {"custom", tool}};
    check(ToolSpelling::kNested);
  }
}

TEST(ChatTools, OfANamespaceAreOfferedUnderBothNames) {
  const std::string members = R"([{"type":"function","name":"send"},{"type":"custom","name":"put"},{"type":"mcp"}])";
  const absl::StatusOr<ToolSet> tools =
      ToolsOf(absl::StrCat(R"("tools":[{"type":"namespace","name":"agents","tools":)", members,
                           R"(},{"type":"namespace","name":"functions","tools":)", members, "}]"),
              ToolSpelling::kFlat);
  EXPECT_THAT(NamesOf(tools), ElementsAre("agents__send", "agents__put", "send", "put"));
  EXPECT_EQ(tools->Find("agents__send")->own_name, "send");
  EXPECT_EQ(tools->Find("agents__send")->name_space, "agents");
  EXPECT_EQ(tools->Find("agents__send")->function["name"], "agents__send");
  EXPECT_EQ(tools->Find("send")->name_space, "functions");
  EXPECT_EQ(tools->Find("agents"), nullptr);
  EXPECT_THAT(tools->skipped, ElementsAre("tools.mcp", "tools.mcp"));
  EXPECT_THAT(NamesOf(ToolsOf(R"("tools":[{"type":"namespace","namespace":{"name":"n","tools":[)"
                              R"({"type":"function","function":{"name":"f"}}]}}])")),
              ElementsAre("n__f"));
}

TEST(ChatTools, CanBeChosenFrom) {
  const std::string choice = std::string(kTwoTools) + R"(,"tool_choice":)";
  EXPECT_THAT(NamesOf(ToolsOf(choice + R"("auto")")), ElementsAre("a", "b"));
  EXPECT_THAT(NamesOf(ToolsOf(choice + R"("none")")), ElementsAre());
  EXPECT_THAT(NamesOf(ToolsOf(choice + R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
                                       R"({"type":"function","function":{"name":"b"}},{"type":"mcp"}]}})")),
              ElementsAre("b"));
  EXPECT_THAT(
      NamesOf(ToolsOf(R"("tools":[{"type":"function","name":"a"},{"type":"namespace","name":"n","tools":[)"
                      R"({"type":"function","name":"a"}]}],"tool_choice":{"type":"allowed_tools","mode":"auto",)"
                      R"("tools":[{"type":"function","name":"a","namespace":"n"},{"type":"mcp"}]})",
                      ToolSpelling::kFlat)),
      ElementsAre("n__a"));
  // All of a namespace.
  const std::string space =
      R"("tools":[{"type":"function","name":"a"},{"type":"namespace","name":"n","tools":[)"
      R"({"type":"function","name":"a"},{"type":"custom","name":"b"}]}],"tool_choice":{"type":"allowed_tools",)"
      R"("mode":"auto","tools":[{"type":"namespace","name":")";
  EXPECT_THAT(NamesOf(ToolsOf(space + "n\"}]}", ToolSpelling::kFlat)), ElementsAre("n__a", "n__b"));
  for (const char* none : {"m", ""}) {
    EXPECT_THAT(ToolsOf(absl::StrCat(space, none, "\"}]}"), ToolSpelling::kFlat).status().message(),
                HasSubstr("names a namespace that is not there"));
  }
  const auto choice_of = [&](const char* fields) { return ToolsOf(choice + fields)->choice(); };
  EXPECT_EQ(choice_of(R"("auto")"), ToolSet::Choice::kAuto);
  EXPECT_EQ(choice_of(R"("required")"), ToolSet::Choice::kRequired);
  EXPECT_EQ(choice_of(R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
                      R"({"type":"function","function":{"name":"b"}}]}})"),
            ToolSet::Choice::kRequired);
  const absl::StatusOr<ToolSet> named = ToolsOf(choice + R"({"type":"function","function":{"name":"b"}})");
  EXPECT_THAT(NamesOf(named), ElementsAre("a", "b")) << "the model is told of all";
  EXPECT_EQ(named->choice(), ToolSet::Choice::kNamed);
  EXPECT_EQ(named->chosen(), "b");
  EXPECT_TRUE(ToolsOf(kTwoTools)->parallel);
  EXPECT_FALSE(ToolsOf(std::string(kTwoTools) + R"(,"parallel_tool_calls":false)")->parallel);
}

TEST(ChatTools, AreRefusedAtTheirPlace) {
  const std::string choice = std::string(kTwoTools) + R"(,"tool_choice":)";
  struct {
    std::string fields;
    const char* code;
    const char* place;
  } const wrongs[] = {
      {R"("tools":{})", "invalid_value", "tools"},
      {R"("tools":[7])", "invalid_value", "tools[0]"},
      {R"("tools":[{}])", "invalid_value", "tools[0].type"},
      {R"("tools":[{"type":"function"}])", "invalid_value", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "invalid_value", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"a","parameters":7}}])", "invalid_value",
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"function","function":{"name":"a","description":7}}])", "invalid_value",
       "tools[0].function.description"},
      {R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
       "invalid_value", "tools[1].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"n__a"}},{"type":"namespace","namespace":{"name":"n",)"
       R"("tools":[{"type":"function","function":{"name":"a"}}]}}])",
       "invalid_value", "tools[1].namespace.tools[0].function.name"},
      {R"("tools":[{"type":"namespace","namespace":{"name":"n"}}])", "missing_parameter", "tools[0].namespace.tools"},
      {R"("tool_choice":"required")", "invalid_value", "tool_choice"},
      {choice + R"({"type":"function","function":{"name":"z"}})", "invalid_value", "tool_choice"},
      {choice + R"("sometimes")", "invalid_value", "tool_choice"},
      {choice + R"({"type":"allowed_tools"})", "invalid_value", "tool_choice.allowed_tools"},
      {choice + R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})", "invalid_value",
       "tool_choice.allowed_tools.mode"},
      {choice + R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"z"}}]}})",
       "invalid_value", "tool_choice.allowed_tools.tools"},
      {choice + R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","name":"a"}]}})",
       "invalid_value", "tool_choice.allowed_tools.tools"}};
  for (const auto& wrong : wrongs) {
    const absl::StatusOr<ToolSet> tools = ToolsOf(wrong.fields);
    ASSERT_FALSE(tools.ok()) << wrong.fields;
    EXPECT_EQ(ApiErrorOf(tools.status()).code, wrong.code) << wrong.fields;
    EXPECT_EQ(ApiErrorOf(tools.status()).param, wrong.place) << wrong.fields;
  }
}

TEST(ChatTools, HaveTheirLimits) {
  Json many = Json::array();
  for (size_t i = 0; i <= kMostTools; ++i) many.push_back({{"type", "web_search"}});
  EXPECT_FALSE(ToolsOf("\"tools\":" + CompactJson(many)).ok());
  EXPECT_FALSE(ToolsOf(R"("tools":[{"type":"x","a":")" + std::string(kMostToolBytes, 'a') + "\"}]").ok());
  // Of several lists together.
  ToolSet tools;
  Json half = Json::array();
  for (size_t i = 0; i < kMostTools; ++i) half.push_back({{"type", "function"}, {"name", absl::StrCat("f", i)}});
  EXPECT_TRUE(ReadTools("tools", half, ToolSpelling::kFlat, &tools).ok());
  const absl::Status more =
      ReadTools("more", Json::array({{{"type", "function"}, {"name", "g"}}}), ToolSpelling::kFlat, &tools);
  EXPECT_EQ(ApiErrorOf(more).param, "more[0]");
  EXPECT_THAT(more.message(), HasSubstr("at most 256 tools"));
}

TEST(CallIds, AreOfTheirCallAlone) {
  const std::string id = MakeCallId("call_", "id7", 0, 1);
  EXPECT_THAT(id, ::testing::MatchesRegex("call_[A-Za-z0-9]{24}"));
  EXPECT_EQ(MakeCallId("call_", "id7", 0, 1), id);
  std::set<std::string> ids = {id};
  for (const std::string& other : {MakeCallId("call_", "id7", 1, 0), MakeCallId("call_", "id7", 0, 11),
                                   MakeCallId("call_", "id70", 0, 1), MakeCallId("fc_", "id7", 0, 1)}) {
    EXPECT_TRUE(ids.insert(other.substr(other.size() - 24)).second) << other;
  }
}

}  // namespace
}  // namespace stagecoach::testing
