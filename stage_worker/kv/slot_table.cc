#include "stage_worker/kv/slot_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

absl::Status RefusedSlice(const SequenceSlice& slice, const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat("a slice of sequence ", slice.sequence, " ", why...));
}

}  // namespace

absl::Status SlotTable::ValidateSlice(const SequenceSlice& slice) const {
  if (rows_.empty()) {
    if (slice.state_read == kNoSlot && slice.state_write == kNoSlot) return absl::OkStatus();
    return RefusedSlice(slice, "reads state slot ", slice.state_read, " and writes ", slice.state_write,
                        ", but the model has no recurrent layers");
  }
  const size_t last = rows_.size() - 1;
  if (!Has(slice.state_write)) {
    return RefusedSlice(slice, "writes state slot ", slice.state_write, ", the pool has slots 0 to ", last);
  }
  if (slice.state_read == kNoSlot) {
    if (slice.start == 0) return absl::OkStatus();
    return RefusedSlice(slice, "starts at position ", slice.start,
                        " and reads no state slot, expected the slot of its rows so far");
  }
  if (!Has(slice.state_read)) {
    return RefusedSlice(slice, "reads state slot ", slice.state_read, ", the pool has slots 0 to ", last);
  }
  const int64_t rows = rows_[static_cast<size_t>(slice.state_read)];
  if (rows == slice.start && rows != kNeverWritten) return absl::OkStatus();
  return RefusedSlice(slice, "starts at position ", slice.start, " and reads state slot ", slice.state_read, ", which ",
                      rows == kNeverWritten ? "was never written" : absl::StrCat("is the state of ", rows, " rows"));
}

absl::Status SlotTable::Validate(const MicroBatch& batch) const {
  for (const SequenceSlice& slice : batch.slices) RETURN_IF_ERROR(ValidateSlice(slice));
  if (rows_.empty()) return absl::OkStatus();
  const auto for_each_use = [&](const SequenceSlice& slice, const auto& use) {
    use(uses_[static_cast<size_t>(slice.state_write)]);
    if (slice.state_read != kNoSlot && slice.state_read != slice.state_write) {
      use(uses_[static_cast<size_t>(slice.state_read)]);
    }
  };
  for (const SequenceSlice& slice : batch.slices) {
    for_each_use(slice, [](Use& use) { ++use.slices; });
    uses_[static_cast<size_t>(slice.state_write)].written = true;
  }
  absl::Status status;
  for (const SequenceSlice& slice : batch.slices) {
    for_each_use(slice, [&](const Use& use) {
      if (!use.written || use.slices == 1) return;
      status.Update(RefusedSlice(slice, "names state slot ", &use - uses_.data(),
                                 ", which one of several slices of micro-batch ", batch.number, " writes"));
    });
  }
  for (const SequenceSlice& slice : batch.slices) for_each_use(slice, [](Use& use) { use = {}; });
  return status;
}

void SlotTable::Commit(const MicroBatch& batch) {
  if (rows_.empty()) return;
  for (const SequenceSlice& slice : batch.slices) {
    rows_[static_cast<size_t>(slice.state_write)] = int64_t{slice.start} + slice.count;
  }
}

}  // namespace stagecoach
