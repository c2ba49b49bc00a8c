#include "coordinator/cli/options/prompt_options.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/status_macros.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

std::string Stripped(std::string text, bool strip_newline) {
  if (strip_newline && !text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

constexpr size_t kMostTemplateBytes = size_t{1} << 20;

}  // namespace

void AddPromptOptions(CLI::App* app, PromptInput* input, const std::string& what) {
  AddTexts(app, "-p,--prompt", &input->prompts, "TEXT", what);
  AddTexts(app, "-f,--file", &input->files, "FILE",
           absl::StrCat("as -p, from a file; without -p and -f: standard input"));
}

absl::StatusOr<std::string> ReadDescriptor(int descriptor, size_t most_bytes) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) {
      text.append(buffer.data(), static_cast<size_t>(got));
      if (text.size() > most_bytes) {
        return InputFileError(absl::StrCat("standard input has more than ", most_bytes >> 20, " MiB; cut the text"));
      }
    } else if (errno != EINTR) {
      return InputFileError(absl::StrCat("cannot read standard input: ", std::strerror(errno)));
    }
  }
}

absl::StatusOr<std::vector<std::string>> CollectPrompts(const PromptInput& input, bool strip_newline) {
  std::vector<std::string> prompts = input.prompts;
  for (const std::string& path : input.files) {
    ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path));
    prompts.push_back(Stripped(std::move(text), strip_newline));
  }
  if (!prompts.empty()) return prompts;
  if (isatty(STDIN_FILENO)) {
    return UsageError("there is no prompt: give one with -p TEXT or -f FILE, or pipe it into standard input");
  }
  ASSIGN_OR_RETURN(std::string text, ReadDescriptor(STDIN_FILENO));
  prompts.push_back(Stripped(std::move(text), strip_newline));
  return prompts;
}

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
