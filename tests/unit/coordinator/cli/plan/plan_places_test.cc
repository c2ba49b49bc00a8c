#include "coordinator/cli/plan/plan_places.h"

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::vector<std::string> AssumptionsOf(const std::string& hosts) {
  LaunchOptions launch;
  launch.hosts = hosts;
  const absl::StatusOr<PlanPlaces> places = FindPlaces(ClusterOptions(), {}, launch);
  EXPECT_TRUE(places.ok()) << places.status();
  return places.ok() ? places->assumptions : std::vector<std::string>();
}

// Two ways to write an address that no host can have.
TEST(PlanPlaces, TwoNamesOfOneAddressAreNamed) {
  const auto says_so = AllOf(HasSubstr("240.0.0.1 and 240.1 are two hosts"), HasSubstr("name it once"));
  EXPECT_THAT(AssumptionsOf("240.0.0.1:2,240.1,240.0.0.2"), Contains(says_so).Times(1));
  EXPECT_THAT(AssumptionsOf("240.0.0.1,240.0.0.2,240.0.0.1"), Not(Contains(HasSubstr("name it once"))));
}

}  // namespace
}  // namespace stagecoach
