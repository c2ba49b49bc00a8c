#include "common/job/job_limits.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

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

}  // namespace
}  // namespace stagecoach
