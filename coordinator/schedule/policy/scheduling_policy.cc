#include "coordinator/schedule/policy/scheduling_policy.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"
#include "coordinator/schedule/policy/decode_priority.h"
#include "coordinator/schedule/policy/interleaved.h"
#include "coordinator/schedule/policy/phases.h"
#include "coordinator/schedule/policy/prefill_first.h"
#include "coordinator/schedule/policy/throttled.h"

namespace stagecoach {
namespace {

template <typename Made>
std::unique_ptr<SchedulingPolicy> Make(const PolicyOptions& options) {
  return std::make_unique<Made>(options);
}

constexpr struct {
  Policy policy;
  std::unique_ptr<SchedulingPolicy> (*make)(const PolicyOptions&);
} kMakers[] = {{Policy::kPrefillFirst, Make<PrefillFirstPolicy>},
               {Policy::kInterleaved, Make<InterleavedPolicy>},
               {Policy::kDecodePriority, Make<DecodePriorityPolicy>},
               {Policy::kThrottled, Make<ThrottledPolicy>},
               {Policy::kPhases, Make<PhasesPolicy>}};
static_assert(std::size(kMakers) == std::size(kPolicies));

}  // namespace

std::unique_ptr<SchedulingPolicy> MakeSchedulingPolicy(const PolicyOptions& options) {
  const auto* const maker = std::find_if(std::begin(kMakers), std::end(kMakers),
                                         [&](const auto& entry) { return entry.policy == options.policy; });
  CHECK(maker != std::end(kMakers));
  return maker->make(options);
}

}  // namespace stagecoach
