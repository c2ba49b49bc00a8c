#include "coordinator/cli/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {

void HoldStandardDescriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is this one. Reading finds the end, writing fails as it would have.
    if (open("/dev/null", O_RDONLY) < 0) return;
  }
}

absl::Status WriteStdout(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return WithExitCode(absl::DataLossError(absl::StrCat("cannot write to standard output: ", std::strerror(errno))),
                          ExitCode::kInputFile);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
