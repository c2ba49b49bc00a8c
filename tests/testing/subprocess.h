#ifndef STAGECOACH_TESTS_TESTING_SUBPROCESS_H_
#define STAGECOACH_TESTS_TESTING_SUBPROCESS_H_

// Runs a program, feeds its standard input, and collects what it prints and how it ends.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"

namespace stagecoach::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal for one that a signal ended
  bool timed_out = false;
  std::string out;
  std::string err;
};

// So that a failed expectation shows everything: EXPECT_EQ(result.exit_code, 0) << result;
std::ostream& operator<<(std::ostream& stream, const ProgramResult& result);

// Of a ProgramResult, its exit code and what its standard error matches.
template <typename M>
auto EndsWithCode(int code, M err) {
  return ::testing::AllOf(::testing::Field("exit code", &ProgramResult::exit_code, code),
                          ::testing::Field("stderr", &ProgramResult::err, err));
}

// Of a ProgramResult that ended well, what its standard output matches.
template <typename M>
auto Prints(M out) {
  return ::testing::AllOf(::testing::Field("exit code", &ProgramResult::exit_code, 0),
                          ::testing::Field("stdout", &ProgramResult::out, out));
}

// A running program. Not thread-safe. It is killed, if it still runs, when the object goes.
class Subprocess {
 public:
  // `program` is a path or a name that is looked up in PATH. Variables in `environment` are added to this process's
  // own; those with the value "" are removed. The launcher's variables of an outer job are removed always.
  Subprocess(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::pair<std::string, std::string>>& environment = {});
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void Write(const std::string& text);  // to its standard input; blocks until the program (or the pipe) takes it
  void CloseInput();
  void Kill(int signal);

  // Collects output until `text` was printed on either stream, or the time is over. Whether it was.
  bool WaitForOutput(const std::string& text, double timeout_s);

  // Collects output until `holds` or the time is over. Whether it held.
  bool WaitUntil(const std::function<bool()>& holds, double timeout_s);

  // Closes the input and waits for the end; after `timeout_s` the program is killed and `timed_out` set.
  ProgramResult Wait(double timeout_s = 60);

  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }

 private:
  bool Collect(double timeout_s);  // false when both streams have ended
  void Drain(int* descriptor, std::string* into);

  pid_t pid_ = -1;
  int input_ = -1;
  int out_ = -1;
  int err_ = -1;
  bool reaped_ = false;
  ProgramResult result_;
};

// Start, feed, wait.
ProgramResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                         const std::string& input = "", double timeout_s = 60,
                         const std::vector<std::pair<std::string, std::string>>& environment = {});

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_SUBPROCESS_H_
