#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

// Reads a call as one format writes it (call_readers.cc), from its first marker on. No calls: it cannot be read.
using Calls = std::vector<ToolCall>;
using CallReader = Calls(const OutputTools& tools, CallScanner* scanner);

// {"name": "F", "arguments": {...}}, or a list of these, between two markers; empty: there is no second one.
Calls ReadMarkedJson(absl::string_view open, absl::string_view close, CallScanner* scanner);

// A name between markers and an object of JSON.
CallReader ReadDeepseekV31, ReadDeepseekR1, ReadKimi, ReadMistralArgs;
// The whole message is an object of JSON, or a call in Python's manner after a marker; the function is one of `tools`.
CallReader ReadLlama;
// Every argument in tags of its own.
CallReader ReadQwenCoder, ReadGlm, ReadMinimax, ReadDeepseekV32;
// Values in a language of their own: Python's, Gemma's.
CallReader ReadLfm2, ReadGemma4;

// The marks of a format: reasoning first, then content with calls among it. Every mark begins with an ASCII character,
// so that text is never cut within a code point.
struct OutputGrammar {
  // Around reasoning.
  absl::string_view open = "<think>";
  absl::string_view close = "</think>";
  bool model_opens = true;                            // else only a prompt does, and the mark is text
  std::vector<absl::string_view> calls_in_reasoning;  // marks of calls that end it without `close`
  bool space_first = false;                           // the format has white space before all content

  std::vector<absl::string_view> calls;             // what a call begins with
  std::vector<absl::string_view> calls_in_section;  // further ones after the first call
  std::vector<absl::string_view> section_ends;      // once after calls
  bool calls_at_start_only = false;
  CallReader* read = nullptr;

  std::vector<absl::string_view> silent;  // in content, and no part of it
  // Around all content, or absent.
  absl::string_view content_open;
  absl::string_view content_close;
};

// Of every format but kHarmony, whose text is a row of messages.
OutputGrammar GrammarOf(OutputFormat format);

std::unique_ptr<OutputParser> MakeMarkedParser(OutputGrammar grammar, const OutputStart& start,
                                               std::shared_ptr<const OutputTools> tools);
// Of kHarmony.
std::unique_ptr<OutputParser> MakeHarmonyParser(const OutputStart& start, std::shared_ptr<const OutputTools> tools);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_
