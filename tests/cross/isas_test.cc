#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

TEST(ListIsas, FindsWhatTheEmulatedProcessorHas) {
  const char* expected = std::getenv("EXPECTED_ISAS");
  ASSERT_NE(expected, nullptr) << "set by the script that runs this program";
  std::string found;
  for (const Isa& isa : ListIsas()) {
    if (isa.available) found += (found.empty() ? "" : " ") + std::string(isa.kernels->isa);
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace stagecoach
