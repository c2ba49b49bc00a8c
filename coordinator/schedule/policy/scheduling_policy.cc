#include "coordinator/schedule/policy/scheduling_policy.h"

#include <iterator>
#include <utility>

#include "common/base/check.h"

namespace stagecoach {
namespace {

template <size_t... kPlaces>
std::unique_ptr<SchedulingPolicy> MakeNamed(const PolicyOptions& options, std::index_sequence<kPlaces...>) {
  std::unique_ptr<SchedulingPolicy> made;
  const auto make_if = [&](auto tag, Policy policy) {
    if (policy == options.policy) made = MakePolicy(tag, options);
  };
  (make_if(PolicyTag<kPolicies[kPlaces].value>(), kPolicies[kPlaces].value), ...);
  return made;
}

}  // namespace

std::unique_ptr<SchedulingPolicy> MakeSchedulingPolicy(const PolicyOptions& options) {
  std::unique_ptr<SchedulingPolicy> made = MakeNamed(options, std::make_index_sequence<std::size(kPolicies)>());
  CHECK(made != nullptr);
  return made;
}

}  // namespace stagecoach
