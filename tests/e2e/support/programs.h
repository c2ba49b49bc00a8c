#ifndef STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_
#define STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_

// The programs under test.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json_value.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach::testing {

using Words = std::vector<std::string>;

// What the demo model goes on from by heart: " the heaven and the earth.".
inline constexpr char kPrompt[] = "In the beginning God created";

// Both, one after the other.
Words Joined(Words words, const Words& more);
// Those that are not empty.
std::vector<std::string> Lines(const std::string& text);
// The word and a space, so many times.
std::string Repeated(const std::string& word, int times);

// Runs `coordinator <arguments>`.
ProgramResult Coordinator(const Words& arguments, const std::string& input = "", double timeout_s = 90);

// Runs `mpirun -n 1 coordinator <arguments> : -n <stages> stage_worker`, in a world that we start instead of the
// coordinator. The flags are those of an oversubscribed single host; running as root is allowed.
Words WorldArguments(const Words& coordinator_arguments, int stages);
std::vector<std::pair<std::string, std::string>> AllowRoot();
ProgramResult World(const Words& coordinator_arguments, int stages, const std::string& input = "",
                    double timeout_s = 90);

// "generate -m <the demo model> --raw -q" and more, for the tests that are not about these.
Words Generate(const Words& more);
Words Batch(const std::string& in, const std::string& out, const Words& more = {});

// A line of a batch.
std::string BatchInputLine(const std::string& custom_id, const Json& body);

// The lines of an output file, by custom_id; a line without one by "line N". Two lines with one key are a failure of
// the test.
std::map<std::string, Json> ReadBatchOutput(const std::string& path);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_E2E_SUPPORT_PROGRAMS_H_
