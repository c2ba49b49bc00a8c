#include "common/job/cpu_isas.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(CpuInstructionSets, BeginWithTheScalarOneAndAreInTheirOrder) {
  const std::vector<InstructionSet> sets = CpuInstructionSets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), InstructionSet::kScalar);
  EXPECT_TRUE(std::is_sorted(sets.begin(), sets.end()));
}

}  // namespace
}  // namespace stagecoach
