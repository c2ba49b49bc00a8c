#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/output/call_reader.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

// The marks of a format: reasoning first, then content with calls among it. Every mark begins with an ASCII character,
// so that text is never cut within a code point.
struct OutputGrammar {
  // Around reasoning.
  absl::string_view open = "<think>";
  absl::string_view close = "</think>";
  bool model_opens = true;                            // else only a prompt does, and the mark is text
  std::vector<absl::string_view> calls_in_reasoning;  // marks of calls that end it without `close`
  bool space_first = false;                           // the format has white space before all content

  std::vector<absl::string_view> calls;             // what a call begins with; none: there are no calls
  std::vector<absl::string_view> calls_in_section;  // further ones after the first call
  std::vector<absl::string_view> section_ends;      // once after calls
  bool calls_at_start_only = false;
  absl::string_view call_end;  // what a call ends with, or absent

  std::vector<absl::string_view> silent;  // in content, and no part of it
  // Around all content, or absent.
  absl::string_view content_open;
  absl::string_view content_close;
};

// Of every format but kHarmony, whose text is a row of messages.
OutputGrammar GrammarOf(OutputFormat format);

// Of a block of calls of a format that has some (call_readers.cc). `grammar` is the format's; both outlive what it
// makes.
std::unique_ptr<CallReader> MakeCallReader(OutputFormat format, const OutputGrammar& grammar, const OutputTools& tools);

std::unique_ptr<OutputParser> MakeMarkedParser(OutputFormat format, const OutputStart& start,
                                               std::shared_ptr<const OutputTools> tools);
// What ends a message of kHarmony: the first one between messages.
inline constexpr absl::string_view kHarmonyBodyEnds[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

// Of kHarmony.
std::unique_ptr<OutputParser> MakeHarmonyParser(const OutputStart& start, std::shared_ptr<const OutputTools> tools);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_GRAMMAR_H_
