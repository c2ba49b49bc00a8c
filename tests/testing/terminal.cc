#include "tests/testing/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace stagecoach::testing {
namespace {

int64_t UsFromNow(double seconds) { return MonotonicUs() + static_cast<int64_t>(seconds * 1e6); }

}  // namespace

Terminal::Terminal(const std::string& program, const std::vector<std::string>& arguments,
                   const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (!Fork()) return;
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execv(program.c_str(), pointers.data());
  _exit(127);
}

Terminal::Terminal(const std::function<int()>& program) {
  if (Fork()) _exit(program());
}

bool Terminal::Fork() {
  winsize size = {24, 80, 0, 0};
  pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
  CHECK_GE(pid_, 0);
  return pid_ == 0;
}

Terminal::~Terminal() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(terminal_);
}

void Terminal::Type(const std::string& keys) {
  CHECK_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void Terminal::Resize(int rows, int columns) {
  const winsize size = {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
  CHECK_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
}

termios Terminal::modes() const {
  termios modes = {};
  CHECK_EQ(tcgetattr(terminal_, &modes), 0);
  return modes;
}

bool Terminal::HasItsOwnModes() const {
  constexpr tcflag_t kOwn = ICANON | ECHO | ISIG;
  return (modes().c_lflag & (kOwn | NOFLSH)) == kOwn;
}

bool Terminal::Collect(double timeout_s) {
  pollfd watched = {terminal_, POLLIN, 0};
  if (poll(&watched, 1, static_cast<int>(timeout_s * 1000)) <= 0) return true;
  char buffer[4096];
  const ssize_t got = read(terminal_, buffer, sizeof(buffer));  // EIO: nobody has it open any more
  if (got > 0) shown_.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

bool Terminal::Shows(const std::string& text, double timeout_s) {
  const int64_t deadline = UsFromNow(timeout_s);
  while (true) {
    const size_t at = shown_.find(text, found_);
    if (at != std::string::npos) {
      found_ = at + text.size();
      return true;
    }
    if (MonotonicUs() > deadline || !Collect(0.05)) return false;
  }
}

int Terminal::Wait(double timeout_s) {
  const int64_t deadline = UsFromNow(timeout_s);
  while (MonotonicUs() < deadline) {
    if (!Collect(0.02)) usleep(2000);
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) continue;
    reaped_ = true;
    pollfd watched = {terminal_, POLLIN, 0};
    while (poll(&watched, 1, 0) > 0 && Collect(0)) {  // what is still in the terminal
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return -1;
}

}  // namespace stagecoach::testing
