#include "coordinator/cli/chat_template_options.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

constexpr size_t kMostTemplateBytes = size_t{1} << 20;

}  // namespace

void AddChatTemplateOptions(CLI::App* app, ChatTemplateOptions* options) {
  std::vector<std::string> names = BuiltInChatTemplates();
  names.insert(names.begin(), options->built_in);
  AddChoice(app, "--chat-template", &options->built_in, names, "auto: the model file's; else one that is built in");
  AddText(app, "--chat-template-file", &options->file, "FILE", "a template of your own, which goes before the others");
}

absl::StatusOr<ChatTemplateChoice> ReadChatTemplateChoice(const ChatTemplateOptions& options) {
  ChatTemplateChoice choice;
  if (!options.file.empty()) {
    ASSIGN_OR_RETURN(std::string text, ReadWholeFile(options.file, kMostTemplateBytes));
    choice.given = ChatTemplateSource{absl::StrCat("'", options.file, "'"), std::move(text)};
  }
  if (options.built_in != "auto") choice.built_in = options.built_in;
  return choice;
}

absl::Status UnusableTemplate(const absl::Status& why) {
  return InputFileError(absl::StrCat(why.message(), " (--chat-template-file, --chat-template)"));
}

}  // namespace stagecoach
