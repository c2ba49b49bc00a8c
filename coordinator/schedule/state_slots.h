#ifndef STAGECOACH_COORDINATOR_SCHEDULE_STATE_SLOTS_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_STATE_SLOTS_H_

// The slots of recurrent states (SequenceSlice in common/step/step.h). Ids are valid on every stage. A slot is
// referenced by sequences, and it may be the snapshot of an entry of the prefix cache:
//   used       referenced. One reference and no entry: a sequence writes it in place. Else it is left alone until the
//              last who reads it has done so.
//   evictable  a snapshot without references
//   free       neither
// Within a micro-batch, a slot that one slice writes is named by no other. So a slot that loses a reference while a
// micro-batch is composed is written from the next one on; between micro-batches the order of the stream is enough.
// BlockManager decides what is evicted. Not thread-safe.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"

namespace stagecoach {

class StateSlots {
 public:
  explicit StateSlots(int32_t slots);

  // What was given up before may be written again.
  void BeginMicroBatch();
  // A free slot with one reference; kNoSlot: there is none that may be written now.
  SlotId Take();
  void AddReference(SlotId slot);
  void Drop(SlotId slot);  // a reference
  // The slot becomes the snapshot of an entry, or of none: kNoBlock.
  void SetEntry(SlotId slot, BlockId entry);

  int32_t references(SlotId slot) const { return Of(slot).references; }
  BlockId entry(SlotId slot) const { return Of(slot).entry; }
  // Whether no slice of this micro-batch has named it and gone on to another.
  bool settled(SlotId slot) const { return Of(slot).dropped != micro_batch_; }
  // Whether it can be written by whoever has its one reference.
  bool IsOwn(SlotId slot) const { return references(slot) == 1 && settled(slot); }

  int32_t total() const { return static_cast<int32_t>(slots_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t evictable() const { return evictable_; }
  int32_t used() const { return total() - free() - evictable_; }
  // Of the free and the evictable ones: those that may be written now.
  int32_t available() const { return free() + evictable_ - unsettled_; }

  // The counts are those of the slots, and exactly those without references and entries are on the free list.
  absl::Status CheckIntegrity() const;

 private:
  struct Slot {
    int32_t references = 0;
    BlockId entry = kNoBlock;
    uint64_t dropped = 0;  // the micro-batch in which it last lost a reference
  };
  Slot& Of(SlotId slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& Of(SlotId slot) const { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Slot> slots_;
  std::vector<SlotId> free_;  // a stack: the slot freed last is used first, its memory is resident
  int32_t evictable_ = 0;
  int32_t unsettled_ = 0;  // without references, given up in this micro-batch
  uint64_t micro_batch_ = 1;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_STATE_SLOTS_H_
