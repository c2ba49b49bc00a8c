#include "coordinator/cli/prompt_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

std::string Stripped(std::string text, bool strip_newline) {
  if (strip_newline && !text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

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

}  // namespace stagecoach
