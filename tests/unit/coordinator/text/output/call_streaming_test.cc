// Calls while they are written.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/utf8.h"
#include "tests/unit/coordinator/text/output/output_reading.h"

namespace stagecoach {
namespace {

using enum OutputFormat;

enum class Spelling { kJson, kPlain, kPython };

// look_up(place = a text), around the text.
struct CallForm {
  OutputFormat format;
  std::string before, after;
  Spelling spelling = Spelling::kJson;
};

std::vector<CallForm> CallForms() {
  const std::string json = R"({"name": "look_up", "arguments": {"place": ")", bare = R"({"place": ")";
  const std::string qwen = "<tool_call>\n<function=look_up>\n<parameter=place>\n";
  const std::string qwen_end = "\n</parameter>\n</function>\n</tool_call>";
  const std::string fence_end = "\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  return {
      {kHermesJson, "<tool_call>\n" + json, "\"}}\n</tool_call>"},
      {kQwen3Coder, qwen, qwen_end, Spelling::kPlain},
      {kQwen35, qwen, qwen_end, Spelling::kPlain},
      {kNemotron3, qwen, qwen_end, Spelling::kPlain},
      {kHarmony, "<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>" + bare, "\"}<|call|>"},
      {kGlm45, "<tool_call>look_up\n<arg_key>place</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>",
       Spelling::kPlain},
      {kGlm47, "<tool_call>look_up<arg_key>place</arg_key><arg_value>", "</arg_value></tool_call>", Spelling::kPlain},
      {kDeepseekV31, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>" + bare,
       "\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {kDeepseekR1, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n" + bare,
       fence_end},
      {kDeepseekV32,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"look_up\">\n<｜DSML｜parameter name=\"place\" "
       "string=\"true\">",
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", Spelling::kPlain},
      {kKimiK2, "<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>" + bare,
       "\"}<|tool_call_end|><|tool_calls_section_end|>"},
      {kLlama3Json, R"({"name": "look_up", "parameters": {"place": ")", "\"}}"},
      {kLlama3Json, "<|python_tag|>look_up.call(place='", "')", Spelling::kPython},
      {kMistralV3, "[TOOL_CALLS][" + json, "\"}}]"},
      {kMistralSmall32, "[TOOL_CALLS]look_up[CALL_ID]abc[ARGS]" + bare, "\"}"},
      {kMistralArgs, "[TOOL_CALLS]look_up[ARGS]" + bare, "\"}"},
      {kMinimaxM2, "<minimax:tool_call>\n<invoke name=\"look_up\">\n<parameter name=\"place\">",
       "</parameter>\n</invoke>\n</minimax:tool_call>", Spelling::kPlain},
      {kGemma4, "<|tool_call>call:look_up{place:<|\"|>", "<|\"|>}<tool_call|>", Spelling::kPlain},
      {kCommandR7b, R"(<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "look_up", "parameters": {"place": ")",
       "\"}}]<|END_ACTION|>"},
      {kLfm2, "<|tool_call_start|>[look_up(place='", "')]<|tool_call_end|>", Spelling::kPython},
      {kGranite3, "<|tool_call|>[" + json, "\"}}]"},
      {kNemotronNanoV2, "<TOOLCALL>[" + json, "\"}}]</TOOLCALL>"},
  };
}

std::string Spell(const std::string& text, Spelling spelling) {
  if (spelling == Spelling::kPlain) return text;
  std::string json = JsonString(text);
  json = json.substr(1, json.size() - 2);
  if (spelling == Spelling::kJson) return absl::StrReplaceAll(json, {{"😀", "\\ud83d\\uDE00"}});
  return absl::StrReplaceAll(json, {{"\\\"", "\""}, {"'", "\\'"}});
}

std::string RawOf(const CallForm& form, const std::string& text) {
  return absl::StrCat(form.before, Spell(text, form.spelling), form.after);
}

// With everything that is written in another way somewhere.
std::string SampleText(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "say \"a\" \\ 'b' é😀\n<b>\t12 </p\n\n";
  return text + ".";
}

std::string NameOf(const CallForm& form) { return absl::StrCat(OutputFormatName(form.format), " ", form.before); }

// What a parser has given after each byte: the arguments of all calls so far.
struct ByteFeed {
  explicit ByteFeed(const OutputCase& output)
      : parser(OutputParser::Make(output.format, {.prompt_end = output.prompt_end}, output.tools)) {}

  void Feed(char byte) {
    for (const OutputDelta& delta : parser->Feed(absl::string_view(&byte, 1))) {
      if (delta.kind == OutputKind::kCallStart) ++started;
      if (delta.kind == OutputKind::kCallEnd) ++ended;
      if (delta.kind != OutputKind::kCallArguments) continue;
      arguments += delta.text;
      ++fragments;
      EXPECT_FALSE(IsContinuation(delta.text[0])) << "a character was cut";
    }
  }

  std::unique_ptr<OutputParser> parser;
  int started = 0, ended = 0, fragments = 0;
  std::string arguments;
};

TEST(CallStreamingTest, EveryFormatIsThere) {
  std::vector<std::string> names, all;
  for (const CallForm& form : CallForms()) {
    if (names.empty() || names.back() != OutputFormatName(form.format))
      names.emplace_back(OutputFormatName(form.format));
  }
  for (const absl::string_view name : OutputFormatNames()) {
    if (name != "none") all.emplace_back(name);
  }
  EXPECT_EQ(names, all);
}

TEST(CallStreamingTest, ALongStringLeavesWhileItIsWrittenInEveryFormat) {
  const std::string text = SampleText(testing::kSanitized ? 5'000 : 20'000);
  for (const CallForm& form : CallForms()) {
    SCOPED_TRACE(NameOf(form));
    const OutputCase output{form.format, "", RawOf(form, text), SomeTools()};
    const std::vector<OutputDelta> whole = ParseWhole(output);
    ASSERT_EQ(whole.size(), 3u);
    EXPECT_EQ(whole[0].text, "look_up");
    EXPECT_EQ(Json::parse(whole[1].text), Json({{"place", text}}));
    ByteFeed feed(output);
    const size_t text_end = output.raw.size() - form.after.size();
    for (size_t i = 0; i < output.raw.size(); ++i) {
      feed.Feed(output.raw[i]);
      EXPECT_EQ(feed.started, i + 1 < OutputParser::kTrialBytes ? 0 : 1) << i;
      if (feed.started == 0 || i >= text_end) continue;
      ASSERT_LE(feed.parser->held_bytes(), 24u) << "more than an end mark or a pair of surrogates at " << i;
    }
    EXPECT_EQ(feed.arguments, whole[1].text);
    EXPECT_GT(feed.fragments, static_cast<int>(text.size() / 3));
    EXPECT_LE(feed.parser->scanned_bytes(), 8 * output.raw.size());
    for (const OutputDelta& delta : feed.parser->Finish()) EXPECT_EQ(delta.kind, OutputKind::kCallEnd);
  }
}

TEST(CallStreamingTest, WhatHasLeftIsNeverHalfAnEscape) {
  const std::string text = SampleText(testing::kSanitized ? 300 : 600);
  for (const CallForm& form : CallForms()) {
    SCOPED_TRACE(NameOf(form));
    const OutputCase output{form.format, "", RawOf(form, text), SomeTools()};
    ByteFeed feed(output);
    for (size_t i = 0; i + form.after.size() < output.raw.size(); ++i) {
      feed.Feed(output.raw[i]);
      if (feed.started == 0) continue;
      const Json so_far = Json::parse(feed.arguments + "\"}", nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(so_far.is_object()) << feed.arguments;
      EXPECT_EQ(text.rfind(so_far["place"].get<std::string>(), 0), 0u);
    }
  }
}

TEST(CallStreamingTest, ACallThatIsNotWrittenToItsEndKeepsWhatHasLeft) {
  const std::string text = SampleText(300);
  for (const CallForm& form : CallForms()) {
    SCOPED_TRACE(NameOf(form));
    const std::string raw = RawOf(form, text);
    const std::string whole = ParseWhole({form.format, "", raw, SomeTools()})[1].text;
    for (size_t size = 1; size < raw.size(); size += testing::kSanitized ? 23 : 5) {
      const OutputCase output{form.format, "", raw.substr(0, size), SomeTools()};
      const std::vector<OutputDelta> deltas = ParseWhole(output);
      std::vector<std::string> bytes;
      for (const char byte : output.raw) bytes.emplace_back(1, byte);
      ASSERT_EQ(ParsePieces(output, bytes), deltas) << output.raw;
      if (size < OutputParser::kTrialBytes) {
        for (const OutputDelta& delta : deltas) EXPECT_EQ(delta.kind, OutputKind::kContent);
        continue;
      }
      ASSERT_GE(deltas.size(), 3u);
      EXPECT_EQ(deltas[0].text, "look_up");
      EXPECT_EQ(deltas[2].kind, OutputKind::kCallEnd);
      if (deltas[1].text == whole) continue;  // with content behind it that a mark was to be
      ASSERT_EQ(deltas.size(), 3u) << Summary(deltas);
      // But for an escape or a mark that was cut.
      const std::string& text = deltas[1].text;
      EXPECT_EQ(whole.rfind(text.substr(0, std::max<size_t>(text.size(), 24) - 24), 0), 0u) << text;
    }
  }
}

// 300 bytes.
const std::string& Padding() {
  static const std::string padding(300, '.');
  return padding;
}

TEST(CallStreamingTest, ACallThatBreaksAfterItHasBegunToLeaveGivesItsRestAsArguments) {
  const std::string& text = Padding();
  EXPECT_EQ(
      Read(kHermesJson, "",
           "Hm.<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"" + text + "\", \"b\": oh}}</tool_call>Hi."),
      "C(Hm.) stop[]{\"a\": \"" + text + "\", \"b\": oh}} C(Hi.)");
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"" + text + "\\d\"}}"),
            "stop[]{\"a\": \"" + text + "\\d\"}}");
  EXPECT_EQ(Read(kQwen3Coder, "",
                 "<tool_call><function=look_up><parameter=place>" + text + "</parameter>oh</function></tool_call>Hi."),
            "look_up[]{\"place\": \"" + text + "\"oh</function> C(Hi.)");
  EXPECT_EQ(Read(kLfm2, "", "<|tool_call_start|>[stop(a='" + text + "', b=oh)]<|tool_call_end|>Hi."),
            "stop[]{\"a\": \"" + text + "\", \"b\": oh)] C(Hi.)");
  EXPECT_EQ(Read(kGemma4, "", "<|tool_call>call:stop{a:<|\"|>" + text + "<|\"|>,b:oh}<tool_call|>Hi."),
            "stop[]{\"a\": \"" + text + "\", \"b\": oh} C(Hi.)");
  EXPECT_EQ(Read(kHarmony, "<|start|>assistant",
                 "<|channel|>commentary to=functions.stop<|message|>{\"a\": \"" + text + "\", oh}<|end|>Hi."),
            "stop[]{\"a\": \"" + text + "\", oh} C(Hi.)");
  // Of arguments in a string too, and no more of the call than these.
  EXPECT_EQ(
      Read(kHermesJson, "", "<tool_call>{\"name\": \"stop\", \"arguments\": \"{\\\"a\\\": " + text + "</tool_call>Hi."),
      "stop[]\"{\\\"a\\\": " + text + " C(Hi.)");
  // The next call ends it where the format has no mark for that.
  EXPECT_EQ(Read(kMistralArgs, "", "[TOOL_CALLS]stop[ARGS]{\"a\": \"" + text + "\", oh}[TOOL_CALLS]stop[ARGS]{}"),
            "stop[]{\"a\": \"" + text + "\", oh} stop[]{}");
}

TEST(CallStreamingTest, OnlyTheFirstBytesDecideWhetherWhatBreaksIsACall) {
  const std::string before = "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"";
  for (const size_t breaks_at : {OutputParser::kTrialBytes - 1, OutputParser::kTrialBytes}) {
    std::string raw = before + Padding();
    raw = raw.substr(0, breaks_at) + "\n\\x and more";
    const std::string content = Read(kHermesJson, "", raw);
    EXPECT_EQ(absl::StrContains(content, "C("), breaks_at + 3 <= OutputParser::kTrialBytes) << content;
  }
  const std::string just = before + Padding().substr(0, OutputParser::kTrialBytes - 2 - before.size()) + "\\x";
  ASSERT_EQ(just.size(), OutputParser::kTrialBytes);
  EXPECT_EQ(Read(kHermesJson, "", just), "C(" + just + ")");
  const std::string later = before + Padding().substr(0, OutputParser::kTrialBytes - 1 - before.size()) + "\\x";
  EXPECT_TRUE(absl::StartsWith(Read(kHermesJson, "", later), "stop[]{\"a\": \"."));
}

TEST(CallStreamingTest, ArgumentsThatAreCompleteAreNotSpoiltByWhatFollows) {
  const std::string call = "{\"name\": \"stop\", \"arguments\": {\"a\": \"" + Padding() + "\"}";
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>" + call), "stop[]{\"a\": \"" + Padding() + "\"}");
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>" + call + ", \"id\": oh}</tool_call>"),
            "stop[]{\"a\": \"" + Padding() + "\"} C(, \"id\": oh}</tool_call>)");
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>" + call + "\n</tool_call>Hi."),
            "stop[]{\"a\": \"" + Padding() + "\"} C(Hi.)")
      << "without the last brace";
  EXPECT_EQ(Read(kLlama3Json, "", call + "} is how."), "stop[]{\"a\": \"" + Padding() + "\"} C( is how.)");
  EXPECT_EQ(Read(kLlama3Json, "", "<|python_tag|>stop.call(a=\"" + Padding() + "\") is how."),
            "stop[]{\"a\": \"" + Padding() + "\"} C( is how.)");
}

TEST(CallStreamingTest, CallsOfAListLeaveOneByOne) {
  const std::string first = "{\"name\": \"stop\", \"arguments\": {\"a\": \"" + Padding() + "\"}}";
  const std::string raw = "[TOOL_CALLS][" + first + " , {\"name\": \"stop\", \"arguments\": {}, \"id\": \"xyz\"}]";
  EXPECT_EQ(Read(kMistralV3, "", raw), "stop[]{\"a\": \"" + Padding() + "\"} stop[xyz]{}");
  EXPECT_EQ(Read(kLfm2, "", "<|tool_call_start|>[stop(a='" + Padding() + "'), stop()]<|tool_call_end|>"),
            "stop[]{\"a\": \"" + Padding() + "\"} stop[]{}");
  // Those before one that breaks stay calls.
  EXPECT_EQ(Read(kMistralV3, "", "[TOOL_CALLS][{\"name\": \"stop\"}, {\"name\": 5}]"), "stop[]{} C(, {\"name\": 5}])");
}

TEST(CallStreamingTest, ArgumentsWaitForTheName) {
  const std::string raw = "<tool_call>{\"arguments\": {\"a\": \"" + Padding() + "\"}, \"name\": \"stop\"}</tool_call>";
  EXPECT_EQ(Read(kHermesJson, "", raw), "stop[]{\"a\": \"" + Padding() + "\"}");
  const std::string unnamed = "<tool_call>{\"arguments\": {\"a\": \"" + Padding() + "\"}\n</tool_call>";
  EXPECT_EQ(Read(kHermesJson, "", unnamed), "C(" + unnamed + ")");
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>{\"arguments\": {\"a\": \"" + Padding() + "\"}, \"name\": \"\"}"),
            "C(<tool_call>{\"arguments\": {\"a\": \"" + Padding() + "\"}, \"name\": \"\"})");
}

TEST(CallStreamingTest, ArgumentsInAStringWaitForItsEnd) {
  const std::string object = "{\"a\": \"" + SampleText(300) + "\"}";
  const std::string arguments = CompactJson({{"a", SampleText(300)}});
  EXPECT_EQ(Read(kHermesJson, "",
                 "<tool_call>{\"name\": \"stop\", \"arguments\": " + JsonString(arguments) + "}</tool_call>"),
            "stop[]" + arguments);
  for (const std::string nothing : {"null", "\"\"", "\" \\n\""}) {
    EXPECT_EQ(Read(kHermesJson, "", "<tool_call>{\"name\": \"stop\", \"arguments\": " + nothing + "}</tool_call>"),
              "stop[]{}");
  }
  const std::string none = "<tool_call>{\"name\": \"stop\", \"arguments\": \"[1]\"}</tool_call>";
  EXPECT_EQ(Read(kHermesJson, "", none), "C(" + none + ")");
}

TEST(CallStreamingTest, AnIdBehindTheArgumentsCountsIfTheCallHasNotBegunToLeave) {
  const auto raw = [](const std::string& text) {
    return "[TOOL_CALLS][{\"name\": \"stop\", \"arguments\": {\"a\": \"" + text + "\"}, \"id\": \"xyz\"}]";
  };
  EXPECT_EQ(Read(kMistralV3, "", raw("")), "stop[xyz]{\"a\": \"\"}");
  EXPECT_EQ(Read(kMistralV3, "", raw(Padding())), "stop[]{\"a\": \"" + Padding() + "\"}");
}

TEST(CallStreamingTest, AValueThatIsNoStringIsWholeBetweenTagsAndLeavesElsewhere) {
  std::string list = "[0";
  for (int i = 1; i < 200; ++i) absl::StrAppend(&list, ", ", i);
  list += "]";
  const std::string expected = "look_up[]{\"days\": " + list + "}";
  const std::string tags =
      "<tool_call><function=look_up><parameter=days>\n" + list + "\n</parameter></function></tool_call>";
  const std::string python = "<|tool_call_start|>[look_up(days=" + list + ")]<|tool_call_end|>";
  EXPECT_EQ(Read(kQwen3Coder, "", tags), expected);
  EXPECT_EQ(Read(kLfm2, "", python), expected);
  const auto held_in_the_middle = [](OutputFormat format, const std::string& raw) {
    const auto parser = OutputParser::Make(format, {}, SomeTools());
    parser->Feed(raw.substr(0, 600));
    return parser->held_bytes();
  };
  EXPECT_GT(held_in_the_middle(kQwen3Coder, tags), 500u);
  EXPECT_LT(held_in_the_middle(kLfm2, python), 10u);
}

TEST(CallStreamingTest, BareControlCharactersInStringsOfJsonAreEscaped) {
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"1\n\t2\"}}</tool_call>"),
            R"(stop[]{"a": "1\n\t2"})");
  EXPECT_EQ(Read(kHermesJson, "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"\xC3(\"}}</tool_call>"),
            "stop[]{\"a\": \"\xEF\xBF\xBD(\"}");
  const std::string half = R"(<tool_call>{"name": "stop", "arguments": {"a": "\ud83d"}}</tool_call>)";
  EXPECT_EQ(Read(kHermesJson, "", half), "C(" + half + ")");
}

TEST(CallStreamingTest, ACallOfAnyLengthLeavesIfItsStringsDo) {
  const std::string text(OutputParser::kMostCallBytes + 50'000, 'x');
  const auto parser = OutputParser::Make(kHermesJson, {}, SomeTools());
  const std::string raw = "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"" + text + "\"}}</tool_call>";
  std::vector<OutputDelta> all;
  for (size_t begin = 0; begin < raw.size(); begin += 10'000) {
    Join(parser->Feed(raw.substr(begin, 10'000)), &all);
    EXPECT_LE(parser->held_bytes(), 24u);
  }
  EXPECT_EQ(Summary(all), "stop[]{\"a\": \"" + text + "\"}");
  EXPECT_EQ(all, ParseWhole({kHermesJson, "", raw, SomeTools()}));
}

TEST(CallStreamingTest, AValueThatHasToWaitIsHeldBackToALimit) {
  const std::string value = "[" + std::string(OutputParser::kMostCallBytes, ' ') + "]";
  const std::string raw =
      "<tool_call><function=look_up><parameter=days>" + value + "</parameter></function></tool_call>Hi.";
  const OutputCase output{kQwen3Coder, "", raw, SomeTools()};
  const std::vector<OutputDelta> whole = ParseWhole(output);
  EXPECT_EQ(Summary(whole), "look_up[]{\"days\": " + value + "</parameter></function> C(Hi.)");
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < raw.size(); begin += 9'999) pieces.push_back(raw.substr(begin, 9'999));
  EXPECT_EQ(ParsePieces(output, pieces), whole);
}

TEST(CallStreamingTest, ReadingCostsTheSameForEveryByteOfACall) {
  const size_t bytes = testing::kSanitized ? 10'000 : 50'000;
  const std::string longest = SampleText(4 * bytes), text = SampleText(bytes), space(bytes, ' ');
  std::string list = "[0";
  while (list.size() < bytes) list += ", 1";
  list += "]";
  const std::string object = R"(<tool_call>{"name": "stop", "arguments": )", end = "}</tool_call>";
  const std::string in_string = JsonString(CompactJson({{"a", SampleText(bytes / 2)}}));
  const std::string tag = "<tool_call><function=look_up><parameter=days>";
  const std::string tag_end = "</parameter></function></tool_call>";
  std::string calls;
  while (calls.size() < bytes) calls += "<tool_call>{\"name\": \"stop\"}</tool_call>\n";
  const std::pair<OutputFormat, std::string> outputs[] = {
      {kHermesJson, object + CompactJson({{"a", longest}}) + end},
      {kHermesJson, object + in_string + end},
      {kHermesJson, object + "{\"a\": " + list + "}" + end},
      {kHermesJson, object + "{" + space + "}" + space + end},
      {kHermesJson, "<tool_call>" + space + object},
      {kHermesJson, calls},
      {kQwen3Coder, tag + list + tag_end},
      {kQwen3Coder, tag + text + tag_end},
      {kLfm2, "<|tool_call_start|>[stop(a='" + Spell(text, Spelling::kPython) + "')]<|tool_call_end|>"},
      {kLfm2, "<|tool_call_start|>[stop(a=" + list + ")]<|tool_call_end|>"},
  };
  for (const auto& [format, raw] : outputs) {
    const std::string name = absl::StrCat(OutputFormatName(format), " ", raw.substr(0, 80));
    ByteFeed feed({format, "", raw, SomeTools()});
    for (const char byte : raw) feed.Feed(byte);
    // The head of one call is read again with every byte.
    EXPECT_LE(feed.parser->scanned_bytes(), 8 * raw.size() + 150'000) << name;
    const auto whole = OutputParser::Make(format, {}, SomeTools());
    whole->Feed(raw);
    EXPECT_LE(whole->scanned_bytes(), 5 * raw.size()) << name;
  }
}

}  // namespace
}  // namespace stagecoach
