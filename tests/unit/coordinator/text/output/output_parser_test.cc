#include "coordinator/text/output/output_parser.h"

#include <fstream>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/output/output_reading.h"

namespace stagecoach {
namespace {

using enum OutputFormat;

TEST(OutputParserTest, ReasoningStandsBeforeContent) {
  EXPECT_EQ(Read(kHermesJson, "assistant\n", "<think>\nHm.\n</think>\n\nHi."), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kHermesJson, "assistant\n", " \n<think>Hm.</think>Hi.\n"), "R(Hm.) C(Hi.\n)");
  EXPECT_EQ(Read(kHermesJson, "assistant\n", "<think>\n\n</think>\n\nHi."), "C(Hi.)");
  EXPECT_EQ(Read(kHermesJson, "assistant\n", " Hi <think> there </think>"), "C( Hi <think> there </think>)");
  EXPECT_EQ(Read(kMistralArgs, "[/INST]", "[THINK]Hm.[/THINK]Hi."), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kGemma4, "<|turn>model\n", "<|channel>thought\nHm.\n<channel|>Hi.<channel|>"), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kGranite3, "", "<think>Hm.</think> <response>Hi.</response>"), "R(Hm.) C(Hi.)");
}

TEST(OutputParserTest, ReasoningThatIsTextKeepsItsMarks) {
  for (const auto& [format, text] :
       {std::pair{kGemma4, "<|channel>thought\nHm.\n<channel|>Hi."}, {kHermesJson, "<think>\nHm.\n</think>\n\nHi."}}) {
    EXPECT_EQ(Summary(OutputParser::Make(format, {.reasoning_is_text = true}, SomeTools())->Feed(text)),
              absl::StrCat("C(", text, ")"));
  }
}

TEST(OutputParserTest, ThePromptsEndDecidesWhereTheAnswerBegins) {
  EXPECT_EQ(Read(kHermesJson, "assistant\n<think>\n", "Hm.\n</think>\n\nHi."), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kHermesJson, "assistant\n<think>\n", "<think>Hm.</think>Hi."), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kHermesJson, "<think>\n\n</think>\n\n", "\n\nHi."), "C(Hi.)");
  EXPECT_EQ(Read(kPlain, "assistant\n<think>\n", "Hm.</think>Hi."), "R(Hm.) C(Hi.)");
  EXPECT_EQ(Read(kPlain, "assistant\n", "<think>Hm.</think>"), "C(<think>Hm.</think>)");
  const auto parser = OutputParser::Make(kHermesJson, {.inside_reasoning = true}, nullptr);
  EXPECT_TRUE(parser->inside_reasoning());
  EXPECT_EQ(Summary(parser->Feed("so far.</think>Hi.")), "R(so far.) C(Hi.)");
  EXPECT_FALSE(parser->inside_reasoning());
}

TEST(OutputParserTest, ReasoningThatIsNeverClosedIsReasoning) {
  EXPECT_EQ(Read(kHermesJson, "", "<think>Hm. </th"), "R(Hm. </th)");
  EXPECT_EQ(Read(kHermesJson, "", "<think>Hm.\n"), "R(Hm.\n)");
}

TEST(OutputParserTest, ACallComesWithItsNameAndArguments) {
  const std::string json = R"({"name": "look_up", "arguments": {"place": "Ulm"}})";
  EXPECT_EQ(Read(kHermesJson, "", "Well.\n<tool_call>\n" + json + "\n</tool_call>\n"),
            R"(C(Well.) look_up[]{"place": "Ulm"})");
  EXPECT_EQ(Read(kNemotronNanoV2, "", "<TOOLCALL>[" + json + ", {\"name\": \"stop\"}]</TOOLCALL>"),
            R"(look_up[]{"place": "Ulm"} stop[]{})");
  EXPECT_EQ(Read(kMistralSmall32, "", R"([TOOL_CALLS]look_up[CALL_ID]abc[ARGS]{"days": 1.50e10})"),
            R"(look_up[abc]{"days": 1.50e10})");
  EXPECT_EQ(
      Read(
          kDeepseekV31, "",
          R"(<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>Bye.)"),
      "stop[]{} C(Bye.)");
  EXPECT_EQ(Read(kLlama3Json, "", R"({"name": "look_up", "parameters": {"place": "Ulm"}} )"),
            R"(look_up[]{"place": "Ulm"})");
  EXPECT_EQ(Read(kGemma4, "", R"(<|tool_call>call:look_up{place:<|"|>U"m<|"|>,days:3}<tool_call|>)"),
            R"(look_up[]{"place": "U\"m", "days": 3})");
}

TEST(OutputParserTest, ArgumentsKeepTheTextThatTheModelWrote) {
  EXPECT_EQ(Read(kHermesJson, "",
                 R"(<tool_call>{"name": "stop", "arguments": { "b" :12345678901234567890123, "a":1.50 }}</tool_call>)"),
            R"(stop[]{ "b" :12345678901234567890123, "a":1.50 })");
}

TEST(OutputParserTest, TheSchemaSaysWhatAValueWithoutQuotesIs) {
  EXPECT_EQ(
      Read(kQwen3Coder, "",
           "<tool_call>\n<function=look_up>\n<parameter=place>\n12\n</parameter>\n<parameter=days>\n12\n</parameter>\n"
           "<parameter=note>\nNone\n</parameter>\n<parameter=more>\nTrue\n</parameter>\n</function>\n</tool_call>"),
      R"(look_up[]{"place": "12", "days": 12, "note": "None", "more": true})");
  EXPECT_EQ(
      Read(kGlm45, "", "\n<tool_call>look_up\n<arg_key>days</arg_key>\n<arg_value>many</arg_value>\n</tool_call>"),
      R"(look_up[]{"days": "many"})");
}

TEST(OutputParserTest, PythonsValuesBecomeJson) {
  EXPECT_EQ(
      Read(
          kLfm2, "",
          R"(<|tool_call_start|>[look_up(place='a"\'\x41\u00e9\q', days=[1, -2.5, {'k': None}], note=True), stop()]<|tool_call_end|>)"),
      R"(look_up[]{"place": "a\"'\u0041\u00e9\\q", "days": [1, -2.5, {"k": null}], "note": true} stop[]{})");
  EXPECT_EQ(Read(kLlama3Json, "", R"(<|python_tag|>look_up.call(place="Ulm"))"), R"(look_up[]{"place": "Ulm"})");
}

TEST(OutputParserTest, WithoutToolsTheTextOfACallIsContent) {
  const std::string call = "<tool_call>\n{\"name\": \"stop\"}\n</tool_call>";
  EXPECT_EQ(Read(kHermesJson, "", call, /*with_tools=*/false), "C(" + call + ")");
  const std::string message = "<|channel|>commentary to=functions.stop<|message|>{}";
  EXPECT_EQ(Read(kHarmony, "<|start|>assistant", message, /*with_tools=*/false), "C(" + message + ")");
}

TEST(OutputParserTest, WhatCannotBeReadAsACallIsContent) {
  for (const std::string call :
       {R"(<tool_call>{"name": )", R"(<tool_call>{"name": 5}</tool_call>)", R"(<tool_call>[]</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
        R"(<tool_call>{"name": "f",, "arguments": {}}</tool_call>)", R"(<tool_call>)"}) {
    EXPECT_EQ(Read(kHermesJson, "", call), "C(" + call + ")");
  }
  EXPECT_EQ(Read(kHermesJson, "", R"(<tool_call>{"name": "stop"}</tool_call><tool_call>x</tool_call>)"),
            "stop[]{} C(<tool_call>x</tool_call>)");
  EXPECT_EQ(Read(kLlama3Json, "", R"({"name": "stop"} is how)"), R"(C({"name": "stop"} is how))");
  EXPECT_EQ(Read(kLlama3Json, "", R"({"name": "fly"})"), R"(C({"name": "fly"}))");
  EXPECT_EQ(Read(kLfm2, "", "<|tool_call_start|>[stop(a=']<|tool_call_end|>"),
            "C(<|tool_call_start|>[stop(a=']<|tool_call_end|>)");
}

TEST(OutputParserTest, WhatStandsBeforeTheMarkOfALaterCallIsNoName) {
  EXPECT_EQ(Read(kMistralArgs, "", R"([TOOL_CALLS]stop{"a": 1}[TOOL_CALLS]stop[ARGS]{})"),
            R"(C([TOOL_CALLS]stop{"a": 1}) stop[]{})");
  EXPECT_EQ(Read(kKimiK2, "",
                 "<|tool_call_begin|>stop<|tool_call_end|><|tool_call_begin|>functions.stop:1"
                 "<|tool_call_argument_begin|>{}<|tool_call_end|>"),
            "C(<|tool_call_begin|>stop<|tool_call_end|>) stop[functions.stop:1]{}");
  for (const auto& [format, raw] :
       {std::pair{kGlm47, R"(<tool_call>{"name": "stop", "arguments": {}}</tool_call>)"},
        {kQwen3Coder, "<tool_call><function=look_up><parameter=place\nUlm</parameter></function></tool_call>"},
        {kGemma4, "<|tool_call>call:look_up{place}<tool_call|> at 12:30}<tool_call|>"}}) {
    EXPECT_EQ(Read(format, "", raw), absl::StrCat("C(", raw, ")"));
  }
}

TEST(OutputParserTest, AMarkInsideAStringOfACallIsPartOfTheString) {
  EXPECT_EQ(Read(kHermesJson, "", R"(<tool_call>{"name": "stop", "arguments": {"a": "</tool_call>"}}</tool_call>)"),
            R"(stop[]{"a": "</tool_call>"})");
}

TEST(OutputParserTest, ContentThatHasAFormHasNoCallsAndKeepsItsBlanks) {
  const auto read = [](OutputFormat format, const std::string& raw, const std::string& prompt_end = "") {
    return Read(format, prompt_end, raw, /*with_tools=*/true, /*has_form=*/true);
  };
  const std::string call = "<tool_call>\n{\"name\": \"stop\"}\n</tool_call>";
  EXPECT_EQ(read(kHermesJson, "See " + call), "C(See " + call + ")");
  EXPECT_EQ(read(kHermesJson, call + "\n" + call), "stop[]{} stop[]{}");
  EXPECT_EQ(read(kHermesJson, "<think>Hm.</think>\n \n" + call), "R(Hm.) stop[]{}");
  EXPECT_EQ(read(kHermesJson, "<think>Hm.</think>\n\n \n yes "), "R(Hm.) C( \n yes )");
  EXPECT_EQ(read(kHermesJson, "\n\n yes", "<think>\n\n</think>\n\n"), "C( yes)");
  EXPECT_EQ(read(kGlm45, "\n\n\t1"), "C(\t1)");
  EXPECT_EQ(read(kLlama3Json, R"({"name": "stop"})"), "stop[]{}");
  EXPECT_EQ(read(kMistralArgs, "[THINK]Hm.[/THINK]1[TOOL_CALLS]stop[ARGS]{}"), "R(Hm.) C(1[TOOL_CALLS]stop[ARGS]{})");
}

TEST(OutputParserTest, HarmonysMessagesAreReadByTheirHeads) {
  const std::string start = "<|start|>assistant";
  EXPECT_EQ(
      Read(kHarmony, start,
           "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Well.<|end|>"
           "<|start|>assistant to=functions.look_up<|channel|>commentary json<|message|>{\"place\": \"Ulm\"}<|call|>"),
      R"(R(Hm.) C(Well.) look_up[]{"place": "Ulm"})");
  EXPECT_EQ(Read(kHarmony, start, "Just text."), "C(Just text.)");
  EXPECT_EQ(Read(kHarmony, start, "<|channel|>final"), "");
  EXPECT_EQ(Read(kHarmony, start, " to=nobody"), "C( to=nobody)");
  EXPECT_EQ(Read(kHarmony, start, "<|start|>user<|message|>x<|end|>y"), "C(<|start|>user<|message|>xy)");
  EXPECT_EQ(Read(kHarmony, start + "<|channel|>analysis<|message|>", "Hm.<|end|>"), "R(Hm.)");
}

TEST(OutputParserTest, WhatIsTooLongForAHeadIsContent) {
  const std::string raw = "<|channel|>" + std::string(600, 'x');
  EXPECT_EQ(Read(kHarmony, "<|start|>assistant", raw + "<|message|>y"), "C(" + raw + "<|message|>y)");
  EXPECT_EQ(Summary(OutputParser::Make(kHarmony, {}, nullptr)->Feed(raw)), "C(" + raw + ")");
}

TEST(OutputParserTest, TextLeavesAsSoonAsItCannotBeAMark) {
  const auto parser = OutputParser::Make(kHermesJson, {}, SomeTools());
  EXPECT_EQ(Summary(parser->Feed("a <tool")), "C(a)");
  EXPECT_EQ(parser->held_bytes(), 6);
  EXPECT_EQ(Summary(parser->Feed("s>")), "C( <tools>)");
  EXPECT_EQ(Summary(parser->Feed(" \n")), "");
  EXPECT_EQ(Summary(parser->Feed("b")), "C( \nb)");
  EXPECT_EQ(Summary(OutputParser::Make(kLlama3Json, {}, SomeTools())->Feed(R"({"answer": 4)")), R"(C({"answer": 4))");
}

TEST(OutputParserTest, ACallLeavesAsSoonAsItIsComplete) {
  const auto parser = OutputParser::Make(kMistralArgs, {}, SomeTools());
  EXPECT_EQ(Summary(parser->Feed("[TOOL_CALLS]stop[ARGS]{")), "");
  EXPECT_EQ(Summary(parser->Feed("}")), "stop[]{}");
}

TEST(OutputParserTest, ACallThatDoesNotEndIsHeldBackToALimit) {
  for (const std::string& open : {std::string("<tool_call>{\"name\": \""), std::string("<tool_call>{\"name\": \"é")}) {
    const auto parser = OutputParser::Make(kHermesJson, {}, SomeTools());
    const std::string piece = [] {
      std::string bytes;
      while (bytes.size() < 10'000) bytes += "é";
      return bytes;
    }();
    std::string text = open;
    std::string got = parser->Feed(open).empty() ? "" : "too early";
    for (int i = 0; i < 40; ++i) {
      text += piece;
      for (const OutputDelta& delta : parser->Feed(piece)) {
        got += delta.text;
        EXPECT_NE(static_cast<uint8_t>(delta.text[0]) & 0xC0, 0x80) << "a code point was cut";
      }
      EXPECT_LE(parser->held_bytes(), OutputParser::kMostCallBytes + piece.size());
    }
    for (const OutputDelta& delta : parser->Finish()) got += delta.text;
    EXPECT_EQ(got, text);
  }
}

TEST(OutputParserTest, MuchWhiteSpaceIsNotHeldBack) {
  const auto parser = OutputParser::Make(kHermesJson, {}, SomeTools());
  std::string got;
  for (int i = 0; i < 1'000; ++i) {
    for (const OutputDelta& delta : parser->Feed("\n ")) got += delta.text;
    EXPECT_LE(parser->held_bytes(), 70);
  }
  for (const OutputDelta& delta : parser->Finish()) got += delta.text;
  EXPECT_EQ(got.size(), 2'000);
}

TEST(OutputParserTest, BytesThatAreNoTextPassThrough) {
  const std::string bytes("\xFF\x80<\xE2\x82 a\0b\xC3", 9);
  EXPECT_EQ(Read(kHermesJson, "", bytes), "C(" + bytes + ")");
  EXPECT_EQ(Read(kHermesJson, "", "<think>" + bytes + "</think>" + bytes), "R(" + bytes + ") C(" + bytes + ")");
}

// Of a stream without marks in it that mean something, nothing is lost and nothing comes twice; with marks, cutting it
// makes no difference, whatever they are and wherever they stand.
TEST(OutputParserTest, RandomStreamsAreReadTheSameHoweverTheyAreCut) {
  // clang-format off
  const std::string shards[] = {
      "<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"stop\"", ", \"arguments\": {", "}", "]",
      "[", "\n", " ", "text", "é", "<", "\"", "\\", "<function=stop>", "</function>", "<parameter=a>", "</parameter>",
      "[TOOL_CALLS]", "stop", "[ARGS]", "{}", "<|channel|>", "analysis", "<|message|>", "<|end|>", "<|start|>",
      "assistant", " to=functions.stop", "<|tool_call_start|>", "stop(a='", "')", "<|tool_call_end|>",
      "<|tool_call>call:", "<|\"|>", "<tool_call|>", "<channel|>", "<minimax:tool_call>", "<invoke name=\"stop\">",
      "</invoke>", "</minimax:tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>",
      "stop.call(a=1)", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁calls▁end｜>",
      "<response>", "</response>", "\\u00e9", "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"a\" string=\"true\">",
      "</｜DSML｜parameter>", "<｜DSML｜function_calls><｜DSML｜invoke name=\"stop\">", ", \"id\": ",
      std::string(250, 'x'), std::string(250, 'x'), "\"a\": \"" + std::string(250, 'y'),
  };
  // clang-format on
  std::mt19937 random(7);
  const auto any = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  for (int round = 0; round < 4'000; ++round) {
    std::string raw;
    for (size_t left = any(14) + 1; left > 0; --left) raw += shards[any(std::size(shards))];
    const std::vector<absl::string_view> names = OutputFormatNames();
    const OutputCase output{*OutputFormatByName(names[any(names.size())]), any(2) == 0 ? "<think>" : "", raw,
                            SomeTools()};
    const std::vector<OutputDelta> whole = ParseWhole(output);
    for (int cuts = 0; cuts < 4; ++cuts) {
      std::vector<std::string> pieces;
      for (size_t begin = 0; begin < raw.size();) {
        const size_t length = cuts == 0 ? 1 : any(cuts == 1 ? 300 : 12) + 1;
        pieces.push_back(raw.substr(begin, length));
        begin += length;
      }
      ASSERT_EQ(Summary(ParsePieces(output, pieces)), Summary(whole)) << OutputFormatName(output.format) << " " << raw;
    }
  }
}

TEST(OutputParserTest, ToolsOfAnotherShapeAreLeftOut) {
  const OutputTools tools(Json::parse(
      R"([1, {}, {"function": 2}, {"function": {"name": 3}}, {"function": {"name": "f", "parameters": []}},
          {"function": {"name": "g", "parameters": {"properties": {"a": 1, "b": {"type": "string"}}}}}])"));
  EXPECT_TRUE(tools.Has("f"));
  EXPECT_EQ(tools.Find("f", "a"), OutputTools::Parameter::kUnknown);
  EXPECT_EQ(tools.Find("g", "a"), OutputTools::Parameter::kOther);
  EXPECT_EQ(tools.Find("g", "b"), OutputTools::Parameter::kText);
  EXPECT_EQ(tools.Find("h", "b"), OutputTools::Parameter::kUnknown);
  EXPECT_TRUE(OutputTools(Json()).empty());
}

TEST(OutputParserTest, ASchemaAllowsTextInManyWays) {
  const auto allows_text = [](const std::string& schema) {
    const OutputTools tools(
        Json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"a": )" + schema + "}}}}]"));
    return tools.Find("f", "a") == OutputTools::Parameter::kText;
  };
  for (const std::string schema :
       {R"({"type": "string"})", R"({"type": ["null", "string"]})", R"({"enum": ["x", "y"]})",
        R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", R"({"oneOf": [{"anyOf": [{"type": "string"}]}]})"}) {
    EXPECT_TRUE(allows_text(schema)) << schema;
  }
  for (const std::string schema :
       {"{}", "true", R"({"type": "integer", "enum": ["x"]})", R"({"type": [1]})", R"({"enum": [1, null]})",
        R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", R"({"anyOf": "string"})"}) {
    EXPECT_FALSE(allows_text(schema)) << schema;
  }
}

TEST(OutputFormatTest, EveryFormatHasANameThatFindsIt) {
  const std::vector<absl::string_view> names = OutputFormatNames();
  EXPECT_EQ(names.size(), 22);
  for (const absl::string_view name : names) {
    EXPECT_EQ(OutputFormatName(OutputFormatByName(name).value()), name);
  }
  EXPECT_FALSE(OutputFormatByName("").has_value());
  EXPECT_FALSE(OutputFormatByName("Harmony").has_value());
}

TEST(OutputFormatTest, ATemplatesMarksTellTheFormat) {
  const std::pair<std::string, OutputFormat> templates[] = {
      {"{{ '<|im_start|>' + m.role }}", kPlain},
      {"<tool_call> {\"arguments\": }", kHermesJson},
      {"<tool_call>", kPlain},
      {"<tool_call><function=f><parameter=p> arguments", kQwen3Coder},
      {"<tool_call><function=f><parameter=p> <think>\\n", kQwen35},
      {"<tool_call><function=f><parameter=p> <think></think>", kNemotron3},
      {"<tool_call>f\n<arg_key>k</arg_key>\n<arg_value> arguments", kGlm45},
      {"<tool_call>f<arg_key>k</arg_key><arg_value> arguments", kGlm47},
      {"<|start|>assistant<|channel|>", kHarmony},
      {"<｜tool▁calls▁begin｜>", kDeepseekV31},
      {"<｜tool▁calls▁begin｜> ```json", kDeepseekR1},
      {"<｜DSML｜invoke", kDeepseekV32},
      {"<|start_header_id|> {\"name\": , \"parameters\": }", kLlama3Json},
      {"[TOOL_CALLS][ \"id\" ]", kMistralV3},
      {"[TOOL_CALLS]f[ARGS]", kMistralArgs},
      {"[TOOL_CALLS]f[CALL_ID]i[ARGS]", kMistralSmall32},
      {"<|tool_call>call:", kGemma4},
      {"<|START_ACTION|><|START_RESPONSE|>", kCommandR7b},
      {"<|start_of_role|><|tool_call|>", kGranite3},
      {"<TOOLCALL>", kNemotronNanoV2},
      {"List of tools: [", kLfm2},
      {"", kPlain},
  };
  for (const auto& [text, format] : templates) EXPECT_EQ(FindOutputFormat(text), format) << text;
}

// Outputs of models with what is to be read in them, and the templates of these models; not part of the project.
constexpr char kCases[] = "data/templates/outputs.jsonl";

std::vector<Json> Rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

OutputFormat FormatOfRow(const Json& row) {
  const std::string family = row["family"];
  if (family == "plain") return OutputFormat::kPlain;
  if (family == "hermes_json_open") return OutputFormat::kHermesJson;  // the prompt tells
  return OutputFormatByName(family).value();
}

OutputCase CaseOf(const Json& row) {
  const Json all = Json::parse(testing::ReadFileOrDie(testing::SharedPath("data/templates/outputs_tools.json")));
  Json tools = Json::array();
  for (const Json& tool : all) {
    for (const Json& name : row["tools"]) {
      if (tool["function"]["name"] == name) tools.push_back(tool);
    }
  }
  return {FormatOfRow(row), row["prompt_end"], row["raw"], std::make_shared<const OutputTools>(tools)};
}

std::string Stripped(const std::string& text) { return std::string(absl::StripAsciiWhitespace(text)); }

// As rows have it: reasoning_content, content, tool_calls.
Json Result(const std::vector<OutputDelta>& deltas, const Json& expected) {
  std::string reasoning;
  std::string content;
  Json calls = Json::array();
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputKind::kReasoning: reasoning += delta.text; break;
      case OutputKind::kContent: content += delta.text; break;
      case OutputKind::kCallStart: {
        const Json& wanted = expected["tool_calls"];
        calls.push_back({{"name", delta.text}});
        const bool counts = calls.size() <= wanted.size() && wanted[calls.size() - 1].contains("id");
        if (counts) calls.back()["id"] = delta.call_id;
        break;
      }
      case OutputKind::kCallArguments: calls.back()["arguments"] = Json::parse(delta.text); break;
      case OutputKind::kCallEnd: break;
    }
  }
  return {{"reasoning_content", Stripped(reasoning)}, {"content", Stripped(content)}, {"tool_calls", calls}};
}

// The order of keys does not count.
bool SameJson(const Json& one, const Json& other) {
  return nlohmann::json::parse(one.dump()) == nlohmann::json::parse(other.dump());
}

TEST(OutputCasesTest, EveryOutputIsReadAsExpected) {
  SHARED_FILE_OR_SKIP(path, kCases);
  int rows = 0;
  for (const Json& row : Rows(path)) {
    Json expected = row["expected"];
    expected["content"] = Stripped(expected["content"]);
    Json result = Result(ParseWhole(CaseOf(row)), expected);
    if (row.contains("or_content") && result["content"] == row["or_content"]) result["content"] = expected["content"];
    EXPECT_TRUE(SameJson(result, expected)) << row["family"] << " " << row["case"] << "\n"
                                            << row["raw"] << "\nexpected " << expected << "\ngot " << result;
    ++rows;
  }
  EXPECT_GE(rows, 345);
}

TEST(OutputCasesTest, EveryOutputIsReadTheSameHoweverItIsCut) {
  SHARED_FILE_OR_SKIP(path, kCases);
  for (const Json& row : Rows(path)) {
    const OutputCase output = CaseOf(row);
    EXPECT_EQ(CutThatMatters(output), "") << row["family"] << " " << row["case"] << "\n" << row["raw"];
    if (row.contains("chunks")) {
      EXPECT_EQ(ParsePieces(output, row["chunks"].get<std::vector<std::string>>()), ParseWhole(output));
    }
  }
}

// Calls that begin to leave before they are complete are the same calls.
TEST(OutputCasesTest, LongValuesAreReadAsShortOnes) {
  SHARED_FILE_OR_SKIP(path, kCases);
  std::string city = "Par";
  while (city.size() < 400) city += " and Par";
  city += "is";
  std::mt19937 random(7);
  int calls = 0;
  for (const Json& row : Rows(path)) {
    const bool is_broken =
        row.contains("or_incomplete_call") || absl::StartsWith(row["case"].get<std::string>(), "malformed");
    OutputCase output = CaseOf(row);
    output.raw = absl::StrReplaceAll(output.raw, {{"Paris", city}});
    const std::vector<OutputDelta> whole = ParseWhole(output);
    for (const size_t most : {1, 20, 500}) {
      std::vector<std::string> pieces;
      for (size_t begin = 0; begin < output.raw.size();) {
        pieces.push_back(output.raw.substr(begin, 1 + random() % most));
        begin += pieces.back().size();
      }
      EXPECT_EQ(ParsePieces(output, pieces), whole) << output.raw;
    }
    if (is_broken) continue;
    Json expected = Json::parse(absl::StrReplaceAll(row["expected"].dump(), {{"Paris", city}}));
    expected["content"] = Stripped(expected["content"]);
    Json result = Result(whole, expected);
    if (row.contains("or_content")) result["content"] = expected["content"];
    for (size_t i = 0; i < result["tool_calls"].size(); ++i) {
      if (row["family"] == "mistral_v3") expected["tool_calls"][i].erase("id"), result["tool_calls"][i].erase("id");
    }
    EXPECT_TRUE(SameJson(result, expected))
        << row["family"] << " " << row["case"] << "\nexpected " << expected << "\ngot " << result;
    calls += absl::StrContains(result["tool_calls"].dump(), city) ? 1 : 0;
  }
  EXPECT_GT(calls, 100);
}

TEST(OutputCasesTest, TemplatesShowTheirFormat) {
  SHARED_FILE_OR_SKIP(path, "data/templates/qwen3.jinja");
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::pair<std::string, std::string> templates[] = {
      {"qwen3", "hermes_json"},      {"qwen2.5", "hermes_json"}, {"qwen3-coder", "qwen3_coder"},
      {"llama-3.1", "llama_3_json"}, {"llama-2", "none"},        {"gpt-oss", "harmony"},
      {"glm-4.6", "glm_4_5"},        {"kimi-k2", "kimi_k2"},     {"deepseek-v3.1", "deepseek_v3_1"},
      {"minimax-m2", "minimax_m2"},  {"gemma-3", "none"},        {"mistral-small-3.2", "mistral_small_3_2"},
      {"hermes-3", "hermes_json"},   {"smollm3", "hermes_json"},
  };
  for (const auto& [name, format] : templates) {
    EXPECT_EQ(OutputFormatName(FindOutputFormat(testing::ReadFileOrDie(folder + name + ".jinja"))), format) << name;
  }
}

}  // namespace
}  // namespace stagecoach
