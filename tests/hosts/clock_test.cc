// A trace over hosts whose clocks have nothing to do with each other.

#include <cmath>

#include "tests/hosts/support/generation.h"
#include "tests/testing/trace_check.h"

namespace stagecoach::testing {
namespace {

class ClockTest : public HostsTest {};

TEST_F(ClockTest, ATraceBringsTheClocksOfAllHostsTogetherWithinItsError) {
  if (!EmulatedHosts::HaveClocks()) GTEST_SKIP() << "no emulated hosts on this machine have clocks of their own";
  auto front = Start(kThreeHosts, {"--trace", "/mnt/trace.json"});
  ExpectTheAnswer(front.get());
  const nlohmann::json events =
      nlohmann::json::parse(ReadFileOrDie(hosts().Outside("/mnt/trace.json")), nullptr, false);
  ExpectWellFormedTrace(events);
  const nlohmann::json& job = events[0]["args"];
  ASSERT_EQ(job["clocks"].size(), 3u);
  for (int stage = 0; stage < 3; ++stage) {
    const nlohmann::json& clock = job["clocks"][static_cast<size_t>(stage)];
    const std::string host = job["stages"][static_cast<size_t>(stage)]["host"];
    EXPECT_EQ(host, EmulatedHosts::Name(stage + 1));
    // The front is on host 1.
    const int64_t truth_us = 1000000 * int64_t{EmulatedHosts::ClockOffsetS(stage + 1) - EmulatedHosts::ClockOffsetS(1)};
    const int64_t off_us = std::abs(clock["offset_us"].get<int64_t>() - truth_us);
    EXPECT_LE(off_us, clock["error_us"].get<int64_t>()) << clock;
    // Whatever keeps this machine busy, some frame of a hundred came through in good time.
    EXPECT_LE(clock["error_us"].get<int64_t>(), 200000) << clock;
    EXPECT_EQ(clock["error_us"].get<int64_t>() == 0, stage == 0) << "it is the coordinator's";
  }
  // By its true clock nothing is there before it was sent.
  for (const nlohmann::json& event : events) {
    if (event["ph"] != "b") continue;
    const nlohmann::json& stages = event["args"]["stages"];
    for (size_t s = 0; s < stages.size(); ++s) {
      const int64_t sent = s == 0 ? 0 : stages[s - 1][2].get<int64_t>();
      EXPECT_GE(stages[s][0].get<int64_t>(), sent - 2) << event;
    }
    EXPECT_GE(event["args"]["confirm"].get<int64_t>(), stages.back()[2].get<int64_t>() - 2) << event;
  }
}

}  // namespace
}  // namespace stagecoach::testing
