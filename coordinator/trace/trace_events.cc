#include "coordinator/trace/trace_events.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json/json.h"
#include "coordinator/trace/stage_states.h"
#include "coordinator/trace/trace_lines.h"

namespace stagecoach {
namespace {

constexpr int kCoordinator = TraceProcess(0);

enum Lane { kTurns = 1, kCompute = 1, kSend = 2, kWait = 3 };

// Names of colours that the format knows; viewers that do not heed them choose by the name of the event.
const char* ColourOf(const TraceStep& step) {
  if (step.decode_rows == 0) return "thread_state_running";
  return step.prefill_rows == 0 ? "thread_state_iowait" : "thread_state_runnable";
}

const char* NameOfWait(StageState state) {
  switch (state) {
    case StageState::kWaitUpstream: return "wait for upstream";
    case StageState::kWaitDownstream: return "wait for downstream";
    case StageState::kIdle: return "idle";
    case StageState::kCompute:
    case StageState::kSend: return "";
  }
  return "";
}

class Drawing {
 public:
  Drawing(const TraceJob& job, int ordinal, const std::function<void(const std::string&)>& event)
      : job_(job), ordinal_(ordinal), event_(event) {}

  void Draw() {
    event_(TraceJobLine(job_));
    Names();
    Begin();
    Coordinator();
    for (int stage = 0; stage < job_.stages(); ++stage) Stage(stage);
    Flows();
  }

 private:
  int ProcessOf(int stage) const { return TraceProcess(job_.header.stages[static_cast<size_t>(stage)].rank); }
  uint64_t IdOf(const TraceStep& step) const { return static_cast<uint64_t>(ordinal_) << 40 | step.number; }

  void Meta(const char* name, int pid, int tid, const std::string& args) {
    event_(
        absl::StrCat(R"({"ph":"M","name":")", name, R"(","pid":)", pid, R"(,"tid":)", tid, R"(,"args":{)", args, "}}"));
  }
  void Process(int rank, const std::string& what, const std::string& labels) {
    const int pid = TraceProcess(rank);
    const std::string name = absl::StrCat("rank ", rank, ": ", what);
    Meta("process_name", pid, 1, absl::StrCat("\"name\":", JsonString(name)));
    Meta("process_labels", pid, 1, absl::StrCat("\"labels\":", JsonString(labels)));
    Meta("process_sort_index", pid, 1, absl::StrCat("\"sort_index\":", pid));
  }
  void LaneName(int pid, int tid, const char* name) {
    Meta("thread_name", pid, tid, absl::StrCat("\"name\":\"", name, "\""));
    Meta("thread_sort_index", pid, tid, absl::StrCat("\"sort_index\":", tid));
  }

  void Names() {
    const TraceHeader& header = job_.header;
    Process(0, absl::StrCat("coordinator on ", header.coordinator_host), header.simulated ? "simulated" : "");
    LaneName(kCoordinator, kTurns, "turns");
    for (int s = 0; s < job_.stages(); ++s) {
      const TraceStage& stage = header.stages[static_cast<size_t>(s)];
      const StageClock& clock = job_.clocks[static_cast<size_t>(s)];
      Process(stage.rank,
              absl::StrCat("stage ", s, " on ", stage.host, ", layers ", stage.first_layer, "-", stage.last_layer - 1),
              header.simulated
                  ? "simulated"
                  : absl::StrCat("clock offset ", clock.offset_us, " us, right to ", clock.error_us, " us"));
      LaneName(ProcessOf(s), kCompute, "compute");
      LaneName(ProcessOf(s), kSend, "send");
      LaneName(ProcessOf(s), kWait, "wait");
    }
  }

  void Begin() {
    const std::string name = ordinal_ == 0 ? "the job begins" : absl::StrCat("job ", ordinal_ + 1, " begins");
    event_(absl::StrCat(R"({"ph":"i","s":"g","name":")", name, R"(","pid":)", kCoordinator, R"(,"tid":1,"ts":)",
                        job_.header.start_us, "}"));
  }

  // A complete event of a lane.
  void Span(int pid, int tid, absl::string_view name, int64_t from_us, int64_t to_us, absl::string_view more) {
    event_(absl::StrCat(R"({"ph":"X","name":")", name, R"(","pid":)", pid, R"(,"tid":)", tid, R"(,"ts":)", from_us,
                        R"(,"dur":)", to_us - from_us, more, "}"));
  }
  void Counter(absl::string_view name, int64_t at_us, const std::string& values) {
    event_(absl::StrCat(R"({"ph":"C","name":")", name, R"(","pid":)", kCoordinator, R"(,"tid":1,"ts":)", at_us,
                        R"(,"args":{)", values, "}}"));
  }

  // A turn that several micro-batches leave in is cut where the one before left.
  int64_t TurnBegin(size_t i) const {
    const TraceStep& step = job_.steps[i];
    const int64_t before_us = i > 0 ? job_.steps[i - 1].submit_us : step.ready_us;
    return std::min(std::max(step.ready_us, before_us), step.submit_us);
  }

  void Coordinator() {
    for (size_t i = 0; i < job_.steps.size(); ++i) {
      const TraceStep& step = job_.steps[i];
      std::string line;
      AppendTraceStepLine(step, IdOf(step), &line);
      event_(line);
      line.clear();
      AppendTraceStepEndLine(step, IdOf(step), &line);
      event_(line);
      Span(kCoordinator, kTurns, "turn", TurnBegin(i), step.submit_us,
           absl::StrCat(R"(,"args":{"micro_batch":)", step.number, "}"));
      Counters(step);
    }
  }

  void Counters(const TraceStep& step) {
    const QueueCounts& queues = step.queues;
    Counter("requests", step.confirm_us, absl::StrCat("\"running\":", queues.running, ",\"waiting\":", queues.waiting));
    Counter("micro-batches in flight", step.confirm_us, absl::StrCat("\"in flight\":", queues.in_flight));
    const size_t groups = std::min(queues.blocks_used.size(), queues.blocks_free.size());
    for (size_t group = 0; group < groups; ++group) {
      Counter(groups == 1 ? "KV blocks" : absl::StrCat("KV blocks of group ", group), step.confirm_us,
              absl::StrCat("\"used\":", queues.blocks_used[group], ",\"free\":", queues.blocks_free[group]));
    }
  }

  void Stage(int s) {
    int64_t sent_us = job_.begin_us();
    for (const TraceStep& step : job_.steps) {
      const TraceSpan& span = step.stages[static_cast<size_t>(s)];
      const std::string number = absl::StrCat("\"micro_batch\":", step.number);
      Span(ProcessOf(s), kCompute, TraceStepName(step), span.start_us, span.end_us,
           absl::StrCat(R"(,"cname":")", ColourOf(step), R"(","args":{)", number,
                        ",\"waited_us\":", span.start_us - span.received_us, "}"));
      if (span.send_end_us <= std::max(span.send_start_us, sent_us)) continue;
      Span(ProcessOf(s), kSend, "send", std::max(span.send_start_us, sent_us), span.send_end_us,
           absl::StrCat(R"(,"args":{)", number, ",\"took_us\":", span.send_end_us - span.send_start_us, "}"));
      sent_us = span.send_end_us;
    }
    for (const StateSpan& span : StageStates(job_, s)) {
      const char* name = NameOfWait(span.state);
      if (*name != '\0') Span(ProcessOf(s), kWait, name, span.begin_us, span.end_us, R"(,"cname":"grey")");
    }
  }

  // An arrow binds to the span that encloses its end.
  void Flow(char phase, const TraceStep& step, int pid, int tid, int64_t at_us) {
    event_(absl::StrCat(R"({"ph":")", absl::string_view(&phase, 1), R"(","cat":"flow","name":"micro-batch","id":"0x)",
                        absl::Hex(IdOf(step)), R"(","pid":)", pid, R"(,"tid":)", tid, R"(,"ts":)", at_us,
                        phase == 'f' ? R"(,"bp":"e"})" : "}"));
  }

  void Flows() {
    for (size_t i = 0; i < job_.steps.size(); ++i) {
      const TraceStep& step = job_.steps[i];
      Flow('s', step, kCoordinator, kTurns, TurnBegin(i));
      for (int s = 0; s < job_.stages(); ++s) {
        Flow(s + 1 < job_.stages() ? 't' : 'f', step, ProcessOf(s), kCompute,
             step.stages[static_cast<size_t>(s)].start_us);
      }
    }
  }

  const TraceJob& job_;
  const int ordinal_;
  const std::function<void(const std::string&)>& event_;
};

}  // namespace

void DrawTrace(const TraceJob& job, int ordinal, const std::function<void(const std::string& event)>& event) {
  Drawing(job, ordinal, event).Draw();
}

}  // namespace stagecoach
