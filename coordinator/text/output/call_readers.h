#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_

// How the formats write a call. Each reader begins at the call's first marker and returns no calls where it failed.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_parser.h"

namespace stagecoach {

using Calls = std::vector<ToolCall>;

// {"name": "F", "arguments": {...}}, or a list of these, between two markers; empty: there is no second one.
Calls ReadMarkedJson(absl::string_view open, absl::string_view close, CallScanner* scanner);
// Of one such object; absent when it is no call.
std::optional<ToolCall> CallOfJson(absl::string_view object);

// A name between markers and an object of JSON.
Calls ReadDeepseekV31(CallScanner* scanner);
Calls ReadDeepseekR1(CallScanner* scanner);
Calls ReadKimi(CallScanner* scanner);
Calls ReadMistralArgs(CallScanner* scanner);
// The whole message is an object of JSON, or a call in Python's manner after a marker; the function is one of `tools`.
Calls ReadLlama(const OutputTools& tools, CallScanner* scanner);

// Every argument in tags of its own.
Calls ReadQwenCoder(const OutputTools& tools, CallScanner* scanner);
Calls ReadGlm(const OutputTools& tools, CallScanner* scanner);
Calls ReadMinimax(const OutputTools& tools, CallScanner* scanner);
Calls ReadDeepseekV32(const OutputTools& tools, CallScanner* scanner);

// Values in a language of their own: Python's, Gemma's.
Calls ReadLfm2(CallScanner* scanner);
Calls ReadGemma4(CallScanner* scanner);
// What follows "F(" up to ")", as an object's text.
std::string ReadPythonArguments(CallScanner* scanner);

// What calls are told by, wherever these stand in a text.
bool IsNameByte(char byte);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READERS_H_
