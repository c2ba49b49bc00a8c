#include "coordinator/trace/trace_summary.h"

namespace stagecoach {

TraceSummary SummarizeTrace(const TraceJob& job) {
  TraceSummary summary;
  summary.wall_us = job.end_us() - job.begin_us();
  summary.micro_batches = static_cast<int64_t>(job.steps.size());
  for (const TraceStep& step : job.steps) {
    summary.prefill_rows += step.prefill_rows;
    summary.decode_rows += step.decode_rows;
  }
  for (int stage = 0; stage < job.stages(); ++stage) summary.stages.push_back({SumStates(StageStates(job, stage))});
  summary.causes = FindBubbleCauses(job);
  return summary;
}

}  // namespace stagecoach
