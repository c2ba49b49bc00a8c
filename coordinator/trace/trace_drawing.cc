#include "coordinator/trace/trace_drawing.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/json/json_value.h"
#include "coordinator/trace/trace_lines.h"
#include "coordinator/trace/trace_summary.h"

namespace stagecoach {
namespace {

constexpr int kCoordinator = TraceProcess(0);
constexpr int kRequests = TraceProcess(kMostTraceStages + 1);  // after all ranks, in each job of a file

enum Lane { kTurns = 0, kCompute = 0, kSend = 1, kWait = 2 };

// Lanes of requests come after those of all ranks; a lane's number has 31 bits.
constexpr int64_t kFirstRequestLane = 1 << 20, kRequestLanes = 1 << 30;

// Names of colours that the format knows; viewers that do not heed them choose by the name of the event.
const char* ColourOf(const TraceStep& step) {
  if (step.prefill_rows == 0 && step.decode_rows == 0 && step.guessed_rows() > 0) {
    return step.void_rows() == step.guessed_rows() ? "terrible" : "rail_animation";
  }
  if (step.decode_rows == 0) return "thread_state_running";
  return step.prefill_rows == 0 ? "thread_state_iowait" : "thread_state_runnable";
}

// By StageState; nothing where the stage does not wait.
constexpr const char* kWaitNames[kStageStates] = {"", "", "wait for upstream", "wait for downstream", "idle"};

// Arguments of a step that has guessed rows.
std::string GuessesOf(const TraceStep& step) {
  if (step.guessed_rows() == 0) return "";
  return absl::StrCat(",\"guessed_rows\":", step.guessed_rows(), ",\"void_rows\":", step.void_rows());
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
    Requests();
    for (int stage = 0; stage < job_.stages(); ++stage) Stage(stage);
    Flows();
  }

 private:
  int ProcessOf(int stage) const { return TraceProcess(job_.header.stages[static_cast<size_t>(stage)].rank); }
  uint64_t IdOf(const TraceStep& step) const { return static_cast<uint64_t>(ordinal_) << 40 | step.number; }

  void Meta(const char* name, int pid, int64_t tid, const std::string& args) {
    event_(
        absl::StrCat(R"({"ph":"M","name":")", name, R"(","pid":)", pid, R"(,"tid":)", tid, R"(,"args":{)", args, "}}"));
  }
  void Process(int pid, const std::string& name, const std::string& labels, int sort_index) {
    const int tid = TraceThread(pid, 0);
    Meta("process_name", pid, tid, absl::StrCat("\"name\":", JsonString(name)));
    Meta("process_labels", pid, tid, absl::StrCat("\"labels\":", JsonString(labels)));
    Meta("process_sort_index", pid, tid, absl::StrCat("\"sort_index\":", sort_index));
  }
  void Rank(int rank, const std::string& what, const std::string& labels) {
    const int pid = TraceProcess(rank);
    Process(pid, absl::StrCat("rank ", rank, ": ", what), labels, pid);
  }
  void LaneName(int pid, int64_t tid, absl::string_view name) {
    Meta("thread_name", pid, tid, absl::StrCat("\"name\":\"", name, "\""));
    Meta("thread_sort_index", pid, tid, absl::StrCat("\"sort_index\":", tid));
  }

  void Names() {
    const TraceHeader& header = job_.header;
    Rank(0, absl::StrCat("coordinator on ", header.coordinator_host), header.simulated ? "simulated" : "");
    LaneName(kCoordinator, TraceThread(kCoordinator, kTurns), "turns");
    for (int s = 0; s < job_.stages(); ++s) {
      const TraceStage& stage = header.stages[static_cast<size_t>(s)];
      const StageClock& clock = job_.clocks[static_cast<size_t>(s)];
      Rank(stage.rank,
           absl::StrCat("stage ", s, " on ", stage.host, ", layers ", stage.first_layer, "-", stage.last_layer - 1),
           header.simulated ? "simulated"
                            : absl::StrCat("clock offset ", clock.offset_us, " us, right to ", clock.error_us, " us"));
      LaneName(ProcessOf(s), TraceThread(ProcessOf(s), kCompute), "compute");
      LaneName(ProcessOf(s), TraceThread(ProcessOf(s), kSend), "send");
      LaneName(ProcessOf(s), TraceThread(ProcessOf(s), kWait), "wait");
    }
  }

  void Begin() {
    const std::string name = ordinal_ == 0 ? "the job begins" : absl::StrCat("job ", ordinal_ + 1, " begins");
    event_(absl::StrCat(R"({"ph":"i","s":"g","name":")", name, R"(","pid":)", kCoordinator, R"(,"tid":)",
                        TraceThread(kCoordinator, kTurns), R"(,"ts":)", job_.header.start_us, "}"));
  }

  // A complete event of a lane.
  void Span(int pid, int64_t tid, absl::string_view name, int64_t from_us, int64_t to_us, absl::string_view more) {
    event_(absl::StrCat(R"({"ph":"X","name":")", name, R"(","pid":)", pid, R"(,"tid":)", tid, R"(,"ts":)", from_us,
                        R"(,"dur":)", to_us - from_us, more, "}"));
  }
  void Counter(absl::string_view name, int64_t at_us, const std::string& values) {
    event_(absl::StrCat(R"({"ph":"C","name":")", name, R"(","pid":)", kCoordinator, R"(,"tid":)",
                        TraceThread(kCoordinator, kTurns), R"(,"ts":)", at_us, R"(,"args":{)", values, "}}"));
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
      Span(kCoordinator, TraceThread(kCoordinator, kTurns), "turn", TurnBegin(i), step.submit_us,
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

  // A request's life, as the micro-batches tell it.
  struct Request {
    uint64_t number = 0;
    int64_t prompt_tokens = 0;
    absl::string_view phase = "queued";
    int64_t since_us = 0;
    int64_t next_row = 0;      // its slices go on here, unless it was preempted
    int64_t confirmed_us = 0;  // the latest result that had rows of it
    int64_t tokens = 0;        // sampled in this phase
  };

  void EndPhase(int64_t end_us, absl::string_view next, Request* request) {
    end_us = std::max(end_us, request->since_us);
    const std::string args = absl::StrCat(R"(,"args":{"request":)", request->number, R"(,"prompt_tokens":)",
                                          request->prompt_tokens, R"(,"tokens":)", request->tokens, "}");
    if (end_us > request->since_us) {
      Span(kRequests, LaneOf(*request), request->phase, request->since_us, end_us, args);
    }
    request->phase = next;
    request->since_us = end_us;
    request->tokens = 0;
  }

  static int64_t LaneOf(const Request& request) {
    return kFirstRequestLane + static_cast<int64_t>(request.number % kRequestLanes);
  }

  void TakeUp(const TraceCommand& command, std::map<uint64_t, Request>* requests) {
    if (command.cancel) {
      const auto found = requests->find(command.sequence);
      if (found == requests->end()) return;
      EndPhase(command.at_us, "", &found->second);
      requests->erase(found);
      return;
    }
    Request& request = (*requests)[command.sequence];
    request = {.number = command.request, .prompt_tokens = command.prompt_tokens, .since_us = command.at_us};
    LaneName(kRequests, LaneOf(request), absl::StrCat("request ", request.number));
  }

  void TakeSlice(const TraceSlice& slice, const TraceStep& step, Request* request) {
    if (slice.guess == GuessRecord::kVoid) return;  // the row that is right for its position comes later
    if (request->phase == "queued") {
      EndPhase(step.submit_us, "prefill", request);
    } else if (slice.start < request->next_row) {
      EndPhase(std::min(request->confirmed_us, step.submit_us), "preempted", request);
      EndPhase(step.submit_us, "prefill", request);
    }
    request->next_row = slice.start + slice.count;
    request->confirmed_us = step.confirm_us;
    request->tokens += slice.sample ? 1 : 0;
    if (slice.sample && request->phase == "prefill") EndPhase(step.confirm_us, "decode", request);
  }

  // A lane for each: queued, prefill, decode, preempted.
  void Requests() {
    Process(kRequests, "requests", job_.header.simulated ? "simulated" : "", /*sort_index=*/0);
    std::map<uint64_t, Request> requests;  // by sequence
    for (const TraceStep& step : job_.steps) {
      for (const TraceCommand& command : step.commands) TakeUp(command, &requests);
      for (const TraceSlice& slice : step.slices) {
        const auto found = requests.find(slice.sequence);
        if (found != requests.end()) TakeSlice(slice, step, &found->second);
      }
    }
    for (auto& [sequence, request] : requests) {
      EndPhase(request.phase == "queued" ? job_.end_us() : request.confirmed_us, "", &request);
    }
  }

  void Stage(int s) {
    const int pid = ProcessOf(s);
    int64_t sent_us = job_.begin_us();
    for (const TraceStep& step : job_.steps) {
      const TraceSpan& span = step.stages[static_cast<size_t>(s)];
      const std::string number = absl::StrCat("\"micro_batch\":", step.number);
      Span(pid, TraceThread(pid, kCompute), TraceStepName(step), span.start_us, span.end_us,
           absl::StrCat(R"(,"cname":")", ColourOf(step), R"(","args":{)", number,
                        ",\"prefill_rows\":", step.prefill_rows, ",\"decode_rows\":", step.decode_rows, GuessesOf(step),
                        ",\"waited_us\":", span.start_us - span.received_us, "}"));
      if (span.send_end_us <= std::max(span.send_start_us, sent_us)) continue;
      Span(pid, TraceThread(pid, kSend), "send", std::max(span.send_start_us, sent_us), span.send_end_us,
           absl::StrCat(R"(,"args":{)", number, ",\"took_us\":", span.send_end_us - span.send_start_us, "}"));
      sent_us = span.send_end_us;
    }
    for (const StateSpan& span : StageStates(job_, s)) {
      const char* name = kWaitNames[static_cast<size_t>(span.state)];
      if (*name != '\0') Span(pid, TraceThread(pid, kWait), name, span.begin_us, span.end_us, R"(,"cname":"grey")");
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
      Flow('s', step, kCoordinator, TraceThread(kCoordinator, kTurns), TurnBegin(i));
      for (int s = 0; s < job_.stages(); ++s) {
        Flow(s + 1 < job_.stages() ? 't' : 'f', step, ProcessOf(s), TraceThread(ProcessOf(s), kCompute),
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
