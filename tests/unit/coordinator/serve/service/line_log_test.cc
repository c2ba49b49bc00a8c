#include <signal.h>
#include <sys/resource.h>

#include <string>

#include "common/json/json_value.h"
#include "coordinator/serve/service/open_calls.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

TEST(LineLog, ALineForWhichThereIsNoRoomSpoilsNoneThatComesLater) {
  const testing::TempDir directory;
  const std::string path = directory.File("log");
  auto log = LineLog::Open(path, /*secret=*/false);
  ASSERT_TRUE(log.ok()) << log.status();
  const Json line = {{"number", 12345}};
  (*log)->Write(line);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = testing::ReadFileOrDie(path).size() + 5;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 3; ++i) (*log)->Write(line);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old_handler);
  (*log)->Write(line);
  EXPECT_EQ(testing::ReadFileOrDie(path), "{\"number\":12345}\n{\"num\n{\"number\":12345}\n");
}

TEST(LineLog, OnADeviceThatTakesNothingIsNoReasonToEnd) {
  auto log = LineLog::Open("/dev/full", /*secret=*/false);
  ASSERT_TRUE(log.ok()) << log.status();
  for (int i = 0; i < 3; ++i) (*log)->Write({{"number", i}});
}

}  // namespace
}  // namespace stagecoach
