#ifndef STAGECOACH_TESTS_TESTING_TERMINAL_H_
#define STAGECOACH_TESTS_TESTING_TERMINAL_H_

// A program at a terminal, with somebody who types and reads.

#include <sys/types.h>
#include <termios.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stagecoach::testing {

// Not thread-safe. The program is killed, if it still runs, when the object goes.
class Terminal {
 public:
  // The program's standard input, output and error are a pseudo terminal of 24 rows and 80 columns, which controls it.
  Terminal(const std::string& program, const std::vector<std::string>& arguments,
           const std::vector<std::pair<std::string, std::string>>& environment = {});
  // The same of a child process that calls `program` and exits with what it returns.
  explicit Terminal(const std::function<int()>& program);
  ~Terminal();
  Terminal(const Terminal&) = delete;

  pid_t pid() const { return pid_; }
  void Type(const std::string& keys);  // "\r" is Enter, "\x03" Ctrl-C, "\x04" Ctrl-D
  void Resize(int rows, int columns);

  // Reads on until `text` is shown, after what an earlier call has found. Whether it was before the time was over.
  bool Shows(const std::string& text, double timeout_s = 60);
  // Reads until the program ends: its exit code, 128 + the signal, or -1 when the time was over.
  int Wait(double timeout_s = 60);

  // The terminal's modes, which programs change.
  termios modes() const;
  // Whether it edits and echoes lines by itself, and drops what was typed at Ctrl-C: as it was before the program.
  bool HasItsOwnModes() const;

  const std::string& shown() const { return shown_; }  // everything, with what moves the cursor

 private:
  bool Fork();                     // true in the child
  bool Collect(double timeout_s);  // false at the end

  pid_t pid_ = -1;
  int terminal_ = -1;
  bool reaped_ = false;
  std::string shown_;
  size_t found_ = 0;  // of shown_
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_TERMINAL_H_
