#ifndef STAGECOACH_STAGE_WORKER_KV_STATE_POOL_H_
#define STAGECOACH_STAGE_WORKER_KV_STATE_POOL_H_

// The memory behind state slots: what the recurrent layers of this stage keep of a sequence, in f32. The coordinator
// owns the slots; see SlotTable.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "stage_worker/exec/page_memory.h"

namespace stagecoach {

// A slot is resident from its first write on: it is neither zeroed nor touched before, and no slot is read that was
// never written. Threads may use different layers, slots, or parts of one.
class StatePool {
 public:
  StatePool() = default;  // of a stage without recurrent layers

  // layer_floats: [recurrent layers of the stage] floats of a sequence in each. kInvalidArgument for no layer, a layer
  // without a state, no slot, or a size that overflows; kResourceExhausted when the system has no such address range.
  static absl::StatusOr<StatePool> Create(absl::Span<const int64_t> layer_floats, int32_t slots);

  // The state of the stage's `layer`-th recurrent layer: layer_floats[layer] floats.
  float* State(SlotId slot, int64_t layer) const {
    return reinterpret_cast<float*>(memory_.data()) + static_cast<size_t>(slot) * slot_floats_ +
           first_floats_[static_cast<size_t>(layer)];
  }

  size_t bytes() const { return memory_.size(); }

 private:
  // [slot][layer]: a snapshot, like a sequence that ends, leaves whole pages to others.
  std::vector<size_t> first_floats_;  // [layers] in a slot
  size_t slot_floats_ = 0;
  PageMemory memory_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KV_STATE_POOL_H_
