#include "coordinator/trace/trace_job.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/trace/clock_estimate.h"

namespace stagecoach {
namespace {

absl::Status CheckSteps(const TraceJob& job) {
  for (const TraceStep& step : job.steps) {
    if (step.stages.size() != job.header.stages.size()) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batch ", step.number, " has the times of ",
                                                     step.stages.size(), " stages, the job has ", job.stages()));
    }
    bool in_order = step.ready_us <= step.submit_us && step.submit_us <= step.confirm_us;
    for (const TraceSpan& span : step.stages) {
      in_order = in_order && span.received_us <= span.start_us && span.start_us <= span.end_us &&
                 span.send_start_us <= span.send_end_us;
    }
    if (in_order) continue;
    return absl::InvalidArgumentError(absl::StrCat("micro-batch ", step.number, " has times that go back"));
  }
  return absl::OkStatus();
}

// A span says which send was complete last when it began; that send's frame is the last one that was computed before.
// What was not told, because the next send was complete before anybody asked, stays unknown; and so does what may be of
// a micro-batch that was left out of the record.
void AssignSendsToFrames(TraceJob* job) {
  for (size_t stage = 0; stage < job->header.stages.size(); ++stage) {
    int64_t told_us = 0;
    for (size_t i = 0; i < job->steps.size(); ++i) {
      TraceSpan& span = job->steps[i].stages[stage];
      const TraceSpan told = span;
      span.send_start_us = span.send_end_us = span.end_us;
      if (told.send_start_us == told_us || told.send_start_us == 0) continue;
      told_us = told.send_start_us;
      for (size_t back = i; back > 0 && job->steps[back - 1].number + 1 == job->steps[back].number; --back) {
        TraceSpan& earlier = job->steps[back - 1].stages[stage];
        if (earlier.end_us > told.send_start_us) continue;
        earlier.send_start_us = told.send_start_us;
        earlier.send_end_us = told.send_end_us;
        break;
      }
    }
  }
}

// By stage: the clock of its host; 0: the engine's. `shared`: or else every stage has one of its own.
std::vector<int> ClocksOf(const TraceHeader& header, bool shared) {
  std::map<std::string, int> numbers = {{header.coordinator_host, 0}};
  std::vector<int> clocks;
  for (const TraceStage& stage : header.stages) {
    const int next = shared ? static_cast<int>(numbers.size()) : static_cast<int>(clocks.size()) + 1;
    clocks.push_back(shared ? numbers.try_emplace(stage.host, next).first->second : next);
  }
  return clocks;
}

// A frame's way: when it left (by the sender's clock) and when it was there (by the receiver's). Hop 0 leads to the
// first stage, hop `stages` back to the coordinator.
struct Passage {
  int64_t left_us, there_us;
};
Passage PassageOf(const TraceStep& step, size_t hop) {
  const size_t stages = step.stages.size();
  return {hop == 0 ? step.submit_us : std::max(step.stages[hop - 1].end_us, step.stages[hop - 1].send_start_us),
          hop == stages ? step.confirm_us : step.stages[hop].received_us};
}

// The curve of every stage, or nothing.
std::optional<std::vector<ClockCurve>> CurvesOf(const TraceJob& job, bool shared, double drift_ppm) {
  const std::vector<int> clock_of_stage = ClocksOf(job.header, shared);
  const size_t stages = clock_of_stage.size();
  const int clocks = *std::max_element(clock_of_stage.begin(), clock_of_stage.end()) + 1;
  const int64_t first_us = job.begin_us(), last_us = job.end_us();
  // About what each clock's offset is: enough to tell when a message went.
  std::vector<std::optional<int64_t>> rough(static_cast<size_t>(clocks));
  rough[0] = 0;
  std::vector<HopBounds> hops;
  for (size_t hop = 0; hop <= stages; ++hop) {
    const int from = hop == 0 ? 0 : clock_of_stage[hop - 1], to = hop == stages ? 0 : clock_of_stage[hop];
    HopBounds& bounds = hops.emplace_back(from, to, first_us, last_us, drift_ppm);
    int64_t fastest_us = INT64_MAX;
    for (const TraceStep& step : job.steps) {
      const Passage passage = PassageOf(step, hop);
      fastest_us = std::min(fastest_us, passage.there_us - passage.left_us);
      bounds.Add(passage.left_us - *rough[static_cast<size_t>(from)], passage.there_us - passage.left_us);
    }
    if (from == to && fastest_us < -1) return std::nullopt;  // they do not share a clock
    std::optional<int64_t>& reached = rough[static_cast<size_t>(to)];
    constexpr int64_t kFar = int64_t{1} << 60;  // whatever the bytes of a file say
    if (!reached.has_value()) reached = std::clamp(*rough[static_cast<size_t>(from)] + fastest_us, -kFar, kFar);
  }
  const auto of_clock = EstimateClocks(clocks, hops);
  if (!of_clock.has_value()) return std::nullopt;
  std::vector<ClockCurve> curves;
  curves.reserve(clock_of_stage.size());
  for (const int clock : clock_of_stage) curves.push_back((*of_clock)[static_cast<size_t>(clock)]);
  return curves;
}

StageClock Describe(const ClockCurve& curve) {
  StageClock clock;
  if (curve.offset_us.empty()) return clock;
  const std::vector<double>& offsets = curve.offset_us;
  clock.offset_us = std::llround(offsets[offsets.size() / 2]);
  clock.error_us = static_cast<int64_t>(std::ceil(curve.error_us));
  const double span_us = static_cast<double>(curve.step_us) * static_cast<double>(offsets.size() - 1);
  if (span_us > 0) clock.drift_ppm = (offsets.back() - offsets.front()) / span_us * 1e6;
  return clock;
}

}  // namespace

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

int64_t TraceStep::rows() const { return prefill_rows + decode_rows + guessed_rows(); }

int64_t TraceStep::guessed_rows() const {
  return std::count_if(slices.begin(), slices.end(),
                       [](const TraceSlice& slice) { return slice.guess != GuessRecord::kNone; });
}

int64_t TraceStep::void_rows() const {
  return std::count_if(slices.begin(), slices.end(),
                       [](const TraceSlice& slice) { return slice.guess == GuessRecord::kVoid; });
}

int64_t TraceJob::missing() const {
  if (steps.empty()) return 0;
  return static_cast<int64_t>(steps.back().number - steps.front().number + 1) - static_cast<int64_t>(steps.size());
}

TraceStep TraceStepOf(const StepRecord& record) {
  TraceStep step;
  step.number = record.number;
  step.shutdown = record.shutdown;
  step.decode_rows = record.decode_rows();
  step.prefill_rows = record.rows() - step.decode_rows - record.guess_rows();
  step.sequences = static_cast<int64_t>(record.slices.size());
  step.ready_us = record.ready_us;
  step.submit_us = record.submit_us;
  step.confirm_us = record.confirm_us;
  step.queues = record.queues;
  for (const RecordedCommand& command : record.inputs.commands) {
    step.commands.push_back({command.cancel, command.request, command.sequence, command.at_us, command.prompt_tokens});
  }
  for (const StepRecord::Slice& slice : record.slices) {
    step.slices.push_back({slice.sequence, slice.start, slice.count, slice.sample, slice.guess});
  }
  for (const StageTimes& times : record.times) {
    step.stages.push_back(
        {times.received_us, times.start_us, times.end_us, times.send_start_us, times.send_start_us + times.send_us});
  }
  return step;
}

absl::Status AlignTrace(TraceJob* job) {
  if (job->aligned) return absl::OkStatus();
  RETURN_IF_ERROR(CheckSteps(*job));
  AssignSendsToFrames(job);
  job->cut = !job->header.simulated && (job->steps.empty() || !job->steps.back().shutdown);
  std::erase_if(job->steps, [](const TraceStep& step) { return step.shutdown; });
  job->aligned = true;
  job->clocks.assign(job->header.stages.size(), {});
  if (job->steps.empty() || job->header.stages.empty() || job->header.simulated) return absl::OkStatus();
  // Hosts of one name may be two after all, and a clock that is being set right goes faster for a while.
  std::optional<std::vector<ClockCurve>> curves;
  for (const double drift_ppm : {kDriftPpm, 10 * kDriftPpm}) {
    for (const bool shared : {true, false}) {
      if (!curves.has_value()) curves = CurvesOf(*job, shared, drift_ppm);
    }
  }
  if (!curves.has_value()) {
    return absl::InvalidArgumentError(
        "the times of the stages contradict each other: no clocks of their hosts explain them");
  }
  for (size_t stage = 0; stage < curves->size(); ++stage) job->clocks[stage] = Describe((*curves)[stage]);
  for (TraceStep& step : job->steps) {
    for (size_t stage = 0; stage < curves->size(); ++stage) {
      TraceSpan& span = step.stages[stage];
      for (int64_t* us : {&span.received_us, &span.start_us, &span.end_us, &span.send_start_us, &span.send_end_us}) {
        *us = (*curves)[stage].ToFirst(*us);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
