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
#include <numeric>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_fields.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxLineBytes = 4 << 20;
constexpr IntegerRange kTextBytes = {0, 64 << 10};
constexpr IntegerRange kCounts = {0, int64_t{1} << 53};  // exact wherever JSON is read
constexpr NumberRange kNumbers = {0, 1e18};

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
    if constexpr (std::is_same_v<Plain, std::string>) {
      fields_.Field(name, value, kTextBytes, value);
    } else if constexpr (std::is_same_v<Plain, int64_t>) {
      fields_.Field(name, value, kCounts, value);
    } else if constexpr (std::is_same_v<Value, const double>) {
      fields_.Field(name, std::isfinite(value) ? value : 0.0);
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

  // Settings of a job, by their names; the record has no lists.
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
    } else if constexpr (!std::is_same_v<Plain, std::vector<int64_t>>) {
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

// Keys of points are hashes of what this writes, in this order (SweepKey).
template <typename Fields, typename Record>
void VisitConfig(Fields& fields, Record& c) {
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
}

template <typename Fields, typename Record>
void VisitOrigin(Fields& fields, Record& o) {
  PointFields visit(&fields);
  visit("program_version", o.program_version);
  visit("command", o.command);
  visit("started_at", o.started_at);
  visit("model_type", o.model_type);
  visit("model_bytes", o.model_bytes);
  visit("model_elements", o.model_elements);
  visit("file_bytes", o.file_bytes);
  visit("header_hash", o.header_hash);
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
  visit("rows_per_pass", r.rows_per_pass);
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

Json ConfigJson(const SweepConfig& config) {
  Json json = Json::object();
  JsonWriter fields(&json);
  VisitConfig(fields, config);
  return json;
}

// All of a point that follows its key.
template <typename Fields, typename Point>
void VisitPoint(Fields& fields, Point& point) {
  PointFields visit(&fields);
  visit("simulated", point.simulated);
  visit("error", point.error);
  fields.Object("config", point.config, [](auto& f, auto& x) { VisitConfig(f, x); });
  if (fields.Has("origin", true)) fields.Object("origin", point.origin, [](auto& f, auto& x) { VisitOrigin(f, x); });
  if (fields.Has("result", true)) fields.Object("result", point.result, [](auto& f, auto& x) { VisitResult(f, x); });
  fields.Objects("stages", point.stages, [](auto& f, auto& x) { VisitStage(f, x); });
  fields.Object("prediction", point.prediction, [](auto& f, auto& x) { VisitPrediction(f, x); });
}

absl::StatusOr<SweepPoint> ReadPoint(const Json& document) {
  absl::Status status;
  SweepPoint point;
  JsonReader fields("", "", document, &status);
  int64_t version = 0;
  fields.Field("version", version, {kSweepPointVersion, kSweepPointVersion});
  std::string key;
  fields.Field("key", key, kTextBytes, key);
  const Json* stages = fields.Find("stages", /*required=*/false);
  if (stages != nullptr && stages->size() > static_cast<size_t>(JobLimits::kStages.range.max)) {
    fields.Fail("stages", absl::StrCat("a list of at most ", JobLimits::kStages.range.max, " objects"),
                absl::StrCat(stages->size()));
  }
  RETURN_IF_ERROR(status);
  VisitPoint(fields, point);
  const std::string expected = SweepKey(point.config);
  if (key != expected) fields.Fail("key", absl::StrCat(expected, ", that of this configuration"), ShownText(key));
  RETURN_IF_ERROR(status);
  return point;
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

std::string SweepKey(const SweepConfig& config) {
  // FNV-1a over the record's own form of the configuration.
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : CompactJson(ConfigJson(config))) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string SweepPointLine(const SweepPoint& point) {
  Json json = {{"version", kSweepPointVersion}, {"key", SweepKey(point.config)}};
  JsonWriter fields(&json);
  VisitPoint(fields, point);
  return CompactJson(json) + "\n";
}

absl::StatusOr<SweepPoint> ParseSweepPoint(absl::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the line: expected at most ", kMaxLineBytes, " bytes, found ", line.size()));
  }
  const absl::StatusOr<Json> document = ParseJson(line);
  if (!document.ok()) return absl::InvalidArgumentError(absl::StrCat("the line: ", document.status().message()));
  return ReadPoint(*document);
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
    absl::StatusOr<SweepPoint> point = ParseSweepPoint(line);
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
