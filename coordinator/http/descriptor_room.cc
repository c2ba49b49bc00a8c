#include "coordinator/http/descriptor_room.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

namespace stagecoach {

int DescriptorRoom(int wanted) {
  const int64_t needed = int64_t{wanted} + kOtherDescriptors;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(needed)) return wanted;
  // No further than needed: launchers close every number up to the limit, one after the other.
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(static_cast<rlim_t>(needed), limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  const auto descriptors = static_cast<int64_t>(limit.rlim_cur);
  // Where there are few of them the others get half.
  const int64_t room = std::max(descriptors - kOtherDescriptors, descriptors / 2);
  return static_cast<int>(std::clamp<int64_t>(room, 1, wanted));
}

}  // namespace stagecoach
