#include <algorithm>
#include <vector>

#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"
#include "common/job/job_limits.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

TEST(CpuInstructionSets, BeginWithTheScalarOneAndAreInTheirOrder) {
  const std::vector<InstructionSet> sets = CpuInstructionSets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), InstructionSet::kScalar);
  EXPECT_TRUE(std::is_sorted(sets.begin(), sets.end()));
}

TEST(JobLimits, NameTheFieldTheValueAndTheRange) {
  EXPECT_TRUE(CheckJobField(JobLimits::kMaxNumSeqs, 1).ok());
  EXPECT_TRUE(CheckJobField(JobLimits::kMaxNumSeqs, 4096).ok());
  EXPECT_EQ(CheckJobField(JobLimits::kMaxNumSeqs, 4097).message(), "`max_num_seqs` is 4097, expected 1 to 4096");
  EXPECT_EQ(CheckJobField(JobLimits::kThreads, 0).message(), "`threads` is 0, expected 1 to 1024");
}

TEST(JobLimits, ZeroStandsForADefaultWhereThereIsOne) {
  EXPECT_TRUE(CheckJobFieldOrDefault(JobLimits::kMicroBatches, 0).ok());
  EXPECT_TRUE(CheckJobFieldOrDefault(JobLimits::kMicroBatches, 1024).ok());
  EXPECT_EQ(CheckJobFieldOrDefault(JobLimits::kMicroBatches, -1).message(),
            "`micro_batches` is -1, expected 1 to 1024");
}

TEST(JobLimits, ABlockHoldsWholeTiles) {
  for (const int64_t good : {16, 32, 48, 1024}) EXPECT_TRUE(CheckBlockTokens(good).ok()) << good;
  EXPECT_EQ(CheckBlockTokens(8).message(), "`block_tokens` is 8, expected 16 to 1024");
  EXPECT_EQ(CheckBlockTokens(1040).message(), "`block_tokens` is 1040, expected 16 to 1024");
  EXPECT_EQ(CheckBlockTokens(40).message(), "`block_tokens` is 40, expected a multiple of 16");
}

TEST(EmulatedLink, IsLatencyAndBandwidthInAnyOrderAndUnit) {
  const EmulatedLink link = {.latency_s = 0.002, .bytes_per_s = 125e6};
  for (const char* text : {"latency=2ms,bandwidth=1Gbit", "bandwidth=1000mbit,latency=2000us"}) {
    const EmulatedLink parsed = ParseEmulatedLink(text).value();
    EXPECT_DOUBLE_EQ(parsed.latency_s, link.latency_s);
    EXPECT_DOUBLE_EQ(parsed.bytes_per_s, link.bytes_per_s);
  }
  EXPECT_EQ(ParseEmulatedLink("latency=0.5s")->latency_s, 0.5);
  EXPECT_EQ(ParseEmulatedLink("bandwidth=8kbit")->bytes_per_s, 1000);
}

TEST(EmulatedLink, IsNamedAsItIsGiven) {
  for (const char* text : {"latency=2ms,bandwidth=1Gbit", "latency=50us", "bandwidth=2.5Gbit", "latency=1s",
                           "latency=1.0000001ms,bandwidth=1.000001Gbit"}) {
    const EmulatedLink parsed = ParseEmulatedLink(text).value();
    EXPECT_EQ(EmulatedLinkText(parsed), text);
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
    EXPECT_THAT(ParseEmulatedLink(text).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

}  // namespace
}  // namespace stagecoach
