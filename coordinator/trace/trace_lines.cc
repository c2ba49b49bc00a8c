#include "coordinator/trace/trace_lines.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/trace/trace_summary.h"

namespace stagecoach {
namespace {

constexpr char kJobStart[] = R"({"ph":"M","name":"stagecoach_job")";
constexpr char kStepStart[] = R"({"ph":"b","cat":"micro-batch")";
constexpr int64_t kFormatVersion = 1;

// Every rank is a process of its own. Numbers from 1: viewers keep 0 for what is nobody's.
constexpr int TraceProcess(int rank) { return rank + 1; }

// "prefill 512", "decode 8", "mixed 512+8": the name of everything that is drawn of it.
std::string TraceStepName(const TraceStep& step) {
  if (step.decode_rows == 0) return absl::StrCat("prefill ", step.prefill_rows);
  if (step.prefill_rows == 0) return absl::StrCat("decode ", step.decode_rows);
  return absl::StrCat("mixed ", step.prefill_rows, "+", step.decode_rows);
}

absl::Status Wrong(absl::string_view what, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("`", what, "` is not ", expected));
}

absl::StatusOr<Json> ParseObject(absl::string_view line) {
  Json json = ReadJson(line);
  if (!json.is_object() || !json.contains("args") || !json["args"].is_object()) {
    return absl::InvalidArgumentError("it is not a JSON object with `args`");
  }
  return json;
}

// Reads members of one object; the first error stays.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  void Integer(const char* name, int64_t least, int64_t* out) {
    const Json* member = Find(name);
    if (member != nullptr && !Take(*member, least, out)) Fail(name, "a whole number in its range");
  }
  void Integer(const char* name, int32_t* out) {
    int64_t wide = 0;
    Integer(name, 0, &wide);
    if (wide > INT32_MAX) return Fail(name, "a whole number in its range");
    *out = static_cast<int32_t>(wide);
  }
  void Number(const char* name, double* out) { Value(name, &Json::is_number, "a number", out); }
  void Bool(const char* name, bool* out) { Value(name, &Json::is_boolean, "true or false", out); }
  void Text(const char* name, std::string* out) { Value(name, &Json::is_string, "a string", out); }
  void Integers(const char* name, std::vector<int32_t>* out) {
    for (const Json* entry : List(name)) {
      int64_t value = 0;
      if (!Take(*entry, 0, &value) || value > INT32_MAX) return Fail(name, "a list of whole numbers in their range");
      out->push_back(static_cast<int32_t>(value));
    }
  }
  // The entries of a list.
  std::vector<const Json*> List(const char* name) {
    std::vector<const Json*> entries;
    const Json* member = Find(name);
    if (member == nullptr) return entries;
    if (!member->is_array() || member->size() > kMostTraceStages) {
      Fail(name, absl::StrCat("a list of at most ", kMostTraceStages));
      return entries;
    }
    for (const Json& entry : *member) entries.push_back(&entry);
    return entries;
  }
  bool Has(const char* name) const { return object_.contains(name); }

  void Fail(const char* name, absl::string_view expected) {
    if (status_.ok()) status_ = Wrong(name, expected);
  }
  const absl::Status& status() const { return status_; }

  static bool Take(const Json& value, int64_t least, int64_t* out) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostTraceNumber)) return false;
    *out = value.get<int64_t>();
    return *out >= least && *out <= kMostTraceNumber;
  }

 private:
  template <typename T>
  void Value(const char* name, bool (Json::*is)() const, absl::string_view expected, T* out) {
    const Json* member = Find(name);
    if (member == nullptr) return;
    if (!(member->*is)()) return Fail(name, expected);
    *out = member->get<T>();
  }
  const Json* Find(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    Fail(name, "there");
    return nullptr;
  }

  const Json& object_;
  absl::Status status_;
};

// Times that count from `from_us`: [received, start, end], and [.., send start, send end] where the send is known.
bool TakeSpan(const Json& entry, int64_t from_us, TraceSpan* span) {
  int64_t* const times[] = {&span->received_us, &span->start_us, &span->end_us, &span->send_start_us,
                            &span->send_end_us};
  if (!entry.is_array() || (entry.size() != 3 && entry.size() != 5)) return false;
  for (size_t i = 0; i < entry.size(); ++i) {
    if (!Members::Take(entry[i], -kMostTraceNumber, times[i])) return false;
    *times[i] += from_us;
  }
  return true;
}

constexpr int kCoordinator = TraceProcess(0);

enum Lane { kTurns = 1, kCompute = 1, kSend = 2, kWait = 3 };

// Names of colours that the format knows; viewers that do not heed them choose by the name of the event.
const char* ColourOf(const TraceStep& step) {
  if (step.decode_rows == 0) return "thread_state_running";
  return step.prefill_rows == 0 ? "thread_state_iowait" : "thread_state_runnable";
}

// By StageState; nothing where the stage does not wait.
constexpr const char* kWaitNames[kStageStates] = {"", "", "wait for upstream", "wait for downstream", "idle"};

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
      const char* name = kWaitNames[static_cast<size_t>(span.state)];
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

std::string TraceJobLine(const TraceJob& job) {
  const TraceHeader& header = job.header;
  Json stages = Json::array(), clocks = Json::array(), options = Json::object();
  for (const TraceStage& stage : header.stages) {
    stages.push_back({{"rank", stage.rank},
                      {"host", stage.host},
                      {"first_layer", stage.first_layer},
                      {"last_layer", stage.last_layer},
                      {"threads", stage.threads}});
  }
  for (const StageClock& clock : job.clocks) {
    clocks.push_back({{"offset_us", clock.offset_us}, {"error_us", clock.error_us}, {"drift_ppm", clock.drift_ppm}});
  }
  for (const auto& [name, value] : header.options) options[name] = value;
  const Json args = {{"format", kFormatVersion},
                     {"version", header.version},
                     {"simulated", header.simulated},
                     {"aligned", job.aligned},
                     {"coordinator_host", header.coordinator_host},
                     {"start_us", header.start_us},
                     {"start_unix_us", header.start_unix_us},
                     {"stages", std::move(stages)},
                     {"clocks", std::move(clocks)},
                     {"options", std::move(options)}};
  return absl::StrCat(kJobStart, R"(,"pid":)", TraceProcess(0), R"(,"tid":1,"args":)", CompactJson(args), "}");
}

void AppendTraceStepLine(const TraceStep& step, uint64_t id, std::string* lines) {
  const int64_t ts = step.submit_us;
  absl::StrAppend(lines, kStepStart, ",\"id\":\"0x", absl::Hex(id), "\",\"name\":\"", TraceStepName(step),
                  "\",\"pid\":", TraceProcess(0), ",\"tid\":1,\"ts\":", ts, ",\"args\":{\"number\":", step.number);
  absl::StrAppend(lines, ",\"prefill_rows\":", step.prefill_rows, ",\"decode_rows\":", step.decode_rows,
                  ",\"sequences\":", step.sequences, ",\"ready\":", step.ready_us - ts,
                  ",\"confirm\":", step.confirm_us - ts);
  const QueueCounts& queues = step.queues;
  absl::StrAppend(lines, ",\"waiting\":", queues.waiting, ",\"running\":", queues.running,
                  ",\"in_flight\":", queues.in_flight, ",\"blocks_used\":[", absl::StrJoin(queues.blocks_used, ","),
                  "],\"blocks_free\":[", absl::StrJoin(queues.blocks_free, ","), "],\"stages\":[");
  for (const TraceSpan& span : step.stages) {
    absl::StrAppend(lines, &span == step.stages.data() ? "[" : ",[", span.received_us - ts, ",", span.start_us - ts,
                    ",", span.end_us - ts);
    if (span.send_end_us > span.send_start_us) {
      absl::StrAppend(lines, ",", span.send_start_us - ts, ",", span.send_end_us - ts);
    }
    *lines += ']';
  }
  absl::StrAppend(lines, step.shutdown ? "],\"shutdown\":true}}" : "]}}");
}

void AppendTraceStepEndLine(const TraceStep& step, uint64_t id, std::string* lines) {
  absl::StrAppend(lines, "{\"ph\":\"e\",\"cat\":\"micro-batch\",\"id\":\"0x", absl::Hex(id), "\",\"name\":\"",
                  TraceStepName(step), "\",\"pid\":", TraceProcess(0), ",\"tid\":1,\"ts\":", step.confirm_us, "}");
}

absl::StatusOr<std::optional<TraceJob>> ParseTraceJobLine(absl::string_view line) {
  if (!absl::StartsWith(line, kJobStart)) return std::nullopt;
  ASSIGN_OR_RETURN(const Json json, ParseObject(line));
  Members args(json["args"]);
  int64_t format = 0;
  args.Integer("format", 0, &format);
  RETURN_IF_ERROR(args.status());
  if (format != kFormatVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("`format` is ", format, ", this program reads ", kFormatVersion, "; take the program of its run"));
  }
  TraceJob job;
  args.Text("version", &job.header.version);
  args.Bool("simulated", &job.header.simulated);
  args.Bool("aligned", &job.aligned);
  args.Text("coordinator_host", &job.header.coordinator_host);
  args.Integer("start_us", -kMostTraceNumber, &job.header.start_us);
  args.Integer("start_unix_us", 0, &job.header.start_unix_us);
  for (const Json* entry : args.List("stages")) {
    if (!entry->is_object()) return Wrong("stages", "a list of objects");
    Members members(*entry);
    TraceStage& stage = job.header.stages.emplace_back();
    members.Integer("rank", &stage.rank);
    members.Text("host", &stage.host);
    members.Integer("first_layer", 0, &stage.first_layer);
    members.Integer("last_layer", 0, &stage.last_layer);
    members.Integer("threads", &stage.threads);
    RETURN_IF_ERROR(members.status());
  }
  for (const Json* entry : args.List("clocks")) {
    if (!entry->is_object()) return Wrong("clocks", "a list of objects");
    Members members(*entry);
    StageClock& clock = job.clocks.emplace_back();
    members.Integer("offset_us", -kMostTraceNumber, &clock.offset_us);
    members.Integer("error_us", 0, &clock.error_us);
    members.Number("drift_ppm", &clock.drift_ppm);
    RETURN_IF_ERROR(members.status());
  }
  RETURN_IF_ERROR(args.status());
  if (job.clocks.size() != (job.aligned ? job.header.stages.size() : 0)) {
    return Wrong("clocks", "a list of one for every stage, once they are aligned");
  }
  const Json& options = json["args"].value("options", Json::object());
  if (!options.is_object()) return Wrong("options", "an object");
  for (const auto& [name, value] : options.items()) {
    if (!value.is_string()) return Wrong("options", "an object of strings");
    job.header.options.emplace_back(name, value.get<std::string>());
  }
  return job;
}

absl::StatusOr<std::optional<TraceStep>> ParseTraceStepLine(absl::string_view line, size_t stages) {
  if (!absl::StartsWith(line, kStepStart)) return std::nullopt;
  ASSIGN_OR_RETURN(const Json json, ParseObject(line));
  TraceStep step;
  Members event(json);
  event.Integer("ts", -kMostTraceNumber, &step.submit_us);
  RETURN_IF_ERROR(event.status());
  Members args(json["args"]);
  int64_t number = 0;
  args.Integer("number", 0, &number);
  step.number = static_cast<uint64_t>(number);
  args.Integer("prefill_rows", 0, &step.prefill_rows);
  args.Integer("decode_rows", 0, &step.decode_rows);
  args.Integer("sequences", 0, &step.sequences);
  args.Integer("ready", -kMostTraceNumber, &step.ready_us);
  args.Integer("confirm", 0, &step.confirm_us);
  step.ready_us += step.submit_us;
  step.confirm_us += step.submit_us;
  args.Integer("waiting", 0, &step.queues.waiting);
  args.Integer("running", 0, &step.queues.running);
  args.Integer("in_flight", &step.queues.in_flight);
  args.Integers("blocks_used", &step.queues.blocks_used);
  args.Integers("blocks_free", &step.queues.blocks_free);
  for (const Json* entry : args.List("stages")) {
    if (!TakeSpan(*entry, step.submit_us, &step.stages.emplace_back())) {
      args.Fail("stages", "a list of lists of 3 or 5 times");
    }
  }
  if (args.Has("shutdown")) args.Bool("shutdown", &step.shutdown);
  RETURN_IF_ERROR(args.status());
  if (step.stages.size() != stages) return Wrong("stages", absl::StrCat(stages, " long, as the job's"));
  return step;
}

void DrawTrace(const TraceJob& job, int ordinal, const std::function<void(const std::string& event)>& event) {
  Drawing(job, ordinal, event).Draw();
}

}  // namespace stagecoach
