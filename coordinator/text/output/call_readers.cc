#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

// {"name": "F", "arguments": {...}}, or a list of these, behind a mark.
class JsonReader : public CallReader {
 public:
  JsonReader(const OutputTools& tools, absl::string_view end_mark, absl::string_view mark)
      : CallReader(tools, end_mark), mark_(mark) {}

 protected:
  void ReadHead() override {
    in_.Expect(mark_);
    in_.SkipSpace();
    BeginJson(/*in_list=*/in_.Try("["));
  }

 private:
  const absl::string_view mark_;
};

// NAME, or "function" and NAME, and an object of JSON.
template <bool kInFence>
class DeepseekReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Try("<｜tool▁calls▁begin｜>");
    in_.SkipSpace();
    in_.Expect("<｜tool▁call▁begin｜>");
    absl::string_view name = in_.HeadUntil("<｜tool▁sep｜>");  // "function" before a fence
    if (kInFence) name = in_.HeadUntil("```json");
    BeginObject(name, "");
  }
  void ReadTail() override {
    if (kInFence) in_.TryAfterSpace("```");
    CallReader::ReadTail();
  }
};

// The id is "functions.NAME:INDEX".
class KimiReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Try("<|tool_calls_section_begin|>");
    in_.SkipSpace();
    in_.Expect("<|tool_call_begin|>");
    const absl::string_view id = in_.HeadUntil("<|tool_call_argument_begin|>");
    BeginObject(absl::StripPrefix(id.substr(0, id.rfind(':')), "functions."), id);
  }
};

// NAME[ARGS], in between [CALL_ID] and the id if trained to give one. Such models fall back to the list of older ones.
class MistralArgsReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    constexpr absl::string_view kCallId = "[CALL_ID]";
    in_.Expect("[TOOL_CALLS]");
    in_.SkipSpace();
    if (in_.Try("[")) return BeginJson(/*in_list=*/true);
    const absl::string_view head = in_.HeadUntil("[ARGS]");
    const size_t cut = head.find(kCallId);
    const absl::string_view id = cut != absl::string_view::npos ? head.substr(cut + kCallId.size()) : "";
    BeginObject(WithoutSpaceAround(head.substr(0, cut)), WithoutSpaceAround(id));
  }
};

// The whole message is an object of JSON, or F.call(K=V, ...) behind a mark.
class LlamaReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    is_message_ = true;
    if (in_.Try("<|python_tag|>")) in_.SkipSpace();
    if (in_.Peek() == '{') return BeginJson(/*in_list=*/false);
    absl::string_view name = in_.While(IsNameByte);
    in_.Expect("(");
    if (!absl::ConsumeSuffix(&name, ".call")) in_.Fail();
    BeginInside(name, ValueReader::Language::kPython, ')');
  }
  void ReadTail() override {
    if (!in_.AtEnd() && in_doubt()) in_.Fail();
    EndCall();
    Finish();
  }
};

// <function=F> <parameter=K> V </parameter> ... </function>
class QwenCoderReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Try("<tool_call>");
    in_.SkipSpace();
    in_.Expect("<function=");
    BeginTags(in_.HeadUntil(">"));
  }
  // The line breaks after the opening and before the closing tag belong to the format.
  void ReadArgument() override {
    static constexpr absl::string_view kEnds[] = {"\n</parameter>", "</parameter>"};
    if (in_.Try("</function>")) return EndTags();
    in_.Expect("<parameter=");
    const absl::string_view key = in_.HeadUntil(">");
    in_.Try("\n");
    BeginText(key, SchemaSaysText(key), kEnds);
  }
};

// F <arg_key>K</arg_key> <arg_value>V</arg_value> ...
class GlmReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Expect("<tool_call>");
    in_.SkipSpace();
    // A model that falls back to an object of JSON writes no name.
    BeginTags(WithoutSpaceAround(in_.While([](char byte) { return byte != '<' && byte != '\n' && byte != '{'; })));
  }
  void ReadArgument() override {
    static constexpr absl::string_view kEnds[] = {"</arg_value>"};
    if (in_.Try("</tool_call>")) return EndTags();
    in_.Expect("<arg_key>");
    const absl::string_view key = in_.HeadUntil("</arg_key>");
    in_.SkipSpace();
    in_.Expect("<arg_value>");
    BeginText(key, SchemaSaysText(key), kEnds);
  }
  void ReadTail() override { Finish(); }  // the end of the arguments was the mark
};

// <invoke name="F"> <parameter name="K">V</parameter> ... </invoke>
class MinimaxReader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Try("<minimax:tool_call>");
    in_.SkipSpace();
    in_.Expect("<invoke name=\"");
    const absl::string_view name = in_.HeadUntil("\"");
    in_.Expect(">");
    BeginTags(name);
  }
  void ReadArgument() override {
    static constexpr absl::string_view kEnds[] = {"</parameter>"};
    if (in_.Try("</invoke>")) return EndTags();
    in_.Expect("<parameter name=\"");
    const absl::string_view key = in_.HeadUntil("\"");
    in_.Expect(">");
    BeginText(key, SchemaSaysText(key), kEnds);
  }
  void ReadTail() override { Finish(); }  // the end of the arguments was the mark
};

// The same with marks of its own, and whether V is a string.
class DeepseekV32Reader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    if (!in_.Try("<｜DSML｜function_calls>")) in_.Try("<｜DSML｜tool_calls>");
    in_.SkipSpace();
    in_.Expect("<｜DSML｜invoke name=\"");
    const absl::string_view name = in_.HeadUntil("\"");
    in_.Expect(">");
    BeginTags(name);
  }
  void ReadArgument() override {
    static constexpr absl::string_view kEnds[] = {"</｜DSML｜parameter>"};
    if (in_.Try("</｜DSML｜invoke>")) return EndTags();
    in_.Expect("<｜DSML｜parameter name=\"");
    const absl::string_view key = in_.HeadUntil("\"");
    in_.Expect(" string=\"");
    const bool is_text = in_.Try("true");
    if (!is_text) in_.Expect("false");
    in_.Expect("\">");
    BeginText(key, is_text, kEnds);
  }
  void ReadTail() override { Finish(); }  // the end of the arguments was the mark
};

// [F(K=V, ...), ...]; some models write the list in JSON.
class Lfm2Reader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    if (!is_further_) {
      in_.Expect("<|tool_call_start|>");
      in_.SkipSpace();
      in_.Expect("[");
    }
    in_.SkipSpace();
    is_json_ = !is_further_ && in_.Peek() == '{';
    if (is_json_) return BeginJson(/*in_list=*/true);
    const absl::string_view name = in_.While(IsNameByte);
    in_.Expect("(");
    BeginInside(name, ValueReader::Language::kPython, ')');
  }
  void ReadTail() override {
    if (!is_json_) {
      in_.SkipSpace();
      is_further_ = in_.Try(",");
      if (is_further_) return NextHead();
      in_.Expect("]");
    }
    CallReader::ReadTail();
  }

 private:
  bool is_json_ = false;
  bool is_further_ = false;
};

// call:F{K:V,...}
class Gemma4Reader : public CallReader {
 public:
  using CallReader::CallReader;

 protected:
  void ReadHead() override {
    in_.Expect("<|tool_call>call:");
    BeginInside(in_.HeadUntil("{"), ValueReader::Language::kGemma, '}');
  }
};

}  // namespace

std::unique_ptr<CallReader> MakeCallReader(OutputFormat format, const OutputGrammar& grammar,
                                           const OutputTools& tools) {
  const absl::string_view end = grammar.call_end;
  switch (format) {
    case OutputFormat::kHermesJson:
    case OutputFormat::kMistralV3:
    case OutputFormat::kCommandR7b:
    case OutputFormat::kGranite3:
    case OutputFormat::kNemotronNanoV2: return std::make_unique<JsonReader>(tools, end, grammar.calls[0]);
    case OutputFormat::kQwen3Coder:
    case OutputFormat::kQwen35:
    case OutputFormat::kNemotron3: return std::make_unique<QwenCoderReader>(tools, end);
    case OutputFormat::kGlm45:
    case OutputFormat::kGlm47: return std::make_unique<GlmReader>(tools, end);
    case OutputFormat::kDeepseekV31: return std::make_unique<DeepseekReader</*kInFence=*/false>>(tools, end);
    case OutputFormat::kDeepseekR1: return std::make_unique<DeepseekReader</*kInFence=*/true>>(tools, end);
    case OutputFormat::kDeepseekV32: return std::make_unique<DeepseekV32Reader>(tools, end);
    case OutputFormat::kKimiK2: return std::make_unique<KimiReader>(tools, end);
    case OutputFormat::kLlama3Json: return std::make_unique<LlamaReader>(tools, end);
    case OutputFormat::kMistralSmall32:
    case OutputFormat::kMistralArgs: return std::make_unique<MistralArgsReader>(tools, end);
    case OutputFormat::kMinimaxM2: return std::make_unique<MinimaxReader>(tools, end);
    case OutputFormat::kGemma4: return std::make_unique<Gemma4Reader>(tools, end);
    case OutputFormat::kLfm2: return std::make_unique<Lfm2Reader>(tools, end);
    case OutputFormat::kPlain:
    case OutputFormat::kHarmony: break;
  }
  return nullptr;
}

}  // namespace stagecoach
