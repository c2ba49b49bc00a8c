#ifndef STAGECOACH_COORDINATOR_CLI_PROMPT_INPUT_H_
#define STAGECOACH_COORDINATOR_CLI_PROMPT_INPUT_H_

// Where text comes from: -p, -f, or standard input.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct PromptInput {
  std::vector<std::string> prompts;  // -p, in order
  std::vector<std::string> files;    // -f, in order
};

void AddPromptOptions(CLI::App* app, PromptInput* input, const std::string& what);

// The texts of -p, then those of -f; with neither, all of standard input, unless it is a terminal (a usage error).
// `strip_newline`: one newline at the end of a file or of standard input is left away, as editors and echo put it
// there.
absl::StatusOr<std::vector<std::string>> CollectPrompts(const PromptInput& input, bool strip_newline);

// All of a descriptor, to its end. ExitCode::kInputFile when it cannot be read or has more than `most_bytes`.
absl::StatusOr<std::string> ReadDescriptor(int descriptor, size_t most_bytes = SIZE_MAX);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PROMPT_INPUT_H_
