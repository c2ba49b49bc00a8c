#include "coordinator/launch/hosts/host_file.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

TEST(HostFile, TheExamplesOfDeployAreRead) {
  const std::string directory = testing::SourcePath("deploy/hostfiles/");
  const auto local = ReadHostFile(directory + "local").value();
  EXPECT_EQ(local, std::vector<HostSlots>({{"localhost", 2}}));
  const auto rack = ReadHostFile(directory + "rack").value();
  ASSERT_EQ(rack.size(), 5u);
  EXPECT_EQ(rack[3].model, "/scratch/model.gguf");
  EXPECT_TRUE(rack[4].spare);
}

// Such as a model that was given by mistake.
TEST(HostFile, ShowsOnlyTheBeginningOfWhatIsNone) {
  const std::string word = std::string("GGUF\3\0\0", 7) + std::string(1000000, 'x');
  const std::string message(ParseHostFile("m.gguf", word).status().message());
  EXPECT_EQ(message.find("host file 'm.gguf', line 1: 'GGUF\\x03\\x00\\x00xxx"), 0u) << message.substr(0, 200);
  EXPECT_LT(message.size(), 200u);
}

}  // namespace
}  // namespace stagecoach
