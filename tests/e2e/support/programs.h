#ifndef STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_
#define STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_

// The programs under test, with what nearly every test of them uses: GoogleTest, its matchers, files and processes.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/comes_true.h"
#include "tests/testing/paths.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach::testing {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

// What the demo model goes on from by heart: " the heaven and the earth.".
inline constexpr char kPrompt[] = "In the beginning God created";

// Both, one after the other.
Words Joined(Words words, const Words& more);
// The words of a command line, which blanks separate. '' is an empty word, MODEL stands for the demo model.
Words WordsOf(absl::string_view line);
// Those that are not empty.
std::vector<std::string> Lines(const std::string& text);
// How many lines a file has, ends counted; 0 where there is none.
int64_t LinesIn(const std::string& path);
// The word and a space, so many times.
std::string Repeated(const std::string& word, int times);

// Runs `coordinator <arguments>`.
ProgramResult Coordinator(const Words& arguments, const std::string& input = "", double timeout_s = 90);
// The same, which must end well: what it prints, as JSON too; nothing and null where it does not.
std::string CoordinatorOut(const Words& arguments, const std::string& input = "", double timeout_s = 90);
Json CoordinatorJson(const Words& arguments, const std::string& input = "", double timeout_s = 300);

// A command line that ends with this message before anything was started.
struct WrongCommand {
  std::string line;  // behind `first` below, see WordsOf; DIR stands for `directory`
  int exit_code;
  std::string message;
  std::string input = "";
};
// Runs `coordinator <first> <line>` for each. kOneLine: the message is the only line on standard error.
enum class Refusal { kAnyLines, kOneLine };
void ExpectRefused(const Words& first, const std::vector<WrongCommand>& commands, Refusal refusal = Refusal::kAnyLines,
                   const std::string& directory = "");

// Runs `mpirun -n 1 coordinator <arguments> : -n <stages> stage_worker`, in a world that we start instead of the
// coordinator. The flags are those of an oversubscribed single host; running as root is allowed.
Words WorldArguments(const Words& coordinator_arguments, int stages);
std::vector<std::pair<std::string, std::string>> AllowRoot();
ProgramResult World(const Words& coordinator_arguments, int stages, const std::string& input = "",
                    double timeout_s = 90);

// "generate -m <the demo model> --raw -q" and more, for the tests that are not about these.
Words Generate(const Words& more);
Words Batch(const std::string& in, const std::string& out, const Words& more = {});

// The stages of the job that `front` runs now, in the order of their ids.
std::vector<pid_t> StagesOf(pid_t front);

// A line of a batch.
std::string BatchInputLine(const std::string& custom_id, const Json& body);

// The lines of an output file, by custom_id; a line without one by "line N". Two lines with one key are a failure of
// the test.
std::map<std::string, Json> ReadBatchOutput(const std::string& path);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_
