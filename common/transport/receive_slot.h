#ifndef STAGECOACH_COMMON_TRANSPORT_RECEIVE_SLOT_H_
#define STAGECOACH_COMMON_TRANSPORT_RECEIVE_SLOT_H_

// The memory of one receive, lent to whoever holds the frame that arrived in it. For the bodies of Endpoint.

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/aligned_buffer.h"

namespace stagecoach {

struct ReceiveSlot {
  explicit ReceiveSlot(size_t bytes) : memory(bytes) {}
  AlignedBuffer memory;
  std::atomic<bool> lent{false};  // set by the endpoint's thread, cleared by whichever thread drops the lease
};

// Lends a slot. Dropping the lease only clears the flag (the endpoint's thread finds it at its next Poll), so any
// thread may do it; a lease that outlives the endpoint keeps the memory alive.
inline std::shared_ptr<const void> Lend(std::shared_ptr<ReceiveSlot> slot) {
  slot->lent.store(true, std::memory_order_relaxed);
  const void* memory = slot->memory.data();
  return std::shared_ptr<const void>(
      memory, [slot = std::move(slot)](const void*) { slot->lent.store(false, std::memory_order_release); });
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TRANSPORT_RECEIVE_SLOT_H_
