#include "coordinator/cli/options/client_key.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What is sent for a key file with this text, or why nothing is.
std::string Shown(const std::string& text) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("key"), text);
  const absl::StatusOr<HttpHeaders> headers = ReadClientKey(directory.File("key"));
  return headers.ok() ? headers->at(0).second : std::string(headers.status().message());
}

TEST(ClientKey, IsTheOneLineOfItsFileWithItsOwnersNameOrWithout) {
  for (const char* text : {"sk-mine", "sk-mine\r\n", "# of the lab\n\n  sk-mine  \n", "me:sk-mine\n",
                           "# name:key\nme:sk-mine:batch:0.5\n"}) {
    EXPECT_EQ(Shown(text), "Bearer sk-mine") << text;
  }
}

TEST(ClientKey, IsRefusedWithoutBeingShownWhereItIsNone) {
  EXPECT_THAT(Shown("a:sk-1\nb:sk-2\n"), AllOf(HasSubstr("expected one key, found 2 lines"), Not(HasSubstr("sk-"))));
  for (const char* text : {"", "# nothing\n", "me:\n", "sk-1 sk-2\n"}) {
    EXPECT_THAT(Shown(text), AllOf(HasSubstr("expected one key"), Not(HasSubstr("sk-")))) << text;
  }
}

}  // namespace
}  // namespace stagecoach
