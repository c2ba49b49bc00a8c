#include "common/transport/doorbells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "common/transport/wait_ladder.h"

namespace stagecoach {
namespace {

constexpr int64_t kAnHourUs = 3600LL * 1'000'000;

class DoorbellsTest : public ::testing::Test {
 protected:
  DoorbellsTest() { std::filesystem::create_directory(directory_); }
  ~DoorbellsTest() override { std::filesystem::remove_all(directory_); }
  std::unique_ptr<Doorbells> Open(int ranks) {
    absl::StatusOr<std::unique_ptr<Doorbells>> doorbells = Doorbells::Open(directory_, ranks);
    EXPECT_TRUE(doorbells.ok()) << doorbells.status();
    return doorbells.ok() ? *std::move(doorbells) : nullptr;
  }
  const std::string directory_ =
      ::testing::TempDir() + "doorbells." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

// Two mappings of one file are to the kernel what two processes are.
TEST_F(DoorbellsTest, ARingOfOneProcessEndsTheSleepOfAnother) {
  const std::unique_ptr<Doorbells> here = Open(3), there = Open(3);
  ASSERT_NE(here->of(1), there->of(1));
  bool woken = false;
  std::thread sleeping([&] { woken = Sleeper(there->of(1)).Sleep(kAnHourUs); });
  while (here->of(1)->load() == 0) std::this_thread::yield();  // until it sleeps
  here->Ring(1);
  sleeping.join();
  EXPECT_TRUE(woken);
}

TEST_F(DoorbellsTest, ARingBeforeASleepLetsThatSleepNotBegin) {
  const std::unique_ptr<Doorbells> here = Open(2), there = Open(2);
  here->Ring(1);
  EXPECT_TRUE(Sleeper(there->of(1)).Sleep(kAnHourUs));
  EXPECT_FALSE(Sleeper(there->of(1)).Sleep(1)) << "it was for one sleep";
}

TEST_F(DoorbellsTest, ARingIsForOneRankAlone) {
  const std::unique_ptr<Doorbells> here = Open(3), there = Open(3);
  here->Ring(0);
  here->Ring(2);
  EXPECT_FALSE(Sleeper(there->of(1)).Sleep(1));
}

TEST_F(DoorbellsTest, AProcessThatEndedInItsSleepDoesNotKeepTheNextOneFromSleepingAndWaking) {
  const std::unique_ptr<Doorbells> here = Open(1), there = Open(1);
  there->of(0)->store(1);  // asleep, and nobody there
  Sleeper next(there->of(0));
  EXPECT_FALSE(next.Sleep(1));
  here->Ring(0);
  EXPECT_TRUE(next.Sleep(kAnHourUs));
}

TEST_F(DoorbellsTest, AJobOfMoreRanksInTheSameDirectoryHasAWordForEach) {
  Open(1);
  const std::unique_ptr<Doorbells> more = Open(1000);
  more->Ring(999);
  EXPECT_TRUE(Sleeper(more->of(999)).Sleep(kAnHourUs));
}

TEST_F(DoorbellsTest, ADirectoryThatIsNotThereIsAnErrorThatNamesTheFile) {
  const absl::StatusOr<std::unique_ptr<Doorbells>> doorbells = Doorbells::Open(directory_ + "/none", 2);
  EXPECT_TRUE(absl::IsUnavailable(doorbells.status()));
  EXPECT_THAT(doorbells.status().message(), ::testing::HasSubstr("none/doorbells"));
}

}  // namespace
}  // namespace stagecoach
