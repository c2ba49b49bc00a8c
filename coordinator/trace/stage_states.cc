#include "coordinator/trace/stage_states.h"

#include <algorithm>

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

StateSums SumStates(const std::vector<StateSpan>& spans) {
  StateSums sums = {};
  for (const StateSpan& span : spans) sums[static_cast<size_t>(span.state)] += span.end_us - span.begin_us;
  return sums;
}

}  // namespace stagecoach
