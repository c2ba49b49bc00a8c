#ifndef STAGECOACH_STAGE_WORKER_KV_SLOT_TABLE_H_
#define STAGECOACH_STAGE_WORKER_KV_SLOT_TABLE_H_

// What the state slots of a job hold. Every stage keeps the same table, also one without recurrent layers. It decides
// nothing: it checks the coordinator's stream, so that a corrupted frame cannot make a sequence go on from the state of
// another number of rows, or from memory that was never written. Whose state a slot holds is the coordinator's to know:
// sequences share snapshots.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

// Used by one thread at a time.
class SlotTable {
 public:
  // `slots`: of the pool; 0: of a model without recurrent layers, whose slices name none.
  explicit SlotTable(int32_t slots) : rows_(static_cast<size_t>(slots), kNeverWritten), uses_(rows_.size()) {}

  // Whether the slices of a micro-batch may read and write the slots that they name. kInvalidArgument, by the first
  // slice that may not:
  //   names    a slot outside of the pool, none to write, or any of a model without recurrent layers
  //   reads    a slot that was never written, or is the state of another number of rows than come before the slice;
  //            zeros (kNoSlot) before a slice that does not start at position 0
  //   hazards  a slot that one slice writes and another one names, before it or behind it
  // The counts of rows are SequenceTable's to check.
  absl::Status Validate(const MicroBatch& batch) const;

  // The slots that the batch wrote are the states of so many rows from now on. It must have passed the check.
  void Commit(const MicroBatch& batch);

  // The rows that a slot is the state of; kNeverWritten.
  static constexpr int64_t kNeverWritten = -1;
  int64_t rows(SlotId slot) const { return rows_[static_cast<size_t>(slot)]; }

 private:
  struct Use {
    int32_t slices = 0;  // that name the slot
    bool written = false;
  };
  absl::Status ValidateSlice(const SequenceSlice& slice) const;
  bool Has(SlotId slot) const { return slot >= 0 && static_cast<size_t>(slot) < rows_.size(); }

  std::vector<int64_t> rows_;      // [slots]
  mutable std::vector<Use> uses_;  // [slots] by a micro-batch under validation; of none between two of them
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KV_SLOT_TABLE_H_
