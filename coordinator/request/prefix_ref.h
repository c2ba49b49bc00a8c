#ifndef STAGECOACH_COORDINATOR_REQUEST_PREFIX_REF_H_
#define STAGECOACH_COORDINATOR_REQUEST_PREFIX_REF_H_

#include <cstdint>

#include "common/base/ids.h"

namespace stagecoach {

// Names an entry of the prefix cache (coordinator/schedule/prefix_index.h), which may be gone by now.
struct PrefixRef {
  BlockId block = kNoBlock;  // in the first block group without a window
  uint64_t number = 0;       // 0: no entry
  bool exists() const { return number != 0; }
  friend bool operator==(const PrefixRef&, const PrefixRef&) = default;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REQUEST_PREFIX_REF_H_
