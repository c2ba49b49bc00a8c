#include "coordinator/schedule/state_slots.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {

StateSlots::StateSlots(int32_t slots) : slots_(static_cast<size_t>(slots)) {
  free_.reserve(slots_.size());
  for (SlotId slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

void StateSlots::BeginMicroBatch() {
  ++micro_batch_;
  unsettled_ = 0;
}

SlotId StateSlots::Take() {
  const auto last = std::find_if(free_.rbegin(), free_.rend(), [this](SlotId slot) { return settled(slot); });
  if (last == free_.rend()) return kNoSlot;
  const SlotId slot = *last;
  free_.erase(std::next(last).base());
  Of(slot).references = 1;
  return slot;
}

void StateSlots::AddReference(SlotId slot) {
  Slot& of = Of(slot);
  CHECK(of.references > 0 || of.entry != kNoBlock);
  if (of.references++ > 0) return;
  --evictable_;
  if (!settled(slot)) --unsettled_;
}

void StateSlots::Drop(SlotId slot) {
  Slot& of = Of(slot);
  CHECK_GT(of.references, 0);
  of.dropped = micro_batch_;
  if (--of.references > 0) return;
  ++unsettled_;
  if (of.entry == kNoBlock) {
    free_.push_back(slot);
  } else {
    ++evictable_;
  }
}

void StateSlots::SetEntry(SlotId slot, BlockId entry) {
  Slot& of = Of(slot);
  CHECK((of.entry == kNoBlock) != (entry == kNoBlock));
  CHECK(entry == kNoBlock || of.references > 0);
  of.entry = entry;
  if (of.references > 0) return;
  --evictable_;
  free_.push_back(slot);
}

absl::Status StateSlots::CheckIntegrity() const {
  const auto violation = [](const auto&... what) {
    return absl::InternalError(absl::StrCat("state slots: ", what...));
  };
  std::vector<bool> listed(slots_.size());
  for (const SlotId slot : free_) {
    if (slot < 0 || slot >= total() || listed[static_cast<size_t>(slot)]) {
      return violation("the free list holds slot ", slot, " of ", total(), ", or holds it twice");
    }
    listed[static_cast<size_t>(slot)] = true;
  }
  int32_t evictable = 0, unsettled = 0;
  for (SlotId slot = 0; slot < total(); ++slot) {
    const Slot& of = Of(slot);
    if (of.references < 0) return violation("slot ", slot, " has ", of.references, " references");
    const bool is_free = of.references == 0 && of.entry == kNoBlock;
    if (is_free != listed[static_cast<size_t>(slot)]) {
      return violation("slot ", slot, " has ", of.references, " references and ",
                       of.entry == kNoBlock ? "no entry" : "an entry", ", and is ", is_free ? "not " : "",
                       "on the free list");
    }
    evictable += of.references == 0 && of.entry != kNoBlock ? 1 : 0;
    unsettled += of.references == 0 && !settled(slot) ? 1 : 0;
  }
  if (evictable == evictable_ && unsettled == unsettled_) return absl::OkStatus();
  return violation(evictable, " are evictable and ", unsettled, " were just given up; counted are ", evictable_,
                   " and ", unsettled_);
}

}  // namespace stagecoach
