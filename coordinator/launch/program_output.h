#ifndef STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_

// Running other programs: command lines, environment, output.

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace stagecoach {

// Splits as a shell would: blanks, '...', "..." and backslash. kInvalidArgument for an open quote.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);
// Joins with quotes where a shell needs them.
std::string JoinShellWords(const std::vector<std::string>& words);

// A launcher's environment, from ours ("NAME=value"): without the variables of an outer job's launcher (OMPI_*, PMIX_*,
// PMI_*, OPAL_*, ORTE_*, PRTE_*), but with the user's OMPI_MCA_* settings, except those that launchers set for ranks if
// there is an outer job. Adds kHwlocComponentsVariable where unset, and HOME where neither a variable nor the user
// database has it.
std::vector<std::string> LaunchEnvironment(const std::vector<std::string>& ours);

// The OMPI_MCA_* settings of LaunchEnvironment.
std::vector<std::string> UserMpiSettings(const std::vector<std::string>& ours);

// The variables of this process, and one of them, empty if unset.
std::vector<std::string> OwnEnvironment();
std::string Variable(const std::string& name);

// argv for exec; `words` must outlive it.
std::vector<char*> WordPointers(std::vector<std::string>& words);

// In a child before exec: default signals, no input, standard output and error to `output`.
void BecomeProgram(int output);

// Appends what a non-blocking descriptor has now, at most a megabyte. False at its end.
bool ReadAvailable(int descriptor, std::string* text);

struct StartedProgram {
  pid_t process = -1;  // to be waited for; also its session and process group
  int output = -1;     // read end of its standard output and error, merged
};

// Starts a program (a path, or a name in PATH) without input, in its own session; it is killed when the calling thread
// ends. Without a terminal, a login that asks for a password or a host's confirmation fails instead of waiting for
// ever. kNotFound: no such program; kResourceExhausted: no process can be made.
absl::StatusOr<StartedProgram> StartProgram(const std::vector<std::string>& arguments,
                                            std::vector<std::string> environment);

// Kills it and what it started.
void KillProgram(pid_t process);

// Waits for its end, and kills it after `most`. Returns the wait status (WIFEXITED and so on).
int AwaitProgramEnd(pid_t process, absl::Duration most);

struct ProgramOutput {
  int exit_code = 0;  // 128 + signal for one that a signal ended
  std::string text;   // standard output and error, merged; at most the first megabyte
};

// Runs a program to its end, as StartProgram does, with our environment. kNotFound: it cannot be run;
// kDeadlineExceeded: it took longer and was killed. Thread-safe.
absl::StatusOr<ProgramOutput> RunForOutput(const std::vector<std::string>& arguments, absl::Duration deadline);

// The program's path: as given when it holds a '/', else found in PATH. kNotFound.
absl::StatusOr<std::string> FindProgram(const std::string& name);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_
