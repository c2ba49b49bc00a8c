#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

// These models leave out the outer tag at times.
OutputGrammar QwenCoder() { return {.calls = {"<tool_call>", "<function="}, .read = ReadQwenCoder}; }

OutputGrammar Deepseek(CallReader* read) {
  return {.calls = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
          .section_ends = {"<｜tool▁calls▁end｜>"},
          .read = read};
}

OutputGrammar Mistral(CallReader* read) {
  return {.open = "[THINK]", .close = "[/THINK]", .calls = {"[TOOL_CALLS]"}, .read = read};
}

// A call in JSON after the mark `kOpen`, up to `kClose` unless that is empty.
template <const char* kOpen, const char* kClose>
Calls ReadJsonBetween(const OutputTools&, CallScanner* scanner) {
  return ReadMarkedJson(kOpen, kClose, scanner);
}

constexpr char kNothing[] = "";
constexpr char kHermesOpen[] = "<tool_call>", kHermesClose[] = "</tool_call>";
constexpr char kMistralOpen[] = "[TOOL_CALLS]";
constexpr char kCommandOpen[] = "<|START_ACTION|>", kCommandClose[] = "<|END_ACTION|>";
constexpr char kGraniteOpen[] = "<|tool_call|>";
constexpr char kNemotronOpen[] = "<TOOLCALL>", kNemotronClose[] = "</TOOLCALL>";

}  // namespace

OutputGrammar GrammarOf(OutputFormat format) {
  OutputGrammar grammar;
  switch (format) {
    case OutputFormat::kHermesJson: return {.calls = {kHermesOpen}, .read = ReadJsonBetween<kHermesOpen, kHermesClose>};
    case OutputFormat::kNemotron3: return QwenCoder();
    case OutputFormat::kQwen35:
      grammar = QwenCoder();
      grammar.calls_in_reasoning = {"<tool_call>"};
      return grammar;
    case OutputFormat::kQwen3Coder:
      grammar = QwenCoder();
      grammar.model_opens = false;
      return grammar;
    case OutputFormat::kGlm45:
    case OutputFormat::kGlm47: return {.space_first = true, .calls = {"<tool_call>"}, .read = ReadGlm};
    case OutputFormat::kDeepseekV31: return Deepseek(ReadDeepseekV31);
    case OutputFormat::kDeepseekR1: return Deepseek(ReadDeepseekR1);
    case OutputFormat::kDeepseekV32:
      return {.calls = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
              .calls_in_section = {"<｜DSML｜invoke "},
              .section_ends = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
              .read = ReadDeepseekV32};
    case OutputFormat::kKimiK2:
      return {.calls_in_reasoning = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
              .calls = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
              .section_ends = {"<|tool_calls_section_end|>"},
              .read = ReadKimi};
    case OutputFormat::kLlama3Json:
      return {.model_opens = false, .calls = {"{", "<|python_tag|>"}, .calls_at_start_only = true, .read = ReadLlama};
    case OutputFormat::kMistralV3: return Mistral(ReadJsonBetween<kMistralOpen, kNothing>);
    case OutputFormat::kMistralSmall32:
    case OutputFormat::kMistralArgs: return Mistral(ReadMistralArgs);
    case OutputFormat::kMinimaxM2:
      return {.calls = {"<minimax:tool_call>"},
              .calls_in_section = {"<invoke "},
              .section_ends = {"</minimax:tool_call>"},
              .read = ReadMinimax};
    case OutputFormat::kGemma4:
      return {.open = "<|channel>thought",
              .close = "<channel|>",
              .calls = {"<|tool_call>"},
              .read = ReadGemma4,
              .silent = {"<channel|>"}};  // these models write it once more at times
    case OutputFormat::kCommandR7b:
      return {.open = "<|START_THINKING|>",
              .close = "<|END_THINKING|>",
              .calls = {kCommandOpen},
              .read = ReadJsonBetween<kCommandOpen, kCommandClose>,
              .silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}};
    case OutputFormat::kLfm2: return {.calls = {"<|tool_call_start|>"}, .read = ReadLfm2};
    case OutputFormat::kGranite3:
      return {.calls = {kGraniteOpen},
              .read = ReadJsonBetween<kGraniteOpen, kNothing>,
              .content_open = "<response>",
              .content_close = "</response>"};
    case OutputFormat::kNemotronNanoV2:
      return {.calls = {kNemotronOpen}, .read = ReadJsonBetween<kNemotronOpen, kNemotronClose>};
    case OutputFormat::kPlain:
    case OutputFormat::kHarmony: break;
  }
  grammar.model_opens = false;
  return grammar;
}

}  // namespace stagecoach
