#include "coordinator/text/grammar/form/answer_form.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/text/grammar/compile.h"
#include "coordinator/text/grammar/json/json_schema.h"
#include "coordinator/text/output/output_grammar.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/grammar/grammar_texts.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::GrammarTexts;
using enum OutputFormat;

// A tokenizer of bytes and of control tokens with these texts; the first of them ends an answer.
std::unique_ptr<Tokenizer> TokenizerWith(const std::vector<std::string>& control) {
  testing::ToyVocabulary toy = testing::ToyBytePairs();
  for (const std::string& text : control) toy.Add(text, 3);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  if (!control.empty()) writer.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(260));
  return testing::OpenOrDie(writer);
}

const Tokenizer& OfBytes() {
  static const Tokenizer* const kTokenizer = TokenizerWith({}).release();
  return *kTokenizer;
}

std::shared_ptr<const GrammarVocabulary> VocabularyOf(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  std::vector<GrammarVocabulary::Kind> kinds;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    texts.push_back(tokenizer.TokenBytes(token, /*render_control=*/false));
    const absl::Span<const TokenId> ends = tokenizer.end_of_generation();
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    kinds.push_back(is_end                 ? GrammarVocabulary::Kind::kEnd
                    : texts.back().empty() ? GrammarVocabulary::Kind::kControl
                                           : GrammarVocabulary::Kind::kText);
  }
  return std::make_shared<const GrammarVocabulary>(std::move(texts), std::move(kinds));
}

Json Tools() {
  return Json::parse(R"([
      {"name": "look_up", "parameters": {"type": "object", "properties": {"place": {"type": "string"},
          "unit": {"type": "string", "enum": ["celsius", "kelvin"]}, "days": {"type": "integer", "minimum": 1},
          "tags": {"type": "array", "items": {"type": "boolean"}}}, "required": ["place"]}},
      {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}])");
}

std::vector<CallableTool> SomeTools(const Json& tools = Tools(), bool bind = true) {
  std::vector<CallableTool> callable;
  for (const Json& tool : tools) callable.push_back({tool["name"], tool["parameters"], bind});
  return callable;
}

std::shared_ptr<const OutputTools> ForParser(const Json& tools) {
  Json list = Json::array();
  for (const Json& tool : tools) list.push_back({{"type", "function"}, {"function", tool}});
  return std::make_shared<const OutputTools>(list);
}

AnswerForm WithContent(ContentForm content) { return {.content = std::move(content), .calls = std::nullopt}; }
const ContentForm kDigits = {.kind = ContentForm::Kind::kRegex, .schema = {}, .text = "\\d+", .choices = {}};

absl::Status ErrorOfForm(const AnswerForm& form, OutputFormat format) {
  return RulesOfAnswer(form, format, {}, OfBytes()).status();
}

GrammarTexts TextsOf(const AnswerForm& form, OutputFormat format, const OutputStart& start = {}) {
  const absl::StatusOr<GrammarRules> rules = RulesOfAnswer(form, format, start, OfBytes());
  EXPECT_EQ(rules.status().ToString(), "OK");
  return GrammarTexts(rules.ok() ? *rules : GrammarRules());
}

std::vector<std::string> Accepted(const AnswerForm& form, OutputFormat format, const std::string& prompt_end,
                                  const std::vector<std::string>& texts) {
  const GrammarTexts grammar = TextsOf(form, format, {.prompt_end = prompt_end});
  std::vector<std::string> accepted;
  for (const std::string& text : texts) {
    if (grammar.Accepts(text)) accepted.push_back(text);
  }
  return accepted;
}

// "R(..) C(..) name{..}"
std::string Summary(const std::vector<OutputDelta>& deltas) {
  std::string summary;
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputKind::kReasoning: absl::StrAppend(&summary, "R(", delta.text, ") "); break;
      case OutputKind::kContent: absl::StrAppend(&summary, "C(", delta.text, ") "); break;
      default: summary += delta.text;
    }
  }
  return summary;
}

std::vector<OutputDelta> Parsed(OutputFormat format, const std::string& text, const Json& tools,
                                const OutputStart& start = {}) {
  const std::unique_ptr<OutputParser> parser = OutputParser::Make(format, start, ForParser(tools));
  std::vector<OutputDelta> deltas = parser->Feed(text);
  for (OutputDelta& delta : parser->Finish()) deltas.push_back(std::move(delta));
  return deltas;
}

TEST(AnswerForm, ContentHasEachOfTheFormsThatARequestMayAskFor) {
  EXPECT_THAT(
      Accepted(WithContent({.kind = ContentForm::Kind::kJsonObject}), kPlain, "", {"{}", R"({"a": [1]})", "[]", "{} "}),
      SizeIs(2));
  EXPECT_THAT(Accepted(WithContent({.kind = ContentForm::Kind::kJsonSchema, .schema = {{"type", "integer"}}}), kPlain,
                       "", {"1", "\"1\""}),
              ElementsAre("1"));
  EXPECT_THAT(Accepted(WithContent(kDigits), kPlain, "", {"12", "a", ""}), ElementsAre("12"));
  EXPECT_THAT(Accepted(WithContent({.kind = ContentForm::Kind::kChoice, .choices = {"yes", "no, \"never\""}}), kPlain,
                       "", {"yes", "no, \"never\"", "no"}),
              ElementsAre("yes", "no, \"never\""));
  EXPECT_THAT(Accepted(WithContent({.kind = ContentForm::Kind::kGrammar, .text = "root ::= \"a\" root | \"b\""}),
                       kPlain, "", {"aab", "b", "a"}),
              ElementsAre("aab", "b"));
  const auto choice_error = [](std::vector<std::string> choices) {
    return ErrorOfForm(WithContent({.kind = ContentForm::Kind::kChoice, .choices = std::move(choices)}), kPlain);
  };
  EXPECT_THAT(choice_error({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "choice: expected one text or more, found none"));
  EXPECT_THAT(choice_error({std::string(300'000, 'a')}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 262144 bytes of texts in all")));
  EXPECT_THAT(choice_error(std::vector<std::string>(200'000, "a")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("found 400000")));
  EXPECT_THAT(ErrorOfForm(WithContent({.kind = ContentForm::Kind::kJsonSchema, .schema = {{"not", true}}}), kPlain),
              StatusIs(absl::StatusCode::kUnimplemented, Not(IsEmpty())));
}

TEST(AnswerForm, ReasoningComesBeforeTheContentWhereTheFormatHasIt) {
  const AnswerForm form = WithContent(kDigits);
  const std::vector<std::string> texts = {"1",
                                          "why</think>1",
                                          "why\n</think>\n\n1",
                                          "<think>\nwhy\n</think>\n\n1",
                                          "\n<think>why</think>1",
                                          "why</think>no</think>1",
                                          "why</think>a",
                                          "</think>1"};
  EXPECT_THAT(Accepted(form, kHermesJson, "assistant\n", texts), ElementsAre(texts[0], texts[3], texts[4]));
  EXPECT_THAT(Accepted(form, kHermesJson, "assistant\n<think>\n", texts),
              ElementsAre(texts[1], texts[2], texts[3], texts[4], texts[7]));
  EXPECT_THAT(Accepted(form, kQwen3Coder, "assistant\n", texts), ElementsAre("1"));
  EXPECT_THAT(Accepted(form, kPlain, "", texts), ElementsAre("1"));
  EXPECT_THAT(Accepted(form, kMistralArgs, "[/INST]", {"[THINK]a[/THINK]1", "1", "<think>a</think>1"}), SizeIs(2));
  EXPECT_THAT(
      Accepted(form, kCommandR7b, "", {"<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>1<|END_RESPONSE|>", "1"}),
      SizeIs(2));
  const std::string analysis = "<|channel|>analysis<|message|>a<|end|><|start|>assistant";
  EXPECT_THAT(Accepted(form, kHarmony, "<|start|>assistant",
                       {"<|channel|>final<|message|>1", analysis + "<|channel|>final<|message|>1",
                        analysis + analysis + "<|channel|>final<|message|>1", analysis + "1", "1",
                        "<|channel|>final<|message|>a", "<|channel|>analysis<|message|>a<|return|>"}),
              SizeIs(3));
  EXPECT_THAT(Accepted(form, kHarmony, "<|start|>assistant<|channel|>analysis<|message|>",
                       {"b<|end|><|start|>assistant<|channel|>final<|message|>1", "<|channel|>final<|message|>1"}),
              SizeIs(1));
}

// So the reader of the answer has it as the form has it.
TEST(AnswerForm, LineBreaksAloneStandBetweenReasoningAndContent) {
  const AnswerForm form = WithContent({.kind = ContentForm::Kind::kChoice, .choices = {" yes", "no"}});
  for (const auto& [format, text] : {std::pair{kHermesJson, "<think>a</think>\n\n yes"},
                                     {kGlm45, "\n<think>a</think>\n yes"},
                                     {kHermesJson, " yes"},
                                     {kGlm45, "\n yes"}}) {
    EXPECT_THAT(Accepted(form, format, "", {text}), SizeIs(1)) << text;
    EXPECT_THAT(Summary(Parsed(format, text, Tools(), {.content_has_form = true})), EndsWith("C( yes) ")) << text;
  }
  EXPECT_THAT(Accepted(form, kHermesJson, "", {"<think>a</think> \nno", "<think>a</think>\n\n\n\n\nno"}), IsEmpty());
}

TEST(AnswerForm, ContentThatSpellsAMarkIsContent) {
  const auto content_of = [](OutputFormat format, const std::string& text) {
    return Summary(Parsed(format, text, Tools(), {.content_has_form = true}));
  };
  const AnswerForm object = WithContent({.kind = ContentForm::Kind::kJsonObject});
  // These are found anywhere.
  const std::string begin = "<|channel|>final<|message|>", open = "<|START_RESPONSE|>", close = "<|END_RESPONSE|>";
  const std::string end = R"({"a": "\u003c|end|>\u003c|END_RESPONSE|>"})";
  EXPECT_THAT(Accepted(object, kHarmony, "<|start|>assistant", {begin + end, begin + R"({"a": "<|end|>"})"}),
              ElementsAre(begin + end));
  EXPECT_EQ(content_of(kHarmony, begin + end), absl::StrCat("C(", end, ") "));
  EXPECT_THAT(Accepted(object, kCommandR7b, "", {open + end + close, end, R"({"a": "<|END_RESPONSE|>"})"}), SizeIs(2));
  EXPECT_EQ(content_of(kCommandR7b, open + end + close), absl::StrCat("C(", end, ") "));
  // A call stands at the beginning.
  AnswerForm or_call = object;
  or_call.calls = CallForm{.tools = SomeTools()};
  const std::string call = "<tool_call>\n<function=look>\n</function>\n</tool_call>";
  const std::string spelled = R"({"a": "<function=look></function>"})";
  EXPECT_THAT(Accepted(or_call, kQwen3Coder, "", {spelled, call, call + "\n" + call, spelled + call}), SizeIs(3));
  EXPECT_EQ(content_of(kQwen3Coder, spelled), absl::StrCat("C(", spelled, ") "));
  EXPECT_EQ(content_of(kQwen3Coder, call + "\n" + call), "look{}look{}");
}

TEST(AnswerForm, MarksThatHaveAControlTokenInThemAreTakenWithIt) {
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerWith({"<|end|>", "｜DSML｜"});
  AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools()}};
  const std::string call =
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"look_up\">\n<｜DSML｜parameter name=\"place\" string=\"true\">"
      "Ulm</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  for (const bool required : {false, true}) {
    form.calls->required = required;
    const GrammarTexts grammar(*RulesOfAnswer(form, kDeepseekV32, {}, *tokenizer), VocabularyOf(*tokenizer));
    const auto accepts = [&](const std::string& text, bool as_tokens) {
      return grammar.AcceptsTokens(tokenizer->Encode(text, /*add_special=*/false, as_tokens));
    };
    EXPECT_TRUE(accepts(call, true));
    EXPECT_FALSE(accepts(call, false));
    EXPECT_EQ(accepts("Well.\n" + call, true), !required);
  }
}

TEST(AnswerForm, MarksThatAreControlTokensAreTakenAsTokensAlone) {
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerWith({"<|end|>", "<think>", "</think>", "<x>"});
  const GrammarTexts grammar(*RulesOfAnswer(WithContent(kDigits), kHermesJson, {}, *tokenizer),
                             VocabularyOf(*tokenizer));
  const auto accepts = [&](const std::string& text, bool as_tokens) {
    return grammar.AcceptsTokens(tokenizer->Encode(text, /*add_special=*/false, as_tokens));
  };
  EXPECT_TRUE(accepts("<think>hello</think>1", true));
  EXPECT_TRUE(accepts("1", true));
  EXPECT_FALSE(accepts("<think>hello</think>1", false));
  EXPECT_FALSE(accepts("<think>hello<x></think>1", true));
  EXPECT_FALSE(accepts("<think>a</think>1<x>", true));
}

// The row's own call, as the format's models write it.
TEST(AnswerForm, TakesTheCallsOfEveryFormatAsItsModelsWriteThem) {
  const std::string outputs = testing::SharedPath("data/templates/outputs.jsonl");
  const std::string tools_path = testing::SharedPath("data/templates/outputs_tools.json");
  if (outputs.empty() || tools_path.empty()) GTEST_SKIP() << "needs shared data/templates";
  std::ifstream tools_file(tools_path), rows(outputs);
  Json tools = Json::array();
  for (const Json& tool : Json::parse(tools_file)) tools.push_back(tool["function"]);
  int taken = 0;
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    const std::string name = row["case"], family = row["family"];
    if (name != "call" && name != "calls_parallel" && name != "call_no_arguments") continue;
    const OutputFormat format = OutputFormatByName(family).value_or(kHermesJson);  // hermes_json_open
    if (format == kGemma4 || format == kLfm2) continue;                            // refused; in JSON alone
    const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(tools), .required = true}};
    EXPECT_THAT(Accepted(form, format, row["prompt_end"], {row["raw"]}), SizeIs(1)) << family << " " << name << "\n"
                                                                                    << row["raw"];
    ++taken;
  }
  EXPECT_GE(taken, 55);
}

std::vector<OutputFormat> FormatsWithCalls() {
  std::vector<OutputFormat> formats;
  for (const absl::string_view name : OutputFormatNames()) {
    const OutputFormat format = *OutputFormatByName(name);
    if (format != kPlain && format != kGemma4) formats.push_back(format);
  }
  return formats;
}

// The calls in deltas, each checked: its name, and its arguments by the schema.
int CheckedCalls(const std::vector<OutputDelta>& deltas, const std::string& text) {
  std::map<std::string, std::unique_ptr<GrammarTexts>> arguments;
  for (const CallableTool& tool : SomeTools()) {
    arguments[tool.name] = std::make_unique<GrammarTexts>(GrammarTexts::Of([&](GrammarRules* rules) {
      JsonRules json(rules);
      return AddArguments(tool.parameters, tool.name, &json);
    }));
  }
  int calls = 0;
  std::string name, all;
  for (const OutputDelta& delta : deltas) {
    if (delta.kind == OutputKind::kCallStart) name = delta.text, all.clear();
    if (delta.kind == OutputKind::kCallArguments) all += delta.text;
    if (delta.kind != OutputKind::kCallEnd) continue;
    ++calls;
    EXPECT_EQ(arguments.count(name), 1) << name << " in " << text;
    const Json read = Json::parse(all, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(arguments.count(name) > 0 && arguments[name]->Accepts(read.dump())) << all << "\nin " << text;
  }
  return calls;
}

// What arguments and reasoning end with.
const std::vector<std::string>& TextEnds() {
  static const auto* const kEnds = new std::vector<std::string>{
      "\n</parameter>", "</parameter>", "</arg_value>",     "</｜DSML｜parameter>",
      "</think>",       "[/THINK]",     "<|END_THINKING|>", "<|end|><|start|>assistant<|channel|>commentary to="};
  return *kEnds;
}

TEST(AnswerForm, WhatIsWrittenAsRequiredCallsIsReadAsCalls) {
  std::mt19937 random(3);
  for (const OutputFormat format : FormatsWithCalls()) {
    GrammarTexts grammar =
        TextsOf({.content = std::nullopt, .calls = CallForm{.tools = SomeTools(), .required = true}}, format);
    for (int i = 0; i < 12; ++i) {
      const std::string text = grammar.RandomText(&random, TextEnds());
      const std::vector<OutputDelta> deltas = Parsed(format, text, Tools());
      EXPECT_GE(CheckedCalls(deltas, text), 1) << OutputFormatName(format) << ": " << text.substr(0, 500);
      if (format == kHarmony) continue;  // which may say something before
      EXPECT_THAT(Summary(deltas), Not(HasSubstr("C("))) << OutputFormatName(format) << ": " << text.substr(0, 500);
    }
  }
}

TEST(AnswerForm, OneCallIsOneCall) {
  std::mt19937 random(4);
  for (const OutputFormat format : FormatsWithCalls()) {
    GrammarTexts grammar = TextsOf(
        {.content = std::nullopt, .calls = CallForm{.tools = {SomeTools()[1]}, .required = true, .several = false}},
        format);
    for (int i = 0; i < 5; ++i) {
      const std::string text = grammar.RandomText(&random, TextEnds());
      EXPECT_EQ(CheckedCalls(Parsed(format, text, Tools()), text), 1)
          << OutputFormatName(format) << ": " << text.substr(0, 500);
    }
  }
}

TEST(AnswerForm, FreeTextHasNoCallsButInTheirForm) {
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools()}};
  const std::string call = "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"place\": \"a\"}}\n</tool_call>";
  EXPECT_THAT(Accepted(form, kHermesJson, "assistant\n",
                       {"", "Hello <tool <b>", call, absl::StrCat("Let me see.\n", call, "\n", call, " Done."),
                        absl::StrCat("<think>", call.substr(0, 20), "</think>", call), "<tool_call>", "<tool_call>x",
                        absl::StrCat(call, "<tool_call>"),
                        "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
                        "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>"}),
              SizeIs(5));
  // What begins as reasoning is that, and ends.
  EXPECT_THAT(Accepted(form, kHermesJson, "assistant\n",
                       {"<<think> <table>", "\n<thin", "<thi<", "<tool_box>", absl::StrCat("<", call),
                        absl::StrCat("\n", call), "<think>a</think><think>", "Hello <think>", "<think>a",
                        "\n<think><tool_call>a", "<think>", "<<tool_call>", absl::StrCat("<th", call, "<tool_call>")}),
              SizeIs(7));
  EXPECT_THAT(Accepted(form, kHermesJson, "assistant\n<think>\n\n</think>\n\n", {"<think>a", "<tool_call>"}),
              SizeIs(1));
  EXPECT_THAT(Accepted(form, kLlama3Json, "",
                       {"Hello {", "", "<b>", "  x", "{\"name\": \"look\", \"parameters\": {}}", "{", "{\"a\": 1}",
                        "<|python_tag|>look.call()", "<"}),
              SizeIs(6));
  std::mt19937 random(5);
  for (const OutputFormat format : FormatsWithCalls()) {
    GrammarTexts grammar = TextsOf(form, format);
    for (int i = 0; i < 6; ++i) {
      const std::string text = grammar.RandomText(&random, TextEnds());
      for (const OutputDelta& delta : Parsed(format, text, Tools())) {
        if (delta.kind != OutputKind::kContent) continue;
        for (const absl::string_view mark : GrammarOf(format).calls) {
          EXPECT_TRUE(format == kLlama3Json || !absl::StrContains(delta.text, mark)) << text;
        }
      }
      CheckedCalls(Parsed(format, text, Tools()), text);
    }
  }
}

TEST(AnswerForm, FreeTextHasTheMarksThatAreNoPartOfIt) {
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools()}};
  const std::string call =
      "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"look\", \"parameters\": {}}\n]<|END_ACTION|>";
  const std::string thought = "<|START_THINKING|>Hm.<|END_THINKING|>";
  EXPECT_THAT(Accepted(form, kCommandR7b, "<|CHATBOT_TOKEN|>",
                       {"<|START_RESPONSE|>Hello.<|END_RESPONSE|>",
                        thought + "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", "Hello.<|END_RESPONSE|>", thought + call,
                        call, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>" + call, "<|START_RESPONSE|><|START_ACTION|>"}),
              SizeIs(6));
}

TEST(AnswerForm, CallsMayStandInPlaceOfContent) {
  AnswerForm form = WithContent(kDigits);
  form.calls = CallForm{.tools = SomeTools()};
  EXPECT_THAT(
      Accepted(form, kMistralArgs, "[/INST]", {"12", "[TOOL_CALLS]look[ARGS]{}", "a", "12[TOOL_CALLS]look[ARGS]{}"}),
      SizeIs(2));
  EXPECT_THAT(Accepted(form, kHarmony, "<|start|>assistant",
                       {"<|channel|>final<|message|>12",
                        "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}",
                        "<|channel|>commentary<|message|>Well.<|end|><|start|>assistant<|channel|>final<|message|>12",
                        "<|channel|>final<|message|>a"}),
              SizeIs(3));
}

TEST(AnswerForm, ArgumentsThatAreNotBoundAreAnyObject) {
  const AnswerForm form = {.content = std::nullopt,
                           .calls = CallForm{.tools = SomeTools(Tools(), /*bind=*/false), .required = true}};
  EXPECT_THAT(Accepted(form, kMistralArgs, "", {"[TOOL_CALLS]look[ARGS]{\"a\": [1]}", "[TOOL_CALLS]look[ARGS]1"}),
              SizeIs(1));
  EXPECT_THAT(Accepted(form, kGlm47, "",
                       {"<tool_call>look<arg_key>a</arg_key><arg_value>b < c</arg_value></tool_call>",
                        "<tool_call>look</tool_call>", "<tool_call>none</tool_call>"}),
              SizeIs(2));
}

// What stands around an argument that is JSON.
std::pair<std::string, std::string> AroundArgument(OutputFormat format, const std::string& tool,
                                                   const std::string& name) {
  switch (format) {
    case kGlm45:
      return {absl::StrCat("<tool_call>", tool, "\n<arg_key>", name, "</arg_key>\n<arg_value>"),
              "</arg_value>\n</tool_call>"};
    case kGlm47:
      return {absl::StrCat("<tool_call>", tool, "<arg_key>", name, "</arg_key><arg_value>"),
              "</arg_value></tool_call>"};
    case kMinimaxM2:
      return {absl::StrCat("<minimax:tool_call>\n<invoke name=\"", tool, "\">\n<parameter name=\"", name, "\">"),
              "</parameter>\n</invoke>\n</minimax:tool_call>"};
    case kDeepseekV32:
      return {absl::StrCat("<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"", tool, "\">\n<｜DSML｜parameter name=\"",
                           name, "\" string=\"false\">"),
              "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"};
    default:
      return {absl::StrCat("<tool_call>\n<function=", tool, ">\n<parameter=", name, ">\n"),
              absl::StrCat("\n</parameter>\n</function>\n</tool_call>", format == kNemotron3 ? "\n" : "")};
  }
}
constexpr OutputFormat kWithTags[] = {kQwen3Coder, kQwen35, kNemotron3, kGlm45, kGlm47, kMinimaxM2, kDeepseekV32};

TEST(AnswerForm, ArgumentsInTagsMayHoldTheTextOfATag) {
  const Json tools =
      Json::parse(R"([{"name": "edit", "parameters": {"type": "object", "required": ["all"], "properties": {
      "all": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}}}}}])");
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(tools), .required = true}};
  for (const OutputFormat format : kWithTags) {
    const auto [before, after] = AroundArgument(format, "edit", "all");
    const std::string end = after.substr(0, after.find('>') + 1);
    const Json value = Json::array({{{"new", end}, {"old", "a < b"}}});
    const std::string raw = CompactJson(value), spelled = absl::StrReplaceAll(raw, {{"<", "\\u003c"}});
    const std::string text = absl::StrCat(before, spelled, after);
    EXPECT_THAT(Accepted(form, format, "", {absl::StrCat(before, raw, after), text}), ElementsAre(text));
    EXPECT_EQ(Summary(Parsed(format, text, tools)), absl::StrCat("edit{\"all\": ", spelled, "}"));
  }
}

TEST(AnswerForm, ArgumentsInTagsAreAmongTheTextsThatTheSchemaNames) {
  const auto takes = [](OutputFormat format, const Json& schema, const std::string& value) {
    const Json parameters = {{"properties", {{"x", schema}}}, {"required", {"x"}}};
    const Json tools = Json::array({{{"name", "f"}, {"parameters", parameters}}});
    const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(tools), .required = true}};
    const auto [before, after] = AroundArgument(format, "f", "x");
    return !Accepted(form, format, "", {absl::StrCat(before, value, after)}).empty();
  };
  const Json optional = Json::parse(R"({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]})");
  for (const OutputFormat format : {kQwen3Coder, kGlm45, kMinimaxM2}) {
    EXPECT_TRUE(takes(format, optional, "a"));
    EXPECT_FALSE(takes(format, optional, "c"));
    EXPECT_TRUE(takes(format, {{"anyOf", {{{"const", "a"}}, {{"type", "string"}}}}}, "c"));
    EXPECT_TRUE(takes(format, {{"enum", {1, 2}}}, "1"));
    EXPECT_FALSE(takes(format, {{"enum", {1, 2}}}, "3"));
  }
  const auto tools_with = [](const Json& parameters) {
    return SomeTools(Json::array({{{"name", "f"}, {"parameters", parameters}}}));
  };
  const Json parameters = {{"properties", {{"x", {{"enum", {"</parameter>"}}}}}}, {"required", {"x"}}};
  EXPECT_THAT(
      ErrorOfForm({.content = std::nullopt, .calls = CallForm{.tools = tools_with(parameters), .required = true}},
                  kQwen35),
      StatusIs(absl::StatusCode::kUnimplemented,
               "tool 'f': the enum of its argument 'x' cannot be written in qwen3_5: choose another"));
  const AnswerForm optional_x = {
      .content = std::nullopt,
      .calls = CallForm{.tools = tools_with({{"properties", parameters["properties"]}}), .required = true}};
  EXPECT_THAT(Accepted(optional_x, kQwen35, "", {"<tool_call>\n<function=f>\n</function>\n</tool_call>"}), SizeIs(1));
  // This format says itself what is a text.
  EXPECT_TRUE(takes(kDeepseekV32, {{"enum", {"</｜DSML｜parameter>"}}}, R"("\u003c/｜DSML｜parameter>")"));
}

TEST(AnswerForm, HoldsAsManyToolsAsAgentsHave) {
  Json tools = Json::array();
  for (int i = 0; i < 64; ++i) {
    Json properties = {
        {"command", {{"type", "string"}, {"minLength", 1}, {"maxLength", 100}}},
        {"timeout", {{"type", "number"}, {"maximum", 600'000}}},
        {"mode", {{"enum", {"fast", "careful", "off"}}}},
        {"line", {{"type", {"integer", "null"}}, {"minimum", 0}}},
        {"edits",
         {{"type", "array"},
          {"minItems", 1},
          {"items",
           {{"type", "object"},
            {"required", {"old", "new"}},
            {"properties",
             {{"old", {{"type", "string"}}}, {"new", {{"type", "string"}}}, {"all", {{"type", "boolean"}}}}}}}}},
        {"when", {{"type", "string"}, {"format", "date-time"}}}};
    tools.push_back({{"name", absl::StrCat("tool_number_", i)},
                     {"parameters", {{"type", "object"}, {"properties", properties}, {"required", {"command"}}}}});
  }
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(tools)}};
  const std::vector<OutputFormat> formats = FormatsWithCalls();
  for (size_t i = 0; i < formats.size(); i += testing::kSanitized ? 4 : 1) {
    const OutputFormat format = formats[i];
    const absl::StatusOr<GrammarRules> rules = RulesOfAnswer(form, format, {}, OfBytes());
    ASSERT_EQ(rules.status().ToString(), "OK");
    EXPECT_EQ(CompileGrammar(*rules).status().ToString(), "OK") << OutputFormatName(format);
  }
}

TEST(AnswerForm, RefusesCallsThatItCannotBindByName) {
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(), .required = true}};
  for (const OutputFormat format : {kGemma4, kPlain}) {
    EXPECT_THAT(ErrorOfForm(form, format), StatusIs(absl::StatusCode::kUnimplemented,
                                                    HasSubstr(absl::StrCat("'", OutputFormatName(format), "'"))));
  }
  const Json odd = Json::parse(R"([{"name": "f", "parameters": {"properties": {"a>b": {}}, "required": ["a>b"]}}])");
  EXPECT_THAT(
      ErrorOfForm({.content = std::nullopt, .calls = CallForm{.tools = SomeTools(odd), .required = true}}, kQwen35),
      StatusIs(absl::StatusCode::kUnimplemented,
               "tool 'f': the name of its argument 'a>b' cannot be written in qwen3_5: choose another"));
}

TEST(AnswerForm, NamesTheToolThatIsTooMuch) {
  const Json large = Json::parse(R"([{"name": "look", "parameters": {"properties": {}}}, {"name": "f", "parameters": {
      "properties": {"a": {"type": "array", "items": {"properties": {"b": {}, "c": {}}}, "minItems": 30000}}}}])");
  const AnswerForm form = {.content = std::nullopt, .calls = CallForm{.tools = SomeTools(large), .required = true}};
  EXPECT_THAT(
      CompileGrammar(*RulesOfAnswer(form, kHermesJson, {}, OfBytes())).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("its largest rule is 'arguments of f/properties/a'")));
  const Json many = Json::array({{{"name", "f"}, {"parameters", {{"title", std::string(300'000, 'a')}}}}});
  EXPECT_THAT(
      ErrorOfForm({.content = std::nullopt, .calls = CallForm{.tools = SomeTools(many), .required = true}}, kQwen35),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("tool 'f': schema: expected at most")));
}

}  // namespace
}  // namespace stagecoach
