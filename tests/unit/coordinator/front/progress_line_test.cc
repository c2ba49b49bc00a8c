#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "coordinator/front/progress_line.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// What a terminal of so many columns is written.
std::string Drawn(const std::string& text, int columns) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const int line = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(ioctl(line, TIOCSWINSZ, &size), 0);
  const int standard_error = dup(STDERR_FILENO);
  dup2(line, STDERR_FILENO);
  ProgressLine progress(/*shown=*/true);
  progress.Draw(text);
  dup2(standard_error, STDERR_FILENO);
  std::string shown(1000, '\0');
  const ssize_t bytes = read(terminal, &shown[0], shown.size());
  dup2(line, STDERR_FILENO);
  progress.Clear();
  dup2(standard_error, STDERR_FILENO);
  for (const int descriptor : {standard_error, line, terminal}) close(descriptor);
  return shown.substr(0, bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

TEST(ProgressLine, FitsIntoANarrowTerminal) {
  EXPECT_EQ(Drawn("loading", 40), "\rloading\x1b[K");
  EXPECT_EQ(Drawn("loading", 8), "\rloading\x1b[K");
  EXPECT_EQ(Drawn("loading", 7), "\rloadin\x1b[K");
  EXPECT_EQ(Drawn("\xC3\xBC\xC3\xBC\xC3\xBC", 3), "\r\xC3\xBC\xC3\xBC\x1b[K") << "no character is cut";
  EXPECT_EQ(Drawn("loading", 0), "\rloading\x1b[K") << "of a terminal that does not say";
}

}  // namespace
}  // namespace stagecoach
