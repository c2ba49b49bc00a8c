#include "coordinator/pipeline/roster.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondUs = 1000000;

std::vector<pb::Hello> TwoStages() {
  std::vector<pb::Hello> hellos(2);
  hellos[0].set_rank(5);
  hellos[0].set_host("alpha");
  hellos[0].set_pid(10);
  hellos[1].set_rank(2);
  hellos[1].set_host("beta");
  hellos[1].set_pid(20);
  return hellos;
}

pb::Heartbeat Beat(int stage, uint64_t steps) {
  pb::Heartbeat heartbeat;
  heartbeat.set_stage(stage);
  heartbeat.set_steps_done(steps);
  return heartbeat;
}

pb::StageReady Ready(int stage) {
  pb::StageReady ready;
  ready.set_stage(stage);
  return ready;
}

class RosterTest : public ::testing::Test {
 protected:
  RosterTest() : roster_(TwoStages(), /*progress_timeout_us=*/60 * kSecondUs, /*now_us=*/0) {}

  void BecomeReady() {
    roster_.Heard(Ready(0), 0);
    roster_.Heard(Ready(1), 0);
  }
  // Both stages beat every second until `until`, without moving a counter.
  void BeatUntil(int64_t until, uint64_t steps0, uint64_t steps1) {
    for (int64_t now = 0; now <= until; now += kSecondUs) {
      roster_.Heard(Beat(0, steps0), now);
      roster_.Heard(Beat(1, steps1), now);
    }
  }

  Roster roster_;
};

TEST_F(RosterTest, KnowsWhichRankIsWhichStage) {
  EXPECT_EQ(roster_.stage(0).rank, 5);
  EXPECT_EQ(roster_.StageOfRank(2), 1);
  EXPECT_EQ(roster_.StageOfRank(1), std::nullopt);
}

TEST_F(RosterTest, ABlipOfAFewSecondsIsNotALoss) {
  BecomeReady();
  EXPECT_TRUE(roster_.CheckAlive(5 * kSecondUs, 0).ok());
}

TEST_F(RosterTest, NamesTheStageThatFellSilent) {
  BecomeReady();
  roster_.Heard(Beat(0, 1), 5 * kSecondUs);
  const absl::Status status = roster_.CheckAlive(7 * kSecondUs, -1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage 1 on beta (process 20): no heartbeat for 7.0 s"));
}

TEST_F(RosterTest, NamesTheStageThatHoldsTheWorkWithoutProgress) {
  BecomeReady();
  roster_.WorkHandedOut(kSecondUs);
  BeatUntil(70 * kSecondUs, /*steps0=*/5, /*steps1=*/4);  // micro-batch 4 passed stage 0 and sits with stage 1
  EXPECT_TRUE(roster_.CheckAlive(60 * kSecondUs, 4).ok());
  const absl::Status status = roster_.CheckAlive(70 * kSecondUs, 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage 1 on beta"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("without progress"));
}

TEST_F(RosterTest, ALossSaysForProgramsTooWhichStageItIsAbout) {
  BecomeReady();
  for (int64_t now = 0; now <= 7 * kSecondUs; now += kSecondUs) roster_.Heard(Beat(0, 0), now);
  const absl::Status lost = roster_.CheckAlive(7 * kSecondUs, -1);
  EXPECT_EQ(LostStage(lost), 1) << lost;
  EXPECT_EQ(LostStage(absl::UnavailableError("the front is gone")), std::nullopt);
}

TEST_F(RosterTest, IdlenessIsNotLackOfProgress) {
  BecomeReady();
  BeatUntil(500 * kSecondUs, 5, 5);
  EXPECT_TRUE(roster_.CheckAlive(500 * kSecondUs, -1).ok());
}

TEST_F(RosterTest, LoadingWithoutMovingBytesIsALossOfTheStageThatIsNotReady) {
  roster_.Heard(Ready(0), 0);
  BeatUntil(61 * kSecondUs, 0, 0);
  const absl::Status status = roster_.CheckAlive(61 * kSecondUs, -1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage 1 on beta (process 20): loading without progress"));
}

TEST_F(RosterTest, StreamedBytesAndMemoryAreProgressBeforeAnyWeightIsLoaded) {
  for (const auto set : {&pb::Heartbeat::set_bytes_streamed, &pb::Heartbeat::set_bytes_touched}) {
    Roster roster(TwoStages(), /*progress_timeout_us=*/60 * kSecondUs, /*now_us=*/0);
    for (int64_t now = 0; now <= 61 * kSecondUs; now += kSecondUs) {
      pb::Heartbeat heartbeat = Beat(0, 0);
      (heartbeat.*set)(now > 50 * kSecondUs ? 50 : static_cast<uint64_t>(now / kSecondUs));
      roster.Heard(heartbeat, now);
      roster.Heard(Beat(1, 0), now);
    }
    EXPECT_TRUE(roster.CheckAlive(61 * kSecondUs, -1).ok());
  }
}

TEST_F(RosterTest, AMovingCounterRestartsTheProgressClock) {
  BecomeReady();
  BeatUntil(50 * kSecondUs, 5, 4);
  pb::Heartbeat moved = Beat(1, 4);
  moved.set_layers_done(1);
  roster_.Heard(moved, 50 * kSecondUs);
  for (int64_t now = 51; now <= 100; ++now) {
    roster_.Heard(Beat(0, 5), now * kSecondUs);
    roster_.Heard(moved, now * kSecondUs);
  }
  EXPECT_TRUE(roster_.CheckAlive(100 * kSecondUs, 4).ok());
}

}  // namespace
}  // namespace stagecoach
