#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_TEMPLATE_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_TEMPLATE_OPTIONS_H_

// --chat-template and --chat-template-file: which template writes conversations.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/text/chat/chat_template.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct ChatTemplateOptions {
  std::string built_in = "auto";  // --chat-template; "auto": the model file's own
  std::string file;               // --chat-template-file, which goes before

  // Whether the user asked for another one than the model file's.
  bool given() const { return built_in != "auto" || !file.empty(); }
};

void AddChatTemplateOptions(CLI::App* app, ChatTemplateOptions* options);

// Reads the file. ExitCode::kInputFile when that cannot be done or it has more than 1 MiB.
absl::StatusOr<ChatTemplateChoice> ReadChatTemplateChoice(const ChatTemplateOptions& options);

// What ends the program when `why`, of ChatFormat::usable, is in the way: ExitCode::kInputFile, and the options that
// help.
absl::Status UnusableTemplate(const absl::Status& why);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_TEMPLATE_OPTIONS_H_
