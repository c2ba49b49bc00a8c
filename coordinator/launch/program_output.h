#ifndef STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace stagecoach {

// What exec takes for these words, which must outlive it.
std::vector<char*> WordPointers(std::vector<std::string>& words);

struct StartedProgram {
  pid_t process = -1;  // to be waited for; also its session and process group
  int output = -1;     // read end of its standard output and error, merged
};

// Starts a program (a path, or a name that is sought in PATH) without input, in a session of its own, and killed when
// the calling thread ends. Without a terminal a login that wants a password, or an unknown host confirmed, fails and
// says so, where it would wait for ever. kNotFound when there is no such program, kResourceExhausted when no process
// can be made.
absl::StatusOr<StartedProgram> StartProgram(const std::vector<std::string>& arguments,
                                            std::vector<std::string> environment);

// Kills it and what it started.
void KillProgram(pid_t process);

// Waits for its end and gives how it ended (for WIFEXITED and so on); kills it when it takes longer.
int AwaitProgramEnd(pid_t process, absl::Duration most);

struct ProgramOutput {
  int exit_code = 0;  // 128 + signal for one that a signal ended
  std::string text;   // standard output and error, merged; at most the first megabyte
};

// Runs a program as StartProgram does, with our environment, to its end. kNotFound when it cannot be run,
// kDeadlineExceeded when it took longer; it is then killed. Thread-safe.
absl::StatusOr<ProgramOutput> RunForOutput(const std::vector<std::string>& arguments, absl::Duration deadline);

// The program's path: as given when it holds a '/', else found in PATH. kNotFound.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_
