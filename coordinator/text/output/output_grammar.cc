#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

OutputGrammar Hermes() {
  OutputGrammar grammar;
  grammar.calls = {"<tool_call>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) {
    return ReadMarkedJson("<tool_call>", "</tool_call>", scanner);
  };
  return grammar;
}

// These models leave out the outer tag at times.
OutputGrammar QwenCoder() {
  OutputGrammar grammar;
  grammar.calls = {"<tool_call>", "<function="};
  grammar.read = ReadQwenCoder;
  return grammar;
}

OutputGrammar Glm() {
  OutputGrammar grammar;
  grammar.space_first = true;
  grammar.calls = {"<tool_call>"};
  grammar.read = ReadGlm;
  return grammar;
}

OutputGrammar Deepseek(bool fenced) {
  OutputGrammar grammar;
  grammar.calls = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"};
  grammar.section_ends = {"<｜tool▁calls▁end｜>"};
  grammar.read = fenced ? [](const OutputTools&, CallScanner* scanner) { return ReadDeepseekR1(scanner); }
                        : [](const OutputTools&, CallScanner* scanner) { return ReadDeepseekV31(scanner); };
  return grammar;
}

OutputGrammar DeepseekV32() {
  OutputGrammar grammar;
  grammar.calls = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"};
  grammar.calls_in_section = {"<｜DSML｜invoke "};
  grammar.section_ends = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"};
  grammar.read = ReadDeepseekV32;
  return grammar;
}

OutputGrammar Kimi() {
  OutputGrammar grammar;
  grammar.calls = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"};
  grammar.calls_in_reasoning = grammar.calls;
  grammar.section_ends = {"<|tool_calls_section_end|>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) { return ReadKimi(scanner); };
  return grammar;
}

OutputGrammar Llama() {
  OutputGrammar grammar;
  grammar.model_opens = false;
  grammar.calls = {"{", "<|python_tag|>"};
  grammar.calls_at_start_only = true;
  grammar.read = ReadLlama;
  return grammar;
}

OutputGrammar Mistral(bool list_of_json) {
  OutputGrammar grammar;
  grammar.open = "[THINK]";
  grammar.close = "[/THINK]";
  grammar.calls = {"[TOOL_CALLS]"};
  grammar.read = list_of_json ? [](const OutputTools&,
                                   CallScanner* scanner) { return ReadMarkedJson("[TOOL_CALLS]", "", scanner); }
                              : [](const OutputTools&, CallScanner* scanner) { return ReadMistralArgs(scanner); };
  return grammar;
}

OutputGrammar Minimax() {
  OutputGrammar grammar;
  grammar.calls = {"<minimax:tool_call>"};
  grammar.calls_in_section = {"<invoke "};
  grammar.section_ends = {"</minimax:tool_call>"};
  grammar.read = ReadMinimax;
  return grammar;
}

OutputGrammar Gemma() {
  OutputGrammar grammar;
  grammar.open = "<|channel>thought";
  grammar.close = "<channel|>";
  grammar.calls = {"<|tool_call>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) { return ReadGemma4(scanner); };
  grammar.silent = {"<channel|>"};  // these models write it once more at times
  return grammar;
}

OutputGrammar Command() {
  OutputGrammar grammar;
  grammar.open = "<|START_THINKING|>";
  grammar.close = "<|END_THINKING|>";
  grammar.calls = {"<|START_ACTION|>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) {
    return ReadMarkedJson("<|START_ACTION|>", "<|END_ACTION|>", scanner);
  };
  grammar.silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
  return grammar;
}

OutputGrammar Lfm() {
  OutputGrammar grammar;
  grammar.calls = {"<|tool_call_start|>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) { return ReadLfm2(scanner); };
  return grammar;
}

OutputGrammar Granite() {
  OutputGrammar grammar;
  grammar.calls = {"<|tool_call|>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) { return ReadMarkedJson("<|tool_call|>", "", scanner); };
  grammar.content_open = "<response>";
  grammar.content_close = "</response>";
  return grammar;
}

OutputGrammar NemotronNano() {
  OutputGrammar grammar;
  grammar.calls = {"<TOOLCALL>"};
  grammar.read = [](const OutputTools&, CallScanner* scanner) {
    return ReadMarkedJson("<TOOLCALL>", "</TOOLCALL>", scanner);
  };
  return grammar;
}

}  // namespace

OutputGrammar GrammarOf(OutputFormat format) {
  OutputGrammar grammar;
  switch (format) {
    case OutputFormat::kHermesJson: return Hermes();
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
    case OutputFormat::kGlm47: return Glm();
    case OutputFormat::kDeepseekV31: return Deepseek(/*fenced=*/false);
    case OutputFormat::kDeepseekR1: return Deepseek(/*fenced=*/true);
    case OutputFormat::kDeepseekV32: return DeepseekV32();
    case OutputFormat::kKimiK2: return Kimi();
    case OutputFormat::kLlama3Json: return Llama();
    case OutputFormat::kMistralV3: return Mistral(/*list_of_json=*/true);
    case OutputFormat::kMistralSmall32:
    case OutputFormat::kMistralArgs: return Mistral(/*list_of_json=*/false);
    case OutputFormat::kMinimaxM2: return Minimax();
    case OutputFormat::kGemma4: return Gemma();
    case OutputFormat::kCommandR7b: return Command();
    case OutputFormat::kLfm2: return Lfm();
    case OutputFormat::kGranite3: return Granite();
    case OutputFormat::kNemotronNanoV2: return NemotronNano();
    case OutputFormat::kPlain:
    case OutputFormat::kHarmony: break;
  }
  grammar.model_opens = false;
  return grammar;
}

}  // namespace stagecoach
