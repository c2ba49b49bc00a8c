#include "coordinator/trace/trace_summary.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stagecoach {
namespace {

// Something begins or ends to hold; those of one state may hold several times at once.
struct Change {
  int64_t at_us;
  StageState state;
  int by;
};

class Changes {
 public:
  Changes(int64_t begin_us, int64_t end_us) : begin_us_(begin_us), end_us_(end_us) {}
  void Add(StageState state, int64_t from_us, int64_t to_us) {
    from_us = std::clamp(from_us, begin_us_, end_us_);
    to_us = std::clamp(to_us, begin_us_, end_us_);
    if (from_us >= to_us) return;
    changes_.push_back({from_us, state, 1});
    changes_.push_back({to_us, state, -1});
  }

  std::vector<StateSpan> Spans() {
    std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) { return a.at_us < b.at_us; });
    std::vector<StateSpan> spans;
    std::array<int, kStageStates> holding = {};
    holding[static_cast<size_t>(StageState::kIdle)] = 1;
    int64_t at_us = begin_us_;
    for (size_t i = 0; i <= changes_.size(); ++i) {
      const int64_t next_us = i < changes_.size() ? changes_[i].at_us : end_us_;
      if (next_us > at_us) {
        const auto first = std::find_if(holding.begin(), holding.end(), [](int count) { return count > 0; });
        const StageState state = static_cast<StageState>(first - holding.begin());
        if (!spans.empty() && spans.back().state == state) {
          spans.back().end_us = next_us;
        } else {
          spans.push_back({state, at_us, next_us});
        }
        at_us = next_us;
      }
      if (i < changes_.size()) holding[static_cast<size_t>(changes_[i].state)] += changes_[i].by;
    }
    return spans;
  }

 private:
  const int64_t begin_us_, end_us_;
  std::vector<Change> changes_;
};

// What a play keeps of the run.
struct KeptObstacles {
  bool turns = true, hops = true, imbalance = true, results = true;
};

// What a micro-batch waited for in the run.
struct Need {
  int64_t result = -1;     // the place of the step whose result it was; -1: none
  int64_t command_us = 0;  // the latest command
};

std::vector<Need> NeedsOf(const TraceJob& job) {
  std::vector<Need> needs;
  size_t confirmed = 0;  // steps whose result was there
  int64_t command_us = job.steps.empty() ? 0 : job.steps.front().ready_us;
  for (const TraceStep& step : job.steps) {
    while (confirmed < needs.size() && job.steps[confirmed].confirm_us <= step.ready_us) ++confirmed;
    const bool by_result = confirmed > 0 && job.steps[confirmed - 1].confirm_us == step.ready_us;
    if (!by_result) command_us = std::max(command_us, step.ready_us);
    needs.push_back({static_cast<int64_t>(confirmed) - 1, command_us});
  }
  return needs;
}

// Of what the stages computed for this step: the part that proved void.
double VoidShare(const TraceStep& step) {
  const int64_t voids = step.void_rows();
  return voids == 0 ? 0 : static_cast<double>(voids) / static_cast<double>(std::max(step.rows(), voids));
}

double AtLeast0(int64_t us) { return static_cast<double>(std::max<int64_t>(us, 0)); }

// The run under `kept`; returns the time with work.
class Replay {
 public:
  Replay(const TraceJob& job, const std::vector<Need>& needs, KeptObstacles kept)
      : job_(job), needs_(needs), kept_(kept), free_us_(job.header.stages.size(), 0.0) {}

  double BusyUs() {
    if (job_.steps.empty()) return 0;
    begin_us_ = job_.steps.front().ready_us;
    double busy_us = 0, covered_us = 0;
    for (size_t i = 0; i < job_.steps.size(); ++i) {
      double ready_us = static_cast<double>(needs_[i].command_us - begin_us_);
      if (kept_.results && needs_[i].result >= 0)
        ready_us = std::max(ready_us, done_us_[static_cast<size_t>(needs_[i].result)]);
      const double done_us = DoneUs(i, ready_us);
      done_us_.push_back(done_us);
      busy_us += std::max(0.0, done_us - std::max(ready_us, covered_us));
      covered_us = std::max(covered_us, done_us);
    }
    return busy_us;
  }

 private:
  double DoneUs(size_t i, double ready_us) {
    const TraceStep& step = job_.steps[i];
    const double hops = kept_.hops ? 1 : 0;
    double mean_us = 0;
    for (const TraceSpan& span : step.stages) mean_us += AtLeast0(span.end_us - span.start_us);
    mean_us /= static_cast<double>(step.stages.size());
    double at_us = ready_us + (kept_.turns ? AtLeast0(step.submit_us - step.ready_us) : 0);
    int64_t left_us = step.submit_us;
    for (size_t s = 0; s < step.stages.size(); ++s) {
      const TraceSpan& span = step.stages[s];
      const int64_t stage_free_us = i > 0 ? job_.steps[i - 1].stages[s].end_us : span.received_us;
      at_us += hops * AtLeast0(span.received_us - left_us);
      at_us = std::max(at_us, free_us_[s]) + hops * AtLeast0(span.start_us - std::max(span.received_us, stage_free_us));
      at_us += kept_.imbalance ? AtLeast0(span.end_us - span.start_us) : mean_us;
      free_us_[s] = at_us;
      left_us = span.end_us;
    }
    at_us += hops * AtLeast0(step.confirm_us - left_us);
    return done_us_.empty() ? at_us : std::max(at_us, done_us_.back());
  }

  const TraceJob& job_;
  const std::vector<Need>& needs_;
  const KeptObstacles kept_;
  int64_t begin_us_ = 0;
  std::vector<double> free_us_;  // [stages]
  std::vector<double> done_us_;  // [steps so far]
};

StateSums SumStates(const std::vector<StateSpan>& spans) {
  StateSums sums = {};
  for (const StateSpan& span : spans) sums[static_cast<size_t>(span.state)] += span.end_us - span.begin_us;
  return sums;
}

// void_us: of all stages together.
BubbleCauses FindBubbleCauses(const TraceJob& job, double void_us) {
  BubbleCauses causes;
  if (job.steps.empty() || job.header.stages.empty()) return causes;
  const std::vector<Need> needs = NeedsOf(job);
  double compute_us = 0;
  for (const TraceStep& step : job.steps) {
    for (const TraceSpan& span : step.stages) compute_us += AtLeast0(span.end_us - span.start_us);
  }
  const double stages = job.stages();
  const double least_us = compute_us / stages, useful_us = std::max(0.0, compute_us - void_us) / stages;
  KeptObstacles kept;
  double with_us = std::max(least_us, Replay(job, needs, kept).BusyUs());
  causes.busy_us = with_us;
  if (with_us <= 0) return causes;
  causes.bubble = 1 - useful_us / with_us;
  causes.void_guesses = (least_us - useful_us) / with_us;
  const std::pair<bool KeptObstacles::*, double*> steps[] = {{&KeptObstacles::turns, &causes.coordinator},
                                                             {&KeptObstacles::hops, &causes.hop},
                                                             {&KeptObstacles::imbalance, &causes.imbalance},
                                                             {&KeptObstacles::results, &causes.few_sequences}};
  for (const auto& [obstacle, share] : steps) {
    kept.*obstacle = false;
    const double without_us = std::clamp(Replay(job, needs, kept).BusyUs(), least_us, with_us);
    *share = (with_us - without_us) / causes.busy_us;
    with_us = without_us;
    if (obstacle == &KeptObstacles::hops && with_us > 0) causes.floor = 1 - useful_us / with_us;
  }
  causes.fill_drain = (with_us - least_us) / causes.busy_us;
  return causes;
}

}  // namespace

std::vector<StateSpan> StageStates(const TraceJob& job, int stage) {
  Changes changes(job.begin_us(), job.end_us());
  for (const TraceStep& step : job.steps) {
    const TraceSpan& span = step.stages[static_cast<size_t>(stage)];
    changes.Add(StageState::kCompute, span.start_us, span.end_us);
    changes.Add(StageState::kSend, span.send_start_us, span.send_end_us);
    changes.Add(StageState::kWaitUpstream, step.submit_us, std::min(span.start_us, step.confirm_us));
    changes.Add(StageState::kWaitDownstream, std::max(span.start_us, step.submit_us), step.confirm_us);
  }
  return changes.Spans();
}

const char* BubbleCauses::Main() const {
  const auto* most = std::max_element(std::begin(kBubbleCauses), std::end(kBubbleCauses),
                                      [&](const auto& a, const auto& b) { return this->*a.share < this->*b.share; });
  return this->*most->share > 0 ? most->name : "";
}

TraceSummary SummarizeTrace(const TraceJob& job) {
  TraceSummary summary;
  summary.wall_us = job.end_us() - job.begin_us();
  summary.micro_batches = static_cast<int64_t>(job.steps.size());
  summary.void_us.resize(job.header.stages.size());
  for (const TraceStep& step : job.steps) {
    summary.prefill_rows += step.prefill_rows;
    summary.decode_rows += step.decode_rows;
    summary.guessed_rows += step.guessed_rows();
    summary.void_rows += step.void_rows();
    for (size_t stage = 0; stage < summary.void_us.size(); ++stage) {
      summary.void_us[stage] += VoidShare(step) * AtLeast0(step.stages[stage].end_us - step.stages[stage].start_us);
    }
  }
  for (int stage = 0; stage < job.stages(); ++stage) summary.stages.push_back(SumStates(StageStates(job, stage)));
  summary.causes = FindBubbleCauses(job, std::accumulate(summary.void_us.begin(), summary.void_us.end(), 0.0));
  return summary;
}

}  // namespace stagecoach
