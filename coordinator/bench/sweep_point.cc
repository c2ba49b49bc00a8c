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
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/json/json_input.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxLineBytes = 4 << 20;
constexpr size_t kMaxTextBytes = 64 << 10;
constexpr int64_t kMaxCount = int64_t{1} << 53;  // exact wherever JSON is read
constexpr double kMaxNumber = 1e18;

// The fields of every struct, named once: the writer and the reader both visit them. `Record` is the struct, constant
// for the writer.
template <typename Visitor, typename Record>
void VisitPercentiles(Visitor& visit, Record& p) {
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
template <typename Visitor, typename Record>
void VisitConfig(Visitor& visit, Record& c) {
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

template <typename Visitor, typename Record>
void VisitOrigin(Visitor& visit, Record& o) {
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

template <typename Visitor, typename Record>
void VisitStage(Visitor& visit, Record& s) {
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

template <typename Visitor, typename Record>
void VisitResult(Visitor& visit, Record& r) {
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

template <typename Visitor, typename Record>
void VisitPrediction(Visitor& visit, Record& p) {
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

class FieldWriter {
 public:
  void operator()(const char* name, const std::string& value) { json[name] = value; }
  void operator()(const char* name, bool value) { json[name] = value; }
  void operator()(const char* name, int64_t value, int64_t = 0) { json[name] = value; }
  void operator()(const char* name, uint64_t value) { json[name] = value; }
  void operator()(const char* name, double value) { json[name] = std::isfinite(value) ? value : 0.0; }
  void operator()(const char* name, const Percentiles& value) {
    FieldWriter inner;
    VisitPercentiles(inner, value);
    json[name] = std::move(inner.json);
  }

  // Settings of a job, by their names.
  template <typename Value>
  void operator()(const JobSetting& setting, const Value& value) {
    (*this)(setting.name, value);
  }
  template <typename Value, typename Range>
  void operator()(const JobSetting& setting, const Value& value, const Range&) {
    (*this)(setting.name, value);
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, Enum value, const NamedValue<Enum> (&names)[kCount]) {
    json[setting.name] = NameOf(names, value);
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, std::optional<Enum> value, const NamedValue<Enum> (&names)[kCount]) {
    json[setting.name] = value.has_value() ? NameOf(names, *value) : setting.unset;
  }
  void operator()(const JobSetting&, const std::vector<int64_t>&, IntegerRange) {}  // the record has no lists
  void operator()(const JobSetting&, const EmulatedLink& link) {
    json["link_latency_s"] = link.latency_s;
    json["link_bytes_per_s"] = link.bytes_per_s;
  }

  Json json = Json::object();
};

// Reads the fields of one object. The first error stays; after it nothing changes.
class FieldReader {
 public:
  FieldReader(std::string path, const Json& object, absl::Status* status)
      : path_(std::move(path)), object_(object), status_(*status) {
    if (!object.is_object()) Fail("", "an object", object.type_name());
  }

  void operator()(const char* name, std::string& value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(name, "a text", found->type_name());
    const std::string& text = found->get_ref<const std::string&>();
    if (text.size() > kMaxTextBytes) {
      return Fail(name, absl::StrCat("at most ", kMaxTextBytes, " bytes"), absl::StrCat(text.size()));
    }
    value = text;
  }
  void operator()(const char* name, bool& value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(name, "true or false", found->type_name());
    value = found->get<bool>();
  }
  void operator()(const char* name, int64_t& value, int64_t most = kMaxCount) {
    Take(name, value, absl::StrCat("an integer from 0 to ", most), [most](const Json& found) {
      return found.is_number_unsigned() && found.get<uint64_t>() <= static_cast<uint64_t>(most);
    });
  }
  void operator()(const char* name, uint64_t& value) {
    Take(name, value, "an integer from 0", [](const Json& found) { return found.is_number_unsigned(); });
  }
  void operator()(const char* name, double& value) {
    Take(name, value, absl::StrCat("a number from 0 to ", kMaxNumber), [](const Json& found) {
      return found.is_number() && found.get<double>() >= 0 && found.get<double>() <= kMaxNumber;
    });
  }
  void operator()(const char* name, Percentiles& value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    FieldReader inner(absl::StrCat(path_, name, "."), *found, &status_);
    VisitPercentiles(inner, value);
  }

  template <typename Value>
  void operator()(const JobSetting& setting, Value& value) {
    (*this)(setting.name, value);
  }
  template <typename Value, typename Range>
  void operator()(const JobSetting& setting, Value& value, const Range&) {
    (*this)(setting.name, value);
  }
  void operator()(const JobSetting& setting, int64_t& value, IntegerRange range) {
    (*this)(setting.name, value, range.max);
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, Enum& value, const NamedValue<Enum> (&names)[kCount]) {
    std::string name = NameOf(names, value);
    (*this)(setting.name, name);
    const absl::StatusOr<Enum> known = ParseName(names, setting.name, name);
    if (known.ok()) {
      value = *known;
    } else {
      Fail(setting.name, absl::StrCat("one of ", NamesIn(names)), absl::StrCat("'", CutText(name), "'"));
    }
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting& setting, std::optional<Enum>& value, const NamedValue<Enum> (&names)[kCount]) {
    std::string name = setting.unset;
    (*this)(setting.name, name);
    value.reset();
    if (name != setting.unset) (*this)(setting, value.emplace(), names);
  }
  void operator()(const JobSetting&, std::vector<int64_t>&, IntegerRange) {}
  void operator()(const JobSetting&, EmulatedLink& link) {
    (*this)("link_latency_s", link.latency_s);
    (*this)("link_bytes_per_s", link.bytes_per_s);
  }

  void Fail(absl::string_view name, absl::string_view expected, absl::string_view found) {
    if (!status_.ok()) return;
    const std::string where =
        path_.empty() || !name.empty() ? absl::StrCat(path_, name) : path_.substr(0, path_.size() - 1);
    status_ = absl::InvalidArgumentError(
        absl::StrCat(where.empty() ? "the line" : where, ": expected ", expected, ", found ", found));
  }
  const Json* Find(const char* name) const {
    if (!status_.ok() || !object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

 private:
  template <typename Value, typename Fits>
  void Take(const char* name, Value& value, const std::string& expected, const Fits& fits) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!fits(*found)) return Fail(name, expected, Shown(*found));
    value = found->get<Value>();
  }
  // What is nested is only named.
  static std::string Shown(const Json& value) {
    return value.is_number() ? CompactJson(value) : std::string(value.type_name());
  }

  const std::string path_;
  const Json& object_;
  absl::Status& status_;
};

// `fields` writes them.
template <typename Fields>
Json Written(const Fields& fields) {
  FieldWriter writer;
  fields(writer);
  return std::move(writer.json);
}

Json ConfigJson(const SweepConfig& config) {
  return Written([&](FieldWriter& writer) { VisitConfig(writer, config); });
}

void ReadStages(const Json& list, SweepPoint* point, absl::Status* status) {
  if (!list.is_array() || list.size() > static_cast<size_t>(JobLimits::kStages.range.max)) {
    *status = absl::InvalidArgumentError(
        absl::StrCat("stages: expected a list of at most ", JobLimits::kStages.range.max, " objects, found ",
                     list.is_array() ? absl::StrCat(list.size()) : std::string(list.type_name())));
    return;
  }
  for (const Json& entry : list) {
    FieldReader reader(absl::StrCat("stages[", point->stages.size(), "]."), entry, status);
    VisitStage(reader, point->stages.emplace_back());
    if (!status->ok()) return;
  }
}

absl::StatusOr<SweepPoint> ReadPoint(const Json& document) {
  absl::Status status;
  SweepPoint point;
  FieldReader top("", document, &status);
  int64_t version = -1;
  top("version", version);
  RETURN_IF_ERROR(status);
  if (version != kSweepPointVersion) {
    return absl::InvalidArgumentError(absl::StrCat("version: expected ", kSweepPointVersion, ", found ",
                                                   version < 0 ? "none" : absl::StrCat(version)));
  }
  const Json* config = top.Find("config");
  if (config == nullptr) return absl::InvalidArgumentError("config: expected an object, found none");
  FieldReader config_reader("config.", *config, &status);
  VisitConfig(config_reader, point.config);
  std::string key;
  top("key", key);
  top("simulated", point.simulated);
  top("error", point.error);
  const auto read = [&](const char* name, const auto& fields) {
    const Json* found = top.Find(name);
    if (found == nullptr) return;
    FieldReader reader(absl::StrCat(name, "."), *found, &status);
    fields(reader);
  };
  read("origin", [&](FieldReader& reader) { VisitOrigin(reader, point.origin); });
  read("result", [&](FieldReader& reader) { VisitResult(reader, point.result); });
  if (const Json* stages = top.Find("stages"); stages != nullptr) ReadStages(*stages, &point, &status);
  read("prediction", [&](FieldReader& reader) { VisitPrediction(reader, point.prediction.emplace()); });
  RETURN_IF_ERROR(status);
  if (const std::string expected = SweepKey(point.config); key != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("key: expected ", expected, ", that of this configuration, found \"", key.substr(0, 32), "\""));
  }
  return point;
}

std::string ErrorText(absl::string_view what, const std::string& path) {
  return absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno));
}

absl::Status WriteAll(int descriptor, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::DataLossError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
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
  json["simulated"] = point.simulated;
  json["error"] = point.error;
  json["config"] = ConfigJson(point.config);
  json["origin"] = Written([&](FieldWriter& writer) { VisitOrigin(writer, point.origin); });
  json["result"] = Written([&](FieldWriter& writer) { VisitResult(writer, point.result); });
  json["stages"] = Json::array();
  for (const SweepStage& stage : point.stages) {
    json["stages"].push_back(Written([&](FieldWriter& writer) { VisitStage(writer, stage); }));
  }
  if (point.prediction.has_value()) {
    json["prediction"] = Written([&](FieldWriter& writer) { VisitPrediction(writer, *point.prediction); });
  }
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
  if (!records.cut) return WriteAll(descriptor_, "\n");  // a whole line without its end
  off_t size = info.st_size;
  for (char c = 0; size > 0; --size) {
    if (pread(descriptor_, &c, 1, size - 1) != 1) return absl::DataLossError(ErrorText("read", path_));
    if (c == '\n') break;
  }
  if (ftruncate(descriptor_, size) != 0) return absl::DataLossError(ErrorText("shorten", path_));
  return absl::OkStatus();
}

absl::Status SweepFile::Append(const SweepPoint& point) {
  if (absl::Status status = WriteAll(descriptor_, SweepPointLine(point)); !status.ok()) {
    return absl::DataLossError(absl::StrCat("cannot write '", path_, "': ", status.message()));
  }
  // A file system without it (a pipe, some network mounts) has nothing better to offer.
  if (fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return absl::DataLossError(ErrorText("write", path_));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
