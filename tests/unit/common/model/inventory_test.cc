// The documented table of models is that of the architectures.

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/model/architectures.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// The names in the first column of the table with that heading.
std::vector<std::string> FirstColumn(const std::string& heading) {
  std::ifstream file(testing::SourcePath("deploy/docs/models.md"));
  std::vector<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "| " + heading + " |")) inside = true;
    if (inside && line.empty()) break;
    if (!inside || absl::StartsWith(line, "|--") || absl::StartsWith(line, "| " + heading)) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    for (const absl::string_view name : absl::StrSplit(absl::StripPrefix(cells[0], "| "), ", ")) {
      names.emplace_back(name);
    }
  }
  return names;
}

TEST(Inventory, OfTheDocumentsNamesEveryArchitectureAndNoOther) {
  const std::vector<std::string> supported = absl::StrSplit(SupportedArchitectures(), ", ");
  EXPECT_THAT(FirstColumn("architecture"), ::testing::UnorderedElementsAreArray(supported));
}

}  // namespace
}  // namespace stagecoach
