#include "coordinator/cli/sweep/sweep_report.h"

#include <filesystem>

#include "coordinator/front/exit_codes.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// Two series of one directory would have one name, and no difference.
TEST(ReportSweep, RefusesADirectoryThatIsGivenTwice) {
  const testing::TempDir temporary;
  const std::string directory = temporary.File("a"), link = temporary.File("b");
  std::filesystem::create_directory(directory);
  std::filesystem::create_directory_symlink(directory, link);
  const absl::Status twice = ReportSweep({.directories = {directory, directory}});
  EXPECT_EQ(ExitCodeOf(twice), ExitCode::kUsage);
  EXPECT_EQ(twice.message(), "'" + directory + "' is given twice; name each directory once");
  for (const std::string& same : {directory + "/", directory + "/../a", link}) {
    EXPECT_EQ(ReportSweep({.directories = {directory, same}}).message(),
              "'" + directory + "' and '" + same + "' are the same directory; name each directory once");
  }
}

}  // namespace
}  // namespace stagecoach
