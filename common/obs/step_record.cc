#include "common/obs/step_record.h"

namespace stagecoach {

StepRecord::StepRecord(const MicroBatch& batch, const StepResult& result)
    : number(batch.number), shutdown(batch.shutdown), times(result.times) {
  slices.reserve(batch.slices.size());
  for (const SequenceSlice& slice : batch.slices) {
    slices.push_back({slice.sequence, slice.start, slice.count, slice.sample});
  }
}

size_t StepRecord::bytes() const {
  size_t hashes = 0;
  for (const RecordedCommand& command : inputs.commands) hashes += command.blocks.size();
  return hashes * sizeof(uint64_t) + sizeof(*this) + slices.size() * sizeof(Slice) + times.size() * sizeof(StageTimes) +
         inputs.commands.size() * sizeof(RecordedCommand) + inputs.blocks.size() * sizeof(RecordedBlock) +
         (queues.blocks_used.size() + queues.blocks_free.size()) * sizeof(int32_t);
}

int64_t StepRecord::rows() const {
  int64_t rows = 0;
  for (const Slice& slice : slices) rows += slice.count;
  return rows;
}

int64_t StepRecord::decode_rows() const {
  int64_t rows = 0;
  for (const Slice& slice : slices) rows += slice.count == 1 && slice.sample ? 1 : 0;
  return rows;
}

}  // namespace stagecoach
