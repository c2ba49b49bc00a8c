#include "common/job/emulated_link.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(EmulatedLink, IsLatencyAndBandwidthInAnyOrderAndUnit) {
  const EmulatedLink link = {.latency_s = 0.002, .bytes_per_s = 125e6};
  for (const char* text : {"latency=2ms,bandwidth=1Gbit", "bandwidth=1000mbit,latency=2000us"}) {
    const absl::StatusOr<EmulatedLink> parsed = ParseEmulatedLink(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_DOUBLE_EQ(parsed->latency_s, link.latency_s);
    EXPECT_DOUBLE_EQ(parsed->bytes_per_s, link.bytes_per_s);
  }
  EXPECT_EQ(ParseEmulatedLink("latency=0.5s")->latency_s, 0.5);
  EXPECT_EQ(ParseEmulatedLink("bandwidth=8kbit")->bytes_per_s, 1000);
}

TEST(EmulatedLink, IsNamedAsItIsGiven) {
  for (const char* text : {"latency=2ms,bandwidth=1Gbit", "latency=50us", "bandwidth=2.5Gbit", "latency=1s"}) {
    const absl::StatusOr<EmulatedLink> parsed = ParseEmulatedLink(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(EmulatedLinkText(*parsed), text);
  }
  EXPECT_EQ(EmulatedLinkText({}), "");
}

TEST(EmulatedLink, ThatIsNoneIsRefusedWithWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is neither latency=... nor bandwidth=...; expected such as latency=2ms,bandwidth=1Gbit"},
      {"jitter=1ms", "'jitter=1ms' is neither"},
      {"latency=2", "'2' is not a number with one of the units s, ms, us"},
      {"latency=-1ms", "'-1ms' is not a number"},
      {"bandwidth=1GB", "'1GB' is not a number with one of the units Gbit, Mbit, kbit"},
      {"latency=2s", "a latency of 2 is out of range, expected 0 to 1 s"},
      {"bandwidth=1kbit", "a bandwidth of 125 is out of range"},
      {"latency=0ms", "a link that delays nothing"}};
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseEmulatedLink(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace stagecoach
