#include "coordinator/bench/sweep_point.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_fields.h"
#include "common/json/json_value.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxLineBytes = 4 << 20;
constexpr IntegerRange kTextBytes = {0, 64 << 10};
constexpr IntegerRange kCounts = {0, int64_t{1} << 53};  // exact wherever JSON is read
constexpr NumberRange kNumbers = {0, 1e18};

// The text's first `most` bytes, without a part of a character at their end.
std::string CutTo(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<uint8_t>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

template <typename Fields, typename Record>
void VisitPercentiles(Fields& fields, Record& p);

// A record's fields, each of which may be absent: it keeps its default then.
template <typename Fields>
class PointFields {
 public:
  explicit PointFields(Fields* fields) : fields_(*fields) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    using Plain = std::remove_const_t<Value>;
    if constexpr (std::is_same_v<Value, const std::string>) {
      fields_.Field(name, CutTo(value, static_cast<size_t>(kTextBytes.max)));
    } else if constexpr (std::is_same_v<Value, const int64_t>) {
      fields_.Field(name, std::clamp(value, kCounts.min, kCounts.max));
    } else if constexpr (std::is_same_v<Plain, std::string>) {
      fields_.Field(name, value, kTextBytes, value);
    } else if constexpr (std::is_same_v<Plain, int64_t>) {
      fields_.Field(name, value, kCounts, value);
    } else if constexpr (std::is_same_v<Value, const double>) {
      fields_.Field(name, std::isfinite(value) ? std::clamp(value, kNumbers.min, kNumbers.max) : 0.0);
    } else if constexpr (std::is_same_v<Plain, double>) {
      fields_.Field(name, value, kNumbers, value);
    } else if (!fields_.Has(name, true)) {
      return;
    } else if constexpr (std::is_same_v<Plain, Percentiles>) {
      fields_.Object(name, value, [](auto& inner, auto& percentiles) { VisitPercentiles(inner, percentiles); });
    } else {
      fields_.Field(name, value);
    }
  }

  // Settings of a job, by their names.
  template <typename Value, typename... Rules>
  void operator()(const JobSetting& setting, Value& value, const Rules&... rules) {
    using Plain = std::remove_const_t<Value>;
    if constexpr (std::is_same_v<Plain, EmulatedLink>) {
      (*this)("link_latency_s", value.latency_s);
      (*this)("link_bytes_per_s", value.bytes_per_s);
    } else if constexpr (std::is_enum_v<Plain>) {
      if (fields_.Has(setting.name, true)) fields_.Field(setting.name, value, rules...);
    } else if constexpr (std::is_same_v<Plain, std::optional<InstructionSet>>) {
      std::string name = value.has_value() ? InstructionSetName(*value) : setting.unset;
      (*this)(setting.name, name);
      if constexpr (!std::is_const_v<Value>) {
        value.reset();
        if (name != setting.unset) fields_.Field(setting.name, value.emplace(), rules...);
      }
    } else if constexpr (std::is_same_v<Plain, int64_t>) {
      fields_.Field(setting.name, value, IntegerRange{0, std::get<0>(std::tie(rules...)).max}, value);
    } else if constexpr (std::is_same_v<Plain, std::vector<int64_t>>) {
      std::string text = absl::StrJoin(value, ",");  // which is one cell of a table
      (*this)(setting.name, text);
      if constexpr (!std::is_const_v<Value>) {
        value.clear();
        for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
          if (absl::SimpleAtoi(part, &value.emplace_back()) && (Contains(rules, value.back()) && ...)) continue;
          return fields_.Fail(setting.name, "numbers such as 2,1", ShownText(text));
        }
      }
    } else {
      (*this)(setting.name, value);
    }
  }

 private:
  Fields& fields_;
};

template <typename Fields, typename Record>
void VisitPercentiles(Fields& fields, Record& p) {
  PointFields visit(&fields);
  visit("count", p.count);
  visit("mean", p.mean);
  visit("p50", p.p50);
  visit("p90", p.p90);
  visit("p95", p.p95);
  visit("p99", p.p99);
  visit("max", p.max);
}

// The job's settings of these names, in this order.
template <typename Visitor, typename Record>
void VisitSettings(Visitor& visit, Record& c, std::initializer_list<absl::string_view> names) {
  for (const absl::string_view name : names) {
    VisitJobSettings(c, [&](const JobSetting& setting, auto& value, const auto&... range_or_names) {
      if (setting.name == name) visit(setting, value, range_or_names...);
    });
  }
}

// Keys of points are hashes of what this writes, in this order (SweepKey). `version`: of the record.
template <typename Fields, typename Record>
void VisitConfig(Fields& fields, Record& c, int64_t version) {
  PointFields visit(&fields);
  visit("model", c.model);
  VisitSettings(visit, c, {"stages", "threads"});
  visit("hosts", c.hosts);
  VisitSettings(visit, c,
                {"decode_groups", "micro_batches", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk",
                 "chunking", "policy", "wire_type", "kv_type", "isa", "cpu_bind", "weights", "block_tokens",
                 "kv_cache_bytes", "emulated_link"});
  visit("arrivals", c.arrivals);
  visit("concurrency", c.concurrency);
  visit("prompt", c.prompt);
  visit("output", c.output);
  visit("requests", c.requests);
  visit("duration_s", c.duration_s);
  visit("slo_ttft_s", c.slo_ttft_s);
  VisitSettings(visit, c, {"slo_itl_s"});
  visit("seed", c.seed);
  visit("repetition", c.repetition);
  if (version == 1) return;
  VisitSettings(visit, c, {"layer_split", "context", "q2_layout", "prefix_caching", "stage_delay_us"});
  visit("program_version", c.program_version);
  visit("launch", c.launch);
  visit("machine", c.machine);
  visit("file_bytes", c.file_bytes);
  visit("file_time_us", c.file_time_us);
  visit("header_hash", c.header_hash);
  visit("arrivals_hash", c.arrivals_hash);
  visit("cluster", c.cluster);
  visit("cluster_hash", c.cluster_hash);
  visit("world", c.world);
}

// What earlier points did without: part of a key only where it is asked for.
template <typename Fields, typename Record>
void VisitGuesses(Fields& fields, Record& c) {
  PointFields visit(&fields);
  VisitSettings(visit, c, {"speculate"});
  visit("acceptance", c.acceptance);
}

// What stood in the first version's origin.
template <typename Fields>
void VisitFirstOrigin(Fields& fields, SweepConfig& c) {
  PointFields visit(&fields);
  visit("program_version", c.program_version);
  visit("file_bytes", c.file_bytes);
  visit("header_hash", c.header_hash);
}

template <typename Fields, typename Record>
void VisitOrigin(Fields& fields, Record& o) {
  PointFields visit(&fields);
  visit("command", o.command);
  visit("started_at", o.started_at);
  visit("model_type", o.model_type);
  visit("model_bytes", o.model_bytes);
  visit("model_elements", o.model_elements);
  visit("host", o.host);
  visit("processor", o.processor);
  visit("cores", o.cores);
  visit("load_average", o.load_average);
  visit("bf16_dot", o.bf16_dot);
}

template <typename Fields, typename Record>
void VisitStage(Fields& fields, Record& s) {
  PointFields visit(&fields);
  visit("host", s.host);
  visit("processor", s.processor);
  visit("cores", s.cores);
  visit("memory_bytes", s.memory_bytes);
  visit("rank", s.rank);
  visit("first_layer", s.first_layer);
  visit("last_layer", s.last_layer);
  visit("threads", s.threads);
  visit("isa", s.isa);
  visit("cpus", s.cpus);
  visit("weight_bytes", s.weight_bytes);
  visit("kv_bytes", s.kv_bytes);
  visit("scratch_bytes", s.scratch_bytes);
  visit("resident_bytes", s.resident_bytes);
  visit("blocks", s.blocks);
  visit("blocks_used_peak", s.blocks_used_peak);
  visit("compute_s", s.compute_s);
  visit("send_s", s.send_s);
  visit("wait_s", s.wait_s);
  visit("bubble", s.bubble);
}

template <typename Fields, typename Record>
void VisitResult(Fields& fields, Record& r) {
  PointFields visit(&fields);
  visit("load_s", r.load_s);
  visit("wall_s", r.wall_s);
  visit("requests", r.requests);
  visit("failed", r.failed);
  visit("unfinished", r.unfinished);
  visit("prompt_tokens", r.prompt_tokens);
  visit("output_tokens", r.output_tokens);
  visit("prompt_tokens_per_s", r.prompt_tokens_per_s);
  visit("output_tokens_per_s", r.output_tokens_per_s);
  visit("ttft_s", r.ttft_s);
  visit("itl_s", r.itl_s);
  visit("latency_s", r.latency_s);
  visit("slo_requests", r.slo_requests);
  visit("slo_share", r.slo_share);
  visit("goodput_requests_per_s", r.goodput_requests_per_s);
  visit("goodput_tokens_per_s", r.goodput_tokens_per_s);
  visit("busy_s", r.busy_s);
  visit("bubble", r.bubble);
  visit("bubble_floor", r.bubble_floor);
  visit("micro_batches", r.micro_batches);
  visit("prefill_rows", r.prefill_rows);
  visit("decode_rows", r.decode_rows);
  visit("tokens_per_core_hour", r.tokens_per_core_hour);
  visit("rows_per_pass", r.rows_per_pass);
  visit("guesses", r.guesses);
  visit("guesses_right", r.guesses_right);
  visit("guesses_void", r.guesses_void);
  visit("accepted_share", r.accepted_share);
  visit("void_s", r.void_s);
  visit("preemptions", r.preemptions);
  visit("relaunches", r.relaunches);
}

template <typename Fields, typename Record>
void VisitPrediction(Fields& fields, Record& p) {
  PointFields visit(&fields);
  visit("source", p.source);
  visit("measured_steps", p.measured_steps);
  visit("sequences", p.sequences);
  visit("prefill_tokens_per_s", p.prefill_tokens_per_s);
  visit("decode_tokens_per_s", p.decode_tokens_per_s);
  visit("output_tokens_per_s", p.output_tokens_per_s);
  visit("ttft_s", p.ttft_s);
  visit("itl_s", p.itl_s);
  visit("decode_groups", p.decode_groups);
  visit("bubble", p.bubble);
  visit("bubble_few", p.bubble_few);
  visit("bubble_imbalance", p.bubble_imbalance);
  visit("bubble_hop", p.bubble_hop);
  visit("prefill_bubble", p.prefill_bubble);
  visit("bottleneck_stage", p.bottleneck_stage);
  visit("bottleneck_is_link", p.bottleneck_is_link);
}

// SweepKey of a version of the record: a hash of its own form of the configuration.
std::string KeyOf(const SweepConfig& config, int64_t version) {
  Json json = Json::object();
  JsonWriter fields(&json);
  VisitConfig(fields, config, version);
  if (config.speculate != Speculate::kOff || config.acceptance > 0) VisitGuesses(fields, config);
  return ContentHash(CompactJson(json));
}

// All of a point that follows its key, but its timeline and its prediction.
template <typename Fields, typename Point>
void VisitPoint(Fields& fields, Point& point, int64_t version) {
  PointFields visit(&fields);
  visit("simulated", point.simulated);
  visit("error", point.error);
  fields.Object("config", point.config, [version](auto& f, auto& x) {
    VisitConfig(f, x, version);
    if (version > 1) VisitGuesses(f, x);
  });
  if (fields.Has("origin", true)) fields.Object("origin", point.origin, [](auto& f, auto& x) { VisitOrigin(f, x); });
  if (fields.Has("result", true)) fields.Object("result", point.result, [](auto& f, auto& x) { VisitResult(f, x); });
  fields.Objects("stages", point.stages, [](auto& f, auto& x) { VisitStage(f, x); });
}

template <typename Fields, typename Point>
void VisitTraceOf(Fields& fields, Point& point) {
  PointFields visit(&fields);
  visit("trace", point.trace);
}

template <typename Fields, typename Point>
void VisitPredictionOf(Fields& fields, Point& point) {
  fields.Object("prediction", point.prediction, [](auto& f, auto& x) { VisitPrediction(f, x); });
}

// The first version's points lack facts that decide a value: they are kept apart from later ones.
absl::Status TakeFirstVersion(JsonReader& fields, SweepConfig* config) {
  absl::Status status;
  config->prefix_caching = false;
  if (const Json* origin = fields.Find("origin", /*required=*/false); origin != nullptr) {
    JsonReader inner("", "origin", *origin, &status);
    VisitFirstOrigin(inner, *config);
  }
  absl::StrAppend(&config->program_version, config->program_version.empty() ? "" : " ", "(record 1)");
  return status;
}

std::string TraceNameOf(absl::string_view key) { return absl::StrCat("traces/", key, ".json"); }

bool IsTraceName(absl::string_view name) {
  const absl::string_view key = absl::StripSuffix(absl::StripPrefix(name, "traces/"), ".json");
  return key.size() == 16 && key.find_first_not_of("0123456789abcdef") == absl::string_view::npos &&
         name == TraceNameOf(key);
}

// What a point is as good without: with an error it is left out.
void ReadOptionalParts(const Json& document, SweepPoint* point, std::vector<std::string>* left_out) {
  absl::Status traced, predicted;
  JsonReader trace("", "", document, &traced), prediction("", "", document, &predicted);
  VisitTraceOf(trace, *point);
  if (traced.ok() && !point->trace.empty() && !IsTraceName(point->trace)) {
    trace.Fail("trace", "traces/ and 16 hexadecimal digits and .json", ShownText(point->trace));
  }
  VisitPredictionOf(prediction, *point);
  if (!traced.ok()) point->trace.clear();
  if (!predicted.ok()) point->prediction.reset();
  if (left_out == nullptr) return;
  if (!traced.ok()) left_out->push_back(absl::StrCat(traced.message(), "; this point has no timeline here"));
  if (!predicted.ok()) left_out->push_back(absl::StrCat(predicted.message(), "; this point has no prediction here"));
}

absl::StatusOr<SweepPoint> ReadPoint(const Json& document, std::vector<std::string>* left_out) {
  absl::Status status;
  SweepPoint point;
  JsonReader fields("", "", document, &status);
  int64_t version = 0;
  fields.Field("version", version, {1, kSweepPointVersion});
  std::string key;
  fields.Field("key", key, kTextBytes, key);
  const Json* stages = fields.Find("stages", /*required=*/false);
  if (stages != nullptr && stages->size() > static_cast<size_t>(JobLimits::kStages.range.max)) {
    fields.Fail("stages", absl::StrCat("a list of at most ", JobLimits::kStages.range.max, " objects"),
                absl::StrCat(stages->size()));
  }
  RETURN_IF_ERROR(status);
  VisitPoint(fields, point, version);
  const std::string expected = KeyOf(point.config, version);
  if (key != expected) fields.Fail("key", absl::StrCat(expected, ", that of this configuration"), ShownText(key));
  RETURN_IF_ERROR(status);
  if (version == 1) RETURN_IF_ERROR(TakeFirstVersion(fields, &point.config));
  ReadOptionalParts(document, &point, left_out);
  return point;
}

void AddVersionRemarks(SweepRecords* records) {
  std::map<std::string, int64_t> others;
  for (const SweepPoint& point : records->points) {
    if (point.config.program_version != kProgramVersion) ++others[point.config.program_version];
  }
  for (const auto& [version, points] : others) {
    records->remarks.push_back(absl::StrCat(
        CountOf(points, "point"), points == 1 ? " was" : " were", " measured by version ", ShownText(version),
        points == 1 ? " and is" : " and are", " kept apart; this program is version ", kProgramVersion));
  }
}

std::string ErrorText(absl::string_view what, const std::string& path) {
  return absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno));
}

}  // namespace

Percentiles PercentilesOf(std::vector<double> values) {
  Percentiles result;
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  const auto rank = [&](double share) {
    const int64_t index = static_cast<int64_t>(std::ceil(share * n)) - 1;
    return values[static_cast<size_t>(std::clamp<int64_t>(index, 0, static_cast<int64_t>(values.size()) - 1))];
  };
  result.count = static_cast<int64_t>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  result.p50 = rank(0.50);
  result.p90 = rank(0.90);
  result.p95 = rank(0.95);
  result.p99 = rank(0.99);
  result.max = values.back();
  return result;
}

std::string ContentHash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string SweepKey(const SweepConfig& config) { return KeyOf(config, kSweepPointVersion); }

std::string SweepTraceName(const SweepConfig& config) { return TraceNameOf(SweepKey(config)); }

std::string RepetitionsKey(SweepConfig config) {
  config.repetition = 0;
  return SweepKey(config);
}

std::string SweepPointLine(const SweepPoint& point) {
  Json json = {{"version", kSweepPointVersion}, {"key", SweepKey(point.config)}};
  JsonWriter fields(&json);
  VisitPoint(fields, point, kSweepPointVersion);
  VisitTraceOf(fields, point);
  VisitPredictionOf(fields, point);
  return CompactJson(json) + "\n";
}

absl::StatusOr<SweepPoint> ParseSweepPoint(absl::string_view line, std::vector<std::string>* left_out) {
  if (line.size() > kMaxLineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the line: expected at most ", kMaxLineBytes, " bytes, found ", line.size()));
  }
  const absl::StatusOr<Json> document = ParseJson(line);
  if (!document.ok()) return absl::InvalidArgumentError(absl::StrCat("the line: ", document.status().message()));
  return ReadPoint(*document, left_out);
}

absl::StatusOr<SweepRecords> ReadSweepFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(ErrorText("read", path));
  SweepRecords records;
  absl::flat_hash_map<std::pair<bool, std::string>, size_t> index_of;  // by simulated, key
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const bool ended = !file.eof();
    if (line.empty()) continue;
    std::vector<std::string> left_out;
    absl::StatusOr<SweepPoint> point = ParseSweepPoint(line, &left_out);
    for (const std::string& part : left_out) records.remarks.push_back(absl::StrCat("line ", number, ": ", part));
    if (!point.ok()) {
      if (!ended) records.cut = true;
      if (ended) records.refused.push_back(absl::StrCat("line ", number, ": ", point.status().message()));
      continue;
    }
    const auto [entry, added] =
        index_of.try_emplace(std::pair(point->simulated, SweepKey(point->config)), records.points.size());
    if (added) {
      records.points.push_back(*std::move(point));
    } else {
      records.points[entry->second] = *std::move(point);
    }
  }
  if (file.bad()) return absl::DataLossError(ErrorText("read", path));
  AddVersionRemarks(&records);
  return records;
}

absl::StatusOr<std::unique_ptr<SweepFile>> SweepFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return absl::NotFoundError(ErrorText("write", path));
  auto file = std::unique_ptr<SweepFile>(new SweepFile(path, descriptor));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is being written by another sweep; wait for its end, or give another directory"));
  }
  RETURN_IF_ERROR(file->EndLastLine());
  return file;
}

SweepFile::~SweepFile() { close(descriptor_); }

absl::Status SweepFile::EndLastLine() {
  ASSIGN_OR_RETURN(const SweepRecords records, ReadSweepFile(path_));
  struct stat info = {};
  if (fstat(descriptor_, &info) != 0) return absl::DataLossError(ErrorText("read", path_));
  char last = '\n';
  if (info.st_size > 0 && pread(descriptor_, &last, 1, info.st_size - 1) != 1) {
    return absl::DataLossError(ErrorText("read", path_));
  }
  if (last == '\n') return absl::OkStatus();
  if (!records.cut) return Write("\n");  // a whole line without its end
  off_t size = info.st_size;
  for (char c = 0; size > 0; --size) {
    if (pread(descriptor_, &c, 1, size - 1) != 1) return absl::DataLossError(ErrorText("read", path_));
    if (c == '\n') break;
  }
  if (ftruncate(descriptor_, size) != 0) return absl::DataLossError(ErrorText("shorten", path_));
  return absl::OkStatus();
}

absl::Status SweepFile::Write(absl::string_view text) {
  return WriteFully(descriptor_, text) ? absl::OkStatus() : absl::DataLossError(ErrorText("write", path_));
}

absl::Status SweepFile::Append(const SweepPoint& point) {
  RETURN_IF_ERROR(Write(SweepPointLine(point)));
  // A file system without it (a pipe, some network mounts) has nothing better to offer.
  if (fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return absl::DataLossError(ErrorText("write", path_));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
