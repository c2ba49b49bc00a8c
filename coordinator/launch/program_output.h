#ifndef STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PROGRAM_OUTPUT_H_

// Other programs: their words, their environment, what they print.

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

// The environment a launcher gets, from ours ("NAME=value"): without what the launcher of an outer job set (OMPI_*,
// PMIX_*, PMI_*, OPAL_*, ORTE_*, PRTE_*), but with the user's OMPI_MCA_* settings. Those that a launcher gives its
// ranks, to be told apart only by name, go too when there is an outer job. kHwlocComponentsVariable is added where the
// user has not set it, and HOME where neither a variable nor the list of users says it.
std::vector<std::string> LaunchEnvironment(const std::vector<std::string>& ours);

// The settings of Open MPI among them that a launcher gets: OMPI_MCA_*.
std::vector<std::string> UsersMpiSettings(const std::vector<std::string>& ours);

// The variables of this process, and one of them; empty: it is not set.
std::vector<std::string> OwnEnvironment();
std::string Variable(const std::string& name);

// What exec takes for these words, which must outlive it.
std::vector<char*> WordPointers(std::vector<std::string>& words);

// In a child that is about to run a program: signals as at first, no input, its output there.
void BecomeProgram(int output);

// Appends what a descriptor that does not block has now, a megabyte at most. False at the end of it.
bool ReadAvailable(int descriptor, std::string* text);

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
