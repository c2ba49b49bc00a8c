#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_PROMPT_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_PROMPT_OPTIONS_H_

// Where a prompt's text comes from (-p, -f, standard input), and which template writes conversations (--chat-template,
// --chat-template-file).

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/text/chat/chat_template.h"

namespace stagecoach {

struct PromptInput {
  std::vector<std::string> prompts;  // -p, in order
  std::vector<std::string> files;    // -f, in order
};

void AddPromptOptions(CLI::App* app, PromptInput* input, const std::string& what);

// The texts of -p, then those of -f; without either, all of standard input, which must not be a terminal (usage error).
// `strip_newline` drops one newline at the end of a file or of standard input.
absl::StatusOr<std::vector<std::string>> CollectPrompts(const PromptInput& input, bool strip_newline);

// Reads a descriptor to its end. ExitCode::kInputFile: it cannot be read, or has more than `most_bytes`.
absl::StatusOr<std::string> ReadDescriptor(int descriptor, size_t most_bytes = SIZE_MAX);

struct ChatTemplateOptions {
  std::string built_in = "auto";  // --chat-template; "auto": the model file's own
  std::string file;               // --chat-template-file, which goes before

  // Whether the user asked for another one than the model file's.
  bool given() const { return built_in != "auto" || !file.empty(); }
};

void AddChatTemplateOptions(CLI::App* app, ChatTemplateOptions* options);

// Reads the file. ExitCode::kInputFile when that cannot be done or it has more than 1 MiB.
absl::StatusOr<ChatTemplateChoice> ReadChatTemplateChoice(const ChatTemplateOptions& options);

// The error of a template that ChatFormat::usable refuses: ExitCode::kInputFile, and which options help.
absl::Status UnusableTemplate(const absl::Status& why);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_PROMPT_OPTIONS_H_
