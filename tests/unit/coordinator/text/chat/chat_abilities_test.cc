#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/json/json_value.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/chat/chat_template.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

// What it can, as words.
std::string InWords(const ChatAbilities& can) {
  std::vector<std::string> words;
  const auto add = [&words](bool has, const char* word) {
    if (has) words.emplace_back(word);
  };
  add(can.string_content, "text");
  add(can.typed_content, "parts");
  add(can.null_content, "null");
  add(can.system, "system");
  add(can.late_system, "late");
  add(can.developer, "developer");
  add(can.tools, "tools");
  add(!can.bare_tools, "described");
  add(can.parallel_calls, "parallel");
  add(can.arguments == ArgumentsForm::kObject, "object");
  add(can.arguments == ArgumentsForm::kText, "string");
  add(can.reasoning == ReasoningForm::kReasoningContent, "reasoning_content");
  add(can.reasoning == ReasoningForm::kThinking, "thinking");
  add(can.reasoning == ReasoningForm::kReasoning, "reasoning");
  add(can.reasoning == ReasoningForm::kParts, "thinking-parts");
  add(!can.reasoning_with_content_and_calls, "not-all-three");
  add(!can.repeated_users, "alternate");
  add(!can.any_call_id, "nine");
  return absl::StrJoin(words, " ");
}

std::string AbilitiesOf(const std::string& source) {
  const auto tokenizer = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  const absl::StatusOr<ChatTemplate> made = ChatTemplate::Parse({"'t.jinja'", source}, *tokenizer);
  return made.ok() ? InWords(ProbeAbilities(*made)) : made.status().ToString();
}

std::string ForEachMessage(const std::string& body) {
  return absl::StrCat("{% for m in messages %}", body, "{% endfor %}");
}

TEST(ChatAbilities, AreAllThereWhereNothingCanBeLearnt) {
  const char* const all = "text parts null system late developer tools parallel";
  EXPECT_EQ(InWords(ChatAbilities()), all);
  EXPECT_EQ(AbilitiesOf("Hello"), all);
  EXPECT_EQ(AbilitiesOf("{{ raise_exception('never') }}"), all);
}

TEST(ChatAbilities, TellFormsOfContentApart) {
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.content }}")), "text system late") << "neither a list nor null as it is";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.content | tojson }}")), "text null system late") << "nor as JSON";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% for p in m.content %}{{ p.text }}{% endfor %}")), "parts system late");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or "
                                       "[] %}{{ p.text }}{% endfor %}{% endif %}")),
            "text parts null system late");
}

TEST(ChatAbilities, TellWhichRolesAreTaken) {
  const std::string write = "{{ m.role }}:{{ m.content or '' }}";
  EXPECT_EQ(AbilitiesOf(ForEachMessage(write)), "text null system late") << "developer is as good as any word";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.role in ['user', 'system', 'developer'] %}" + write + "{% endif %}")),
            "text null system late developer");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.role != 'system' %}" + write + "{% endif %}")), "text null");
  EXPECT_EQ(AbilitiesOf(ForEachMessage(
                "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}" + write)),
            "text null system");
}

TEST(ChatAbilities, TellHowCallsAreTaken) {
  const auto with_calls = [](const std::string& call) {
    return AbilitiesOf(
        ForEachMessage("{{ m.content or '' }}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}"));
  };
  EXPECT_EQ(with_calls("{{ c.function.arguments | tojson }}"), "text null system late parallel object");
  EXPECT_EQ(with_calls("{% for k, v in c.function.arguments | items %}{{ v }}{% endfor %}"),
            "text null system late parallel object");
  EXPECT_EQ(with_calls("{{ '' + c.function.arguments }}"), "text null system late parallel string");
  EXPECT_EQ(with_calls("{{ c.function.arguments }}"), "text null system late parallel string")
      << "an object would be printed as Python does";
  EXPECT_EQ(
      with_calls("{% if loop.length > 1 %}{{ raise_exception('one') }}{% endif %}{{ c.function.arguments | tojson "
                 "}}"),
      "text null system late object");
  EXPECT_EQ(AbilitiesOf("{{ tools if tools else '' }}" +
                        ForEachMessage("{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
                                       "{{ c.function.arguments | tojson }}{% endfor %}")),
            "text null system late tools parallel object")
      << "tools may be printed as Python does";
  EXPECT_EQ(AbilitiesOf("{{ tools | tojson if tools else '' }}" + ForEachMessage("{{ m.content or '' }}")),
            "text null system late tools");
}

TEST(ChatAbilities, TellWhetherArgumentsThatAreATextFail) {
  const auto tokenizer = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  for (const auto& [write, takes_text] :
       {std::pair{"{{ c.function.arguments | tojson }}", true},
        {"{% for k, v in c.function.arguments | items %}{{ v }}{% endfor %}", false}}) {
    const std::string source =
        ForEachMessage(absl::StrCat("{{ m.content or '' }}{% for c in m.tool_calls or [] %}", write, "{% endfor %}"));
    EXPECT_EQ(ProbeAbilities(ChatTemplate::Parse({"'t.jinja'", source}, *tokenizer).value()).text_arguments, takes_text)
        << write;
  }
}

TEST(ChatAbilities, TellWhereReasoningIsRead) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    EXPECT_EQ(AbilitiesOf(ForEachMessage(absl::StrCat("{{ m.", name, " or '' }}{{ m.content or '' }}"))),
              absl::StrCat("text null system late ", name));
  }
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.thinking or '' }}{{ m.reasoning_content or '' }}{{ m.content or '' }}")),
            "text null system late reasoning_content");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or "
                                       "[] %}{{ p.text or p.thinking }}{% endfor %}{% endif %}")),
            "text parts null system late thinking-parts");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('x') }}"
                                       "{% endif %}{{ m.thinking or '' }}{{ m.content or '' }}")),
            "text null system late thinking not-all-three");
}

TEST(ChatAbilities, TellWhatIsWantedOfTurnsAndIdentifiers) {
  EXPECT_EQ(AbilitiesOf("{% for m in messages %}{% if not loop.first and m.role == 'user' and loop.previtem.role == "
                        "'user' %}{{ raise_exception('twice') }}{% endif %}{{ m.content or '' }}{% endfor %}"),
            "text null system late alternate");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.content or '' }}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 "
                                       "%}{{ raise_exception('nine') }}{% endif %}{{ c.function.arguments | tojson }}"
                                       "{% endfor %}")),
            "text null system late parallel object nine");
}

TEST(ChatAbilities, CostOneRenderingWhereItHasNoEnd) {
  const absl::Time begin = absl::Now();
  EXPECT_EQ(AbilitiesOf("{{ messages[0].content }}{% if messages | length > 1 %}{% for a in range(100000) %}"
                        "{% for b in range(100000) %}{% endfor %}{% endfor %}{% endif %}"),
            "text null system late developer tools parallel");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

struct Published {
  const char* name;
  const char* abilities;
};

TEST(PublishedTemplates, CanDoWhatTheirProgramsSay) {
  for (const Published& published : std::vector<Published>{
           {"deepseek-v3.1", "text null system late parallel object"},
           {"gemma-3", "text parts system alternate"},
           {"glm-4.6", "text parts system late tools parallel object reasoning_content"},
           {"gpt-oss", "text system developer tools described object thinking not-all-three"},
           {"hermes-3", "text null system late tools described parallel object"},
           {"kimi-k2", "text parts null system late tools parallel object"},
           {"llama-2", "text system alternate"},
           {"llama-3.1", "text null system late tools object"},
           {"minimax-m2", "text parts system tools parallel object reasoning_content"},
           {"mistral-small-3.2", "text parts null system tools parallel object alternate nine"},
           {"qwen2.5", "text null system late tools parallel object"},
           {"qwen3", "text system late tools parallel object reasoning_content"},
           {"qwen3-coder", "text null system late tools parallel object"},
           {"qwen3.5", "text parts null system tools parallel object reasoning_content"},
           {"smollm3", "text null system"},
       }) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", published.name, ".jinja"));
    EXPECT_EQ(AbilitiesOf(testing::ReadFileOrDie(path)), published.abilities) << published.name;
  }
}

// A turn with two calls and their results, as an agent has it of a model that calls several tools at once.
TEST(PublishedTemplates, WriteEveryCallOfATurnAndItsResult) {
  const Json tools = Json::parse(
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}])");
  const Json messages = Json::parse(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[)"
      R"({"id":"call00001","type":"function","function":{"name":"f","arguments":"{\"a\":\"asked-1\"}"}},)"
      R"({"id":"call00002","type":"function","function":{"name":"f","arguments":"{\"a\":\"asked-2\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"call00001","content":"found-1"},)"
      R"({"role":"tool","tool_call_id":"call00002","content":"found-2"}])");
  const auto tokenizer = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  for (const char* name : {"deepseek-v3.1", "glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-3.1", "minimax-m2",
                           "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    const ChatTemplate made = *ChatTemplate::Parse({name, testing::ReadFileOrDie(path)}, *tokenizer);
    const ChatAbilities abilities = ProbeAbilities(made);
    const Json shaped = ShapeMessages(messages, abilities);
    const absl::StatusOr<MarkedText> text = made.Render({.messages = &shaped, .tools = &tools}, absl::UnixEpoch());
    ASSERT_TRUE(text.ok()) << text.status();
    std::vector<std::string> marks = {"asked-1", "asked-2", "found-1", "found-2"};
    if (!abilities.parallel_calls) std::swap(marks[1], marks[2]);
    size_t at = 0;
    for (const std::string& mark : marks) {
      at = text->text().find(mark, at);
      ASSERT_NE(at, std::string::npos) << name << " lacks " << mark << " in its place: " << text->text();
    }
  }
}

// A list of messages given without its brackets, shaped, as JSON without its brackets.
std::string Shaped(const std::string& messages, const ChatAbilities& abilities) {
  const std::string json = ShapeMessages(Json::parse("[" + messages + "]"), abilities).dump();
  return json.substr(1, json.size() - 2);
}

std::string Said(const std::string& role, const std::string& content) {
  return Json{{"role", role}, {"content", content}}.dump();
}

TEST(ShapeMessages, LeavesWhatIsTakenAsItIs) {
  const std::string messages =
      R"({"role":"system","content":"a"},{"role":"user","content":"b"},)"
      R"({"role":"assistant","content":null,"reasoning_content":"t","tool_calls":[{"function":{"arguments":"{}"}}]},)"
      R"({"role":"tool","content":{"any":[1]}},{"role":"developer","content":"c"},{"role":"user","content":)"
      R"([{"type":"text","text":"x"},{"type":"image"}],"name":"me"})";
  EXPECT_EQ(Shaped(messages, {}), messages);
}

TEST(ShapeMessages, JoinsTextPartsByNewlines) {
  const std::string parts = R"([{"type":"text","text":"x"},{"type":"text","text":"y"}])";
  const std::string messages = absl::StrCat(R"({"role":"user","content":)", parts, "}");
  EXPECT_EQ(Shaped(messages, {}), Said("user", "x\ny"));
  EXPECT_EQ(Shaped(R"({"role":"user","content":[]})", {}), Said("user", ""));
  EXPECT_EQ(Shaped(absl::StrCat(R"({"role":"tool","content":)", parts, "}"), {}), Said("tool", "x\ny"));
  EXPECT_EQ(Shaped(messages, {.string_content = false}), messages);
}

TEST(ShapeMessages, MakesPartsOfATextWhereNothingElseIsTaken) {
  EXPECT_EQ(Shaped(Said("user", "x"), {.string_content = false}),
            R"({"role":"user","content":[{"type":"text","text":"x"}]})");
  EXPECT_EQ(Shaped(Said("user", "x"), {.string_content = false, .typed_content = false}), Said("user", "x"));
}

TEST(ShapeMessages, TellsADeveloperAsTheSystemWhereThatIsKnown) {
  const std::string messages = absl::StrCat(Said("developer", "a"), ",", Said("user", "b"));
  EXPECT_EQ(Shaped(messages, {}), messages);
  EXPECT_EQ(Shaped(messages, {.developer = false}), absl::StrCat(Said("system", "a"), ",", Said("user", "b")));
  EXPECT_EQ(Shaped(messages, {.system = false, .developer = false}), Said("user", "a\n\nb"));
}

TEST(ShapeMessages, PutsARefusedSystemMessageBeforeWhatTheUserSaysNext) {
  const std::string system = Said("system", "a"), user = Said("user", "b"), assistant = Said("assistant", "c");
  const ChatAbilities never = {.system = false, .late_system = false}, first = {.late_system = false};
  EXPECT_EQ(Shaped(system + "," + user, never), Said("user", "a\n\nb"));
  EXPECT_EQ(Shaped(system + "," + assistant + "," + user, never), Said("user", "a") + "," + assistant + "," + user);
  EXPECT_EQ(Shaped(user + "," + assistant + "," + system + "," + system + "," + user, first),
            user + "," + assistant + "," + Said("user", "a\n\na\n\nb"));
  EXPECT_EQ(Shaped(system + "," + user, first), system + "," + user);
  EXPECT_EQ(Shaped(system + "," + Said("user", ""), never), Said("user", "a"));
  EXPECT_EQ(Shaped(Said("system", "") + "," + user, never), user);
}

TEST(ShapeMessages, KeepsTheFormOfWhatASystemMessageIsPutBefore) {
  const ChatAbilities never = {.system = false, .late_system = false};
  EXPECT_EQ(Shaped(Said("system", "a") + R"(,{"role":"user","content":[{"type":"image"}]})", never),
            R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image"}]})");
  EXPECT_EQ(Shaped(Said("system", "a") + R"(,{"role":"user","content":[{"type":"text","text":"b"},{"type":"image"}]})",
                   never),
            R"({"role":"user","content":[{"type":"text","text":"a\n\nb"},{"type":"image"}]})");
}

TEST(ShapeMessages, PutsALateSystemMessageWhereLaterOnesDoNotMoveIt) {
  const std::string system = Said("system", "a"), user = Said("user", "b"), assistant = Said("assistant", "c");
  const std::string tool = Said("tool", "d"), both = Said("user", "b\n\na"), alone = Said("user", "a");
  const ChatAbilities first = {.late_system = false};
  for (const auto& [given, shaped] :
       {std::pair{user + "," + system, both},
        {user + "," + assistant + "," + system, user + "," + assistant + "," + alone},
        {user + "," + assistant + "," + tool + "," + system, user + "," + assistant + "," + tool + "," + alone}}) {
    EXPECT_EQ(Shaped(given, first), shaped);
    for (const std::string& next : {assistant, assistant + "," + user, assistant + "," + tool + "," + user}) {
      EXPECT_EQ(Shaped(given + "," + next, first), shaped + "," + next);
    }
  }
  EXPECT_EQ(Shaped(system, {.system = false}), Said("user", "a"));
}

TEST(ShapeMessages, MakesOneOfTheUsersMessagesWhereTwoAreRefused) {
  const std::string a = Said("user", "a"), b = Said("user", "b"), answer = Said("assistant", "c");
  const ChatAbilities alternate = {.repeated_users = false};
  EXPECT_EQ(Shaped(a + "," + b, alternate), Said("user", "a\n\nb"));
  EXPECT_EQ(Shaped(a + "," + b, {}), a + "," + b);
  EXPECT_EQ(Shaped(a + "," + answer + "," + b, alternate), a + "," + answer + "," + b);
  EXPECT_EQ(Shaped(Said("system", "s") + "," + a + "," + Said("user", "") + "," + b,
                   {.system = false, .late_system = false, .repeated_users = false}),
            Said("user", "s\n\na\n\nb"));
  const std::string image = R"({"role":"user","content":[{"type":"image"}]})";
  EXPECT_EQ(Shaped(a + "," + image, alternate), a + "," + image) << "not what it cannot join";
}

TEST(ShapeMessages, GivesCallsIdentifiersOfTheLengthThatIsWanted) {
  const auto turn = [](const std::string& id) {
    return absl::StrCat(R"({"role":"assistant","content":"","tool_calls":[{"id":")", id,
                        R"(","function":{"name":"f","arguments":{}}}]},{"role":"tool","tool_call_id":")", id,
                        R"(","content":"d"})");
  };
  const ChatAbilities nine = {.any_call_id = false};
  EXPECT_EQ(Shaped(turn("abcDEF123"), nine), turn("abcDEF123"));
  EXPECT_EQ(Shaped(turn("call_1"), {}), turn("call_1"));
  const Json shaped = Json::parse("[" + Shaped(turn("call_1"), nine) + "]");
  const std::string id = shaped[1]["tool_call_id"];
  EXPECT_EQ(Shaped(turn("call_1"), nine), turn(id));
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  EXPECT_NE(Shaped(turn("call_2"), nine), turn(id));
}

TEST(ShapeMessages, MakesOneSystemMessageOfSeveralAtTheBeginning) {
  const std::string both = Said("system", "a") + "," + Said("developer", "b") + "," + Said("user", "c");
  EXPECT_EQ(Shaped(both, {.late_system = false}), Said("system", "a\n\nb") + "," + Said("user", "c"));
  EXPECT_EQ(Shaped(both, {.developer = false}),
            Said("system", "a") + "," + Said("system", "b") + "," + Said("user", "c"));
}

std::string Call(const std::string& arguments) {
  return absl::StrCat(R"({"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":)",
                      arguments, "}}]}");
}

TEST(ShapeMessages, GivesArgumentsInTheFormThatIsTaken) {
  const std::string object = Call(R"({"b":1,"a":[null,"é"]})"), text = Call(R"("{\"b\":1,\"a\":[null,\"é\"]}")");
  EXPECT_EQ(Shaped(text, {.arguments = ArgumentsForm::kObject}), object);
  EXPECT_EQ(Shaped(object, {.arguments = ArgumentsForm::kText}), text);
  EXPECT_EQ(Shaped(object, {.arguments = ArgumentsForm::kObject}), object);
  EXPECT_EQ(Shaped(text, {.arguments = ArgumentsForm::kText}), text);
  EXPECT_EQ(Shaped(Call(R"(" ")"), {.arguments = ArgumentsForm::kObject}), Call("{}"));
}

TEST(ShapeMessages, LeavesArgumentsThatAreNoObjectOrTooDeepAsTheyAre) {
  for (const std::string& arguments :
       {std::string(R"("{\"a\":")"), std::string(R"("[1]")"), std::string(R"("}{")"), std::string(R"("\"")"),
        std::string("7"), std::string("null"), "\"" + std::string(1'000'000, '[') + "\""}) {
    EXPECT_EQ(Shaped(Call(arguments), {.arguments = ArgumentsForm::kObject}), Call(arguments));
  }
  std::string many = "{";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", "\\\"", i, "\\\":0");
  many = "\"" + many + "}\"";
  EXPECT_EQ(Shaped(Call(many), {.arguments = ArgumentsForm::kObject}), Call(many));
  const std::string colons = std::string(2000, ':') + std::string(100, '[');  // within a text they cost nothing
  EXPECT_EQ(Shaped(Call(absl::StrCat(R"("{\"a\":\"\\\")", colons, R"(\"}")")), {.arguments = ArgumentsForm::kObject}),
            Call(absl::StrCat(R"({"a":"\")", colons, R"("})")));
}

TEST(ShapeMessages, MakesAnObjectOfTextArgumentsThatWouldFail) {
  const ChatAbilities objects = {.arguments = ArgumentsForm::kObject, .text_arguments = false};
  EXPECT_EQ(Shaped(Call(R"("{\"a\":")"), objects), Call(R"({"arguments":"{\"a\":"})"));
  EXPECT_EQ(Shaped(Call(R"("{\"a\":1}")"), objects), Call(R"({"a":1})"));
  EXPECT_EQ(Shaped(Call(R"("")"), objects), Call("{}"));
}

// Calls with these identifiers, and the result of one.
std::string Calls(const std::string& more, const std::vector<std::string>& ids) {
  std::vector<std::string> calls;
  for (const std::string& id : ids) calls.push_back(absl::StrCat(R"({"id":")", id, R"(","function":{"name":"f"}})"));
  return absl::StrCat(R"({"role":"assistant",)", more, R"("tool_calls":[)", absl::StrJoin(calls, ","), "]}");
}
std::string Result(const std::string& id, const std::string& content) {
  return absl::StrCat(R"({"role":"tool","tool_call_id":")", id, R"(","content":")", content, "\"}");
}

TEST(ShapeMessages, MakesATurnOfEachCallWhereOnlyOneIsWritten) {
  const ChatAbilities one = {.parallel_calls = false, .arguments = ArgumentsForm::kObject};
  const std::string user = Said("user", "q"), null = R"("content":null,)", first = R"("content":"a","name":"n",)";
  const auto joined = [](const std::vector<std::string>& messages) { return absl::StrJoin(messages, ","); };
  const std::string turn = joined({user, Calls(first, {"x", "y", "z"}), Result("z", "3"), Result("x", "1"),
                                   Result("y", "2"), Result("x", "4"), user});
  EXPECT_EQ(Shaped(turn, one),
            joined({user, Calls(first, {"x"}), Result("x", "1"), Result("x", "4"), Calls(null, {"y"}), Result("y", "2"),
                    Calls(null, {"z"}), Result("z", "3"), user}));
  EXPECT_EQ(Shaped(turn, {.arguments = ArgumentsForm::kObject}), turn);
  EXPECT_EQ(Shaped(turn, {.parallel_calls = false}), turn) << "it writes none";
  // Results of no call that is there, and calls without one.
  const std::string a = Said("tool", "a"), b = Result("w", "b"), c = Said("tool", "c");
  EXPECT_EQ(Shaped(joined({Calls(null, {"x", "y"}), a, b, c}), one),
            joined({Calls(null, {"x"}), a, Calls(null, {"y"}), b, c}));
  EXPECT_EQ(Shaped(joined({Calls(null, {"x", "y"}), user, a}), one),
            joined({Calls(null, {"x"}), Calls(null, {"y"}), user, a}));
}

TEST(ShapeMessages, LeavesAwayCallsThatAreNone) {
  for (const char* none : {"null", "[]"}) {
    EXPECT_EQ(Shaped(absl::StrCat(R"({"role":"assistant","content":"a","tool_calls":)", none, "}"), {}),
              Said("assistant", "a"));
  }
  for (const char* odd :
       {"3", "[3]", R"([{"function":4}])", R"([{"function":{"name":"f"}}])"}) {  // the template's affair
    const std::string message = absl::StrCat(R"({"role":"assistant","content":"a","tool_calls":)", odd, "}");
    EXPECT_EQ(Shaped(message, {.arguments = ArgumentsForm::kObject}), message);
  }
}

TEST(ShapeMessages, SaysNothingForNullButBesideCallsWhereThatIsTaken) {
  const std::string calls = R"("tool_calls":[{}])", null = R"({"role":"assistant","content":null)";
  EXPECT_EQ(Shaped(null + "," + calls + "}", {}), null + "," + calls + "}");
  EXPECT_EQ(Shaped(null + "," + calls + "}", {.null_content = false}),
            R"({"role":"assistant","content":"",)" + calls + "}");
  EXPECT_EQ(Shaped(null + "}", {}), Said("assistant", ""));
  EXPECT_EQ(Shaped(R"({"role":"assistant"})", {}), Said("assistant", ""));
}

TEST(ShapeMessages, BringsReasoningToWhereItIsRead) {
  const std::string before = R"({"role":"assistant","content":"a",)", after = R"(:"t"})";
  for (const char* given : {"\"reasoning_content\"", "\"reasoning\"", "\"thinking\""}) {
    const std::string message = before + given + after;
    EXPECT_EQ(Shaped(message, {}), message) << "it is read nowhere";
    EXPECT_EQ(Shaped(message, {.reasoning = ReasoningForm::kThinking}), before + "\"thinking\"" + after);
    EXPECT_EQ(Shaped(message, {.reasoning = ReasoningForm::kReasoning}), before + "\"reasoning\"" + after);
    EXPECT_EQ(Shaped(message, {.reasoning = ReasoningForm::kReasoningContent}),
              before + "\"reasoning_content\"" + after);
    EXPECT_EQ(Shaped(message, {.reasoning = ReasoningForm::kParts}),
              R"({"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"}]})");
  }
  EXPECT_EQ(Shaped(R"({"role":"assistant","content":null,"reasoning":"t"})", {.reasoning = ReasoningForm::kParts}),
            R"({"role":"assistant","content":[{"type":"thinking","thinking":"t"}]})");
  EXPECT_EQ(Shaped(before + R"("reasoning_content":null})", {.reasoning = ReasoningForm::kThinking}),
            Said("assistant", "a"));
  const std::string of_user = R"({"role":"user","content":"a","thinking":"t"})";
  EXPECT_EQ(Shaped(of_user, {.reasoning = ReasoningForm::kReasoning}), of_user);
}

TEST(ShapeMessages, SaysAllThreeInTwoWhereOnlyTwoAreTaken) {
  const ChatAbilities two = {.reasoning = ReasoningForm::kThinking, .reasoning_with_content_and_calls = false};
  EXPECT_EQ(Shaped(R"({"role":"assistant","content":"a","tool_calls":[{}],"reasoning_content":"t"})", two),
            R"({"role":"assistant","content":"","tool_calls":[{}],"thinking":"t\n\na"})");
  EXPECT_EQ(Shaped(R"({"role":"assistant","content":"a","reasoning_content":"t"})", two),
            R"({"role":"assistant","content":"a","thinking":"t"})");
}

TEST(ShapeMessages, KeepsMessagesThatSayNothingWhereThereAreNoOthers) {
  EXPECT_EQ(Shaped(Said("system", ""), {.system = false}), Said("system", ""));
}

TEST(ShapeMessages, GivesMessagesThatPassTheSameCheckAndAreLeftAsTheyAreTheSecondTime) {
  std::mt19937 random(7);
  const auto one_of = [&random](const std::vector<std::string>& texts) { return texts[random() % texts.size()]; };
  const auto some = [&random] { return random() % 2 == 0; };
  for (int round = 0; round < 5000; ++round) {
    std::string json;
    for (size_t i = 0, count = 1 + random() % 6; i < count; ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", R"({"role":")",
                      one_of({"system", "developer", "user", "assistant", "tool", "critic"}), R"(","content":)",
                      one_of({R"("a")", R"("")", "null", "[]", R"([{"type":"text","text":"b"}])",
                              R"([{"type":"image"},{"type":"text","text":"c"}])"}));
      if (some())
        absl::StrAppend(
            &json, R"(,"tool_calls":)",
            one_of({"null", "[]", "[{}]", "3", R"([{"function":{"arguments":"{}"}}])", R"([{"id":"1"},3])"}));
      if (some())
        absl::StrAppend(&json, ",\"", one_of({"thinking", "reasoning", "reasoning_content"}),
                        "\":", one_of({"null", "3", R"("t")", R"("")"}));
      json += "}";
    }
    const Json messages = Json::parse("[" + json + "]");
    ASSERT_TRUE(CheckMessages(messages).ok()) << json;
    const ChatAbilities abilities = {.string_content = some(),
                                     .typed_content = true,
                                     .null_content = some(),
                                     .system = some(),
                                     .late_system = some(),
                                     .developer = some(),
                                     .repeated_users = some(),
                                     .parallel_calls = some(),
                                     .any_call_id = some(),
                                     .arguments = some() ? ArgumentsForm::kObject : ArgumentsForm::kText,
                                     .text_arguments = some(),
                                     .reasoning = static_cast<ReasoningForm>(random() % 4),
                                     .reasoning_with_content_and_calls = true};
    const Json shaped = ShapeMessages(messages, abilities);
    ASSERT_TRUE(CheckMessages(shaped).ok()) << json << " became " << shaped.dump();
    ASSERT_EQ(ShapeMessages(shaped, abilities), shaped) << json;
  }
}

}  // namespace
}  // namespace stagecoach
