#include "coordinator/trace/trace_lines.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr char kJobStart[] = R"({"ph":"M","name":"stagecoach_job")";
constexpr char kStepStart[] = R"({"ph":"b","cat":"micro-batch")";
constexpr int64_t kFormatVersion = 1;

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
  std::vector<const Json*> List(const char* name, size_t most = kMostTraceStages, bool required = true) {
    std::vector<const Json*> entries;
    if (!required && !Has(name)) return entries;
    const Json* member = Find(name);
    if (member == nullptr) return entries;
    if (!member->is_array() || member->size() > most) {
      Fail(name, absl::StrCat("a list of at most ", most));
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

// [cancelled, request, sequence, when, prompt tokens]
bool TakeCommand(const Json& entry, int64_t from_us, TraceCommand* command) {
  std::array<int64_t, 5> row = {};
  if (!entry.is_array() || entry.size() != row.size()) return false;
  for (size_t i = 0; i < row.size(); ++i) {
    if (!Members::Take(entry[i], i == 3 ? -kMostTraceNumber : 0, &row[i])) return false;
  }
  *command = {row[0] != 0, static_cast<uint64_t>(row[1]), static_cast<uint64_t>(row[2]), row[3] + from_us, row[4]};
  return true;
}

// Behind a slice whose token was a guess: one that held, and one that proved void.
constexpr char kRightMark[] = "?", kVoidMark[] = "!";

// A string, for viewers list the numbers of a list one by one: "7:512+64 8:130+1*" is sequence 7, rows 512 to 575, and
// of 8 row 130, from which its next token follows; "8:131+1*?" its successor, which was guessed right.
void AppendSlices(const std::vector<TraceSlice>& slices, std::string* lines) {
  const char* separator = "";
  for (const TraceSlice& slice : slices) {
    absl::StrAppend(lines, separator, slice.sequence, ":", slice.start, "+", slice.count, slice.sample ? "*" : "",
                    slice.guess == GuessRecord::kRight  ? kRightMark
                    : slice.guess == GuessRecord::kVoid ? kVoidMark
                                                        : "");
    separator = " ";
  }
}

bool TakeSlices(absl::string_view text, std::vector<TraceSlice>* slices) {
  for (absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    TraceSlice& slice = slices->emplace_back();
    if (absl::ConsumeSuffix(&part, kRightMark)) {
      slice.guess = GuessRecord::kRight;
    } else if (absl::ConsumeSuffix(&part, kVoidMark)) {
      slice.guess = GuessRecord::kVoid;
    }
    slice.sample = absl::ConsumeSuffix(&part, "*");
    const std::pair<absl::string_view, absl::string_view> at = absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> rows = absl::StrSplit(at.second, absl::MaxSplits('+', 1));
    if (!absl::SimpleAtoi(at.first, &slice.sequence) || !absl::SimpleAtoi(rows.first, &slice.start) ||
        !absl::SimpleAtoi(rows.second, &slice.count)) {
      return false;
    }
    if (std::min(slice.start, slice.count) < 0 || std::max(slice.start, slice.count) > kMostTraceNumber) return false;
  }
  return true;
}

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

}  // namespace

const char* TraceStepName(const TraceStep& step) {
  if (step.prefill_rows == 0 && step.decode_rows == 0 && step.guessed_rows() > 0) {
    return step.void_rows() == step.guessed_rows() ? "guess (void)" : "guess";
  }
  if (step.decode_rows == 0) return "prefill";
  if (step.prefill_rows > 0) return "mixed";
  return step.guessed_rows() > 0 ? "decode, guess" : "decode";
}

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
                     {"cut", job.cut},
                     {"coordinator_host", header.coordinator_host},
                     {"start_us", header.start_us},
                     {"start_unix_us", header.start_unix_us},
                     {"stages", std::move(stages)},
                     {"clocks", std::move(clocks)},
                     {"options", std::move(options)}};
  return absl::StrCat(kJobStart, R"(,"pid":)", TraceProcess(0), R"(,"tid":)", TraceThread(TraceProcess(0), 0),
                      R"(,"args":)", CompactJson(args), "}");
}

void AppendTraceStepLine(const TraceStep& step, uint64_t id, std::string* lines) {
  const int64_t ts = step.submit_us;
  absl::StrAppend(lines, kStepStart, ",\"id\":\"0x", absl::Hex(id), "\",\"name\":\"", TraceStepName(step),
                  "\",\"pid\":", TraceProcess(0), ",\"tid\":", TraceThread(TraceProcess(0), 0), ",\"ts\":", ts,
                  ",\"args\":{\"number\":", step.number);
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
  *lines += ']';
  const char* separator = ",\"requests\":[";
  for (const TraceCommand& command : step.commands) {
    absl::StrAppend(lines, separator, "[", command.cancel ? 1 : 0, ",", command.request, ",", command.sequence, ",",
                    command.at_us - ts, ",", command.prompt_tokens, "]");
    separator = ",";
  }
  if (!step.commands.empty()) *lines += ']';
  *lines += ",\"slices\":\"";
  AppendSlices(step.slices, lines);
  absl::StrAppend(lines, step.shutdown ? "\",\"shutdown\":true}}" : "\"}}");
}

void AppendTraceStepEndLine(const TraceStep& step, uint64_t id, std::string* lines) {
  absl::StrAppend(lines, "{\"ph\":\"e\",\"cat\":\"micro-batch\",\"id\":\"0x", absl::Hex(id), "\",\"name\":\"",
                  TraceStepName(step), "\",\"pid\":", TraceProcess(0), ",\"tid\":", TraceThread(TraceProcess(0), 0),
                  ",\"ts\":", step.confirm_us, "}");
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
  if (args.Has("cut")) args.Bool("cut", &job.cut);
  args.Text("coordinator_host", &job.header.coordinator_host);
  args.Integer("start_us", -kMostTraceNumber, &job.header.start_us);
  args.Integer("start_unix_us", 0, &job.header.start_unix_us);
  for (const Json* entry : args.List("stages")) {
    if (!entry->is_object()) return Wrong("stages", "a list of objects");
    Members members(*entry);
    TraceStage& stage = job.header.stages.emplace_back();
    members.Integer("rank", &stage.rank);
    if (stage.rank > static_cast<int32_t>(kMostTraceStages)) members.Fail("rank", "a rank's number");
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
  for (const Json* entry : args.List("requests", kMostTraceCommands, /*required=*/false)) {
    if (!TakeCommand(*entry, step.submit_us, &step.commands.emplace_back())) {
      args.Fail("requests", "a list of lists of 5 whole numbers");
    }
  }
  std::string slices;
  if (args.Has("slices")) args.Text("slices", &slices);
  if (!TakeSlices(slices, &step.slices)) args.Fail("slices", "a string like '7:512+64 8:130+1*'");
  if (args.Has("shutdown")) args.Bool("shutdown", &step.shutdown);
  RETURN_IF_ERROR(args.status());
  if (step.stages.size() != stages) return Wrong("stages", absl::StrCat(stages, " long, as the job's"));
  return step;
}

}  // namespace stagecoach
