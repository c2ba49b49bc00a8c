#ifndef STAGECOACH_COORDINATOR_REQUEST_PRIORITY_CLASS_H_
#define STAGECOACH_COORDINATOR_REQUEST_PRIORITY_CLASS_H_

// Who goes first: all that wait of a higher class, up to a bound, and within a class tenants by what they had for their
// weight (coordinator/schedule/waiting_queue.h). The names are those of key files and metrics; the numbers those of
// requests' `priority` and of the wire.

#include <cstddef>
#include <cstdint>

#include "common/base/value_range.h"

namespace stagecoach {

enum class PriorityClass : int32_t { kInteractive = 0, kDefault = 1, kBatch = 2 };  // the highest first
inline constexpr size_t kPriorityClassCount = 3;
inline constexpr NamedValue<PriorityClass> kPriorityClasses[] = {{PriorityClass::kInteractive, "interactive"},
                                                                 {PriorityClass::kDefault, "default"},
                                                                 {PriorityClass::kBatch, "batch"}};
constexpr const char* PriorityClassName(PriorityClass priority) { return NameOf(kPriorityClasses, priority); }

inline constexpr NumberRange kWeightRange = {0.001, 1000};  // of a tenant

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_REQUEST_PRIORITY_CLASS_H_
