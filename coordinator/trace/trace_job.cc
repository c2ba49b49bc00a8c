#include "coordinator/trace/trace_job.h"

#include <algorithm>

namespace stagecoach {

int64_t TraceJob::begin_us() const {
  int64_t begin = steps.empty() ? header.start_us : steps.front().submit_us;
  for (const TraceStep& step : steps) begin = std::min(begin, step.submit_us);
  return begin;
}

int64_t TraceJob::end_us() const {
  int64_t end = begin_us();
  for (const TraceStep& step : steps) end = std::max(end, step.confirm_us);
  return end;
}

TraceStep TraceStepOf(const StepRecord& record) {
  TraceStep step;
  step.number = record.number;
  step.shutdown = record.shutdown;
  step.decode_rows = record.decode_rows();
  step.prefill_rows = record.rows() - step.decode_rows;
  step.sequences = static_cast<int64_t>(record.slices.size());
  step.ready_us = record.ready_us;
  step.submit_us = record.submit_us;
  step.confirm_us = record.confirm_us;
  step.queues = record.queues;
  for (const StageTimes& times : record.times) {
    step.stages.push_back(
        {times.received_us, times.start_us, times.end_us, times.send_start_us, times.send_start_us + times.send_us});
  }
  return step;
}

}  // namespace stagecoach
