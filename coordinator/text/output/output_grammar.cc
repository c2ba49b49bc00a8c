#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

// These models leave out the outer tag at times.
OutputGrammar QwenCoder() { return {.calls = {"<tool_call>", "<function="}, .call_end = "</tool_call>"}; }

}  // namespace

OutputGrammar GrammarOf(OutputFormat format) {
  OutputGrammar grammar;
  switch (format) {
    case OutputFormat::kHermesJson: return {.calls = {"<tool_call>"}, .call_end = "</tool_call>"};
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
    case OutputFormat::kGlm47: return {.space_first = true, .calls = {"<tool_call>"}, .call_end = "</tool_call>"};
    case OutputFormat::kDeepseekV31:
    case OutputFormat::kDeepseekR1:
      return {.calls = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
              .section_ends = {"<｜tool▁calls▁end｜>"},
              .call_end = "<｜tool▁call▁end｜>"};
    case OutputFormat::kDeepseekV32:
      return {.calls = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
              .calls_in_section = {"<｜DSML｜invoke "},
              .section_ends = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
              .call_end = "</｜DSML｜invoke>"};
    case OutputFormat::kKimiK2:
      return {.calls_in_reasoning = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
              .calls = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
              .section_ends = {"<|tool_calls_section_end|>"},
              .call_end = "<|tool_call_end|>"};
    case OutputFormat::kLlama3Json:
      return {.model_opens = false, .calls = {"{", "<|python_tag|>"}, .calls_at_start_only = true};
    case OutputFormat::kMistralV3:
    case OutputFormat::kMistralSmall32:
    case OutputFormat::kMistralArgs: return {.open = "[THINK]", .close = "[/THINK]", .calls = {"[TOOL_CALLS]"}};
    case OutputFormat::kMinimaxM2:
      return {.calls = {"<minimax:tool_call>"},
              .calls_in_section = {"<invoke "},
              .section_ends = {"</minimax:tool_call>"},
              .call_end = "</invoke>"};
    case OutputFormat::kGemma4:
      return {.open = "<|channel>thought",
              .close = "<channel|>",
              .calls = {"<|tool_call>"},
              .call_end = "<tool_call|>",
              .silent = {"<channel|>"}};  // these models write it once more at times
    case OutputFormat::kCommandR7b:
      return {.open = "<|START_THINKING|>",
              .close = "<|END_THINKING|>",
              .calls = {"<|START_ACTION|>"},
              .call_end = "<|END_ACTION|>",
              .silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}};
    case OutputFormat::kLfm2: return {.calls = {"<|tool_call_start|>"}, .call_end = "<|tool_call_end|>"};
    case OutputFormat::kGranite3:
      return {.calls = {"<|tool_call|>"}, .content_open = "<response>", .content_close = "</response>"};
    case OutputFormat::kNemotronNanoV2: return {.calls = {"<TOOLCALL>"}, .call_end = "</TOOLCALL>"};
    case OutputFormat::kPlain:
    case OutputFormat::kHarmony: break;
  }
  grammar.model_opens = false;
  return grammar;
}

}  // namespace stagecoach
