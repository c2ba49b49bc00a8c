#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_

// How the formats write a call. Each reader begins at the call's first marker and returns no calls where it failed.

#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_
