#include "coordinator/schedule/policy/interleaved.h"

namespace stagecoach {

std::unique_ptr<SchedulingPolicy> MakePolicy(PolicyTag<Policy::kInterleaved>, const PolicyOptions& options) {
  return std::make_unique<InterleavedPolicy>(options);
}

}  // namespace stagecoach
