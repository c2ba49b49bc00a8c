// The document of a host profile, written and read.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/job/job_choices.h"
#include "common/job/job_limits.h"
#include "common/json/json_input.h"
#include "common/json/json_value.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxNameBytes = 255;
constexpr double kGib = 1073741824.0;
constexpr IntegerRange kCountRange = {1, 1 << 20};
constexpr IntegerRange kIndexRange = {0, 1 << 20};
constexpr NumberRange kMemoryGibRange = {0, 1 << 22, /*open_min=*/true};
constexpr NumberRange kRateRange = {1e-6, 1e9};  // by which times stay finite
constexpr NumberRange kRateOrZeroRange = {0, 1e9};
constexpr NumberRange kTimeRange = {0, 1e12};
constexpr NumberRange kOffsetRange = {-1e18, 1e18};
constexpr double kF32OfInt8 = 0.25;  // where a hand-written host says nothing
constexpr char kCoordinatorStage[] = "coordinator";

std::string Shown(const Json& value) {
  if (value.is_structured()) return value.type_name();
  return CutText(CompactJson(value));
}

// One object of the document: its fields by name, with errors that say where they stand. The first error stays; after
// it values are those of their defaults.
class Fields {
 public:
  Fields(absl::string_view file, std::string path, const Json& object, absl::Status* status)
      : file_(file), path_(std::move(path)), object_(object), status_(*status) {
    if (!object.is_object()) Fail("", "an object", Shown(object));
  }

  // Every field that was not asked for is unknown. Last of all.
  void End() {
    if (!object_.is_object()) return;
    for (const auto& [name, value] : object_.items()) {
      if (known_.contains(name)) continue;
      Fail(name, absl::StrCat("one of ", Names()), "a field of another name");
    }
  }

  bool Has(const char* name) {
    known_.insert(name);
    return object_.is_object() && object_.contains(name);
  }

  int64_t Integer(const char* name, IntegerRange range, std::optional<int64_t> fallback) {
    const Json* value = Find(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or(range.min);
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() &&
                        value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (fits && Contains(range, value->get<int64_t>())) return value->get<int64_t>();
    Fail(name, absl::StrCat("an integer, ", Expected(range)), Shown(*value));
    return range.min;
  }
  int Int(const char* name, IntegerRange range, std::optional<int64_t> fallback) {
    return static_cast<int>(Integer(name, range, fallback));
  }

  double Number(const char* name, NumberRange range, std::optional<double> fallback) {
    const Json* value = Find(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or(range.max);
    if (value->is_number() && Contains(range, value->get<double>())) return value->get<double>();
    Fail(name, absl::StrCat("a number, ", Expected(range)), Shown(*value));
    return range.max;
  }

  std::string Text(const char* name, const std::optional<std::string>& fallback) {
    const Json* value = Find(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or("");
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kMaxNameBytes * 16) {
      return value->get<std::string>();
    }
    Fail(name, "a text", Shown(*value));
    return "";
  }

  // The elements of a list; none where it is absent, which may be an error.
  std::vector<const Json*> List(const char* name, bool required) {
    const Json* value = Find(name, !required);
    if (value == nullptr) return {};
    if (!value->is_array()) {
      Fail(name, "a list", Shown(*value));
      return {};
    }
    std::vector<const Json*> elements;
    for (const Json& element : *value) elements.push_back(&element);
    return elements;
  }

  const Json* Object(const char* name) { return Find(name, /*optional=*/true); }

  std::string PathOf(absl::string_view name) const { return absl::StrCat(path_, path_.empty() ? "" : ".", name); }

  void Fail(absl::string_view name, absl::string_view expected, absl::string_view found) {
    if (!status_.ok()) return;
    const std::string where = name.empty() ? (path_.empty() ? "the document" : path_) : PathOf(name);
    status_ =
        absl::InvalidArgumentError(absl::StrCat("'", file_, "': ", where, ": expected ", expected, ", found ", found));
  }

 private:
  const Json* Find(const char* name, bool optional) {
    if (Has(name)) return &object_[name];
    if (!optional && object_.is_object()) Fail(name, "a value", "none");
    return nullptr;
  }

  std::string Names() const {
    std::string names;
    for (const std::string& name : known_) absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    return names;
  }

  const absl::string_view file_;
  const std::string path_;
  const Json& object_;
  absl::Status& status_;
  std::set<std::string> known_;
};

class Reader {
 public:
  explicit Reader(absl::string_view file) : file_(file) {}

  absl::StatusOr<HostProfile> Read(const Json& document) {
    Fields fields(file_, "", document, &status_);
    fields.Int("version", {kHostProfileVersion, kHostProfileVersion}, kHostProfileVersion);
    profile_.measured_at = fields.Text("measured_at", "");
    ReadHosts(&fields);
    if (status_.ok() && fields.Has("coordinator")) {
      profile_.coordinator = HostIndex(&fields, "coordinator");
    }
    ReadStages(&fields);
    ReadLinks(&fields);
    ReadUplinks(&fields);
    ReadModel(&fields);
    fields.End();
    RETURN_IF_ERROR(status_);
    return std::move(profile_);
  }

 private:
  void ReadHosts(Fields* top) {
    const std::vector<const Json*> hosts = top->List("hosts", /*required=*/true);
    if (hosts.empty()) top->Fail("hosts", "at least one host", "none");
    for (size_t i = 0; i < hosts.size() && status_.ok(); ++i) {
      Fields fields(file_, absl::StrCat("hosts[", i, "]"), *hosts[i], &status_);
      HostFacts host = ReadHost(&fields);
      fields.End();
      if (!status_.ok()) return;
      if (!host_index_.emplace(host.name, static_cast<int>(i)).second) {
        fields.Fail("name", "a name that no other host has", absl::StrCat("\"", host.name, "\" again"));
      }
      profile_.hosts.push_back(std::move(host));
    }
  }

  HostFacts ReadHost(Fields* fields) {
    HostFacts host;
    host.name = fields->Text("name", std::nullopt);
    if (host.name.empty() || host.name.size() > kMaxNameBytes)
      fields->Fail("name", absl::StrCat("a name of 1 to ", kMaxNameBytes, " bytes"), absl::StrCat(host.name.size()));
    host.slots = fields->Int("slots", {0, JobLimits::kStages.range.max}, 1);
    host.cores = fields->Int("cores", kCountRange, std::nullopt);
    host.hardware_threads = fields->Int("hardware_threads", kCountRange, host.cores);
    host.numa_nodes = fields->Int("numa_nodes", kCountRange, 1);
    const double memory_gib = fields->Number("memory_gib", kMemoryGibRange, std::nullopt);
    const double available_gib = fields->Number("available_gib", {0, kMemoryGibRange.max}, memory_gib);
    host.memory_bytes = static_cast<uint64_t>(std::llround(memory_gib * kGib));
    host.available_bytes = static_cast<uint64_t>(std::llround(available_gib * kGib));
    host.huge_pages = fields->Text("huge_pages", "");
    if (!host.huge_pages.empty() && host.huge_pages != "always" && host.huge_pages != "madvise" &&
        host.huge_pages != "never") {
      fields->Fail("huge_pages", "always, madvise, never or an empty text", host.huge_pages);
    }
    for (const Json* isa : fields->List("isas", /*required=*/false)) {
      const std::string name = isa->is_string() ? isa->get<std::string>() : Shown(*isa);
      if (absl::Status known = ParseInstructionSet(name).status(); !known.ok()) {
        fields->Fail("isas", "names of instruction sets", known.message());
      }
      host.isas.push_back(name);
    }
    host.isa = fields->Text("isa", "");
    if (absl::Status known = ParseInstructionSet(host.isa).status(); !host.isa.empty() && !known.ok()) {
      fields->Fail("isa", "the name of an instruction set or an empty text", known.message());
    }
    ReadSpeeds(fields, &host);
    ReadSteps(fields, &host);
    return host;
  }

  static HostSpeed ReadSpeed(Fields* fields) {
    HostSpeed speed;
    speed.read_gbps = fields->Number("read_gb_s", kRateRange, std::nullopt);
    speed.int8_gops = fields->Number("int8_gops", kRateRange, std::nullopt);
    speed.bf16_gops = fields->Number("bf16_gops", kRateOrZeroRange, 0);
    speed.f32_gops = fields->Number("f32_gops", kRateRange, kF32OfInt8 * speed.int8_gops);
    return speed;
  }

  // Either a list, or the numbers of one stage with all cores at the host itself.
  void ReadSpeeds(Fields* fields, HostFacts* host) {
    if (!fields->Has("speeds")) {
      // The coordinator's host needs none.
      const bool named = fields->Has("read_gb_s") || fields->Has("int8_gops");
      if (host->slots == 0 && !named) return;
      HostSpeed speed = ReadSpeed(fields);
      speed.threads = host->cores;
      host->speeds.push_back(speed);
      return;
    }
    const std::vector<const Json*> list = fields->List("speeds", /*required=*/true);
    if (list.empty() && host->slots > 0) fields->Fail("speeds", "at least one", "none");
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      Fields entry(file_, fields->PathOf(absl::StrCat("speeds[", i, "]")), *list[i], &status_);
      const int stages = entry.Int("stages", kCountRange, std::nullopt);
      const int threads = entry.Int("threads", kCountRange, std::nullopt);
      host->speeds.push_back(ReadSpeed(&entry));
      host->speeds.back().stages = stages;
      host->speeds.back().threads = threads;
      entry.End();
    }
    std::sort(host->speeds.begin(), host->speeds.end(), [](const HostSpeed& a, const HostSpeed& b) {
      return std::pair(a.stages, a.threads) < std::pair(b.stages, b.threads);
    });
  }

  void ReadSteps(Fields* fields, HostFacts* host) {
    const std::vector<const Json*> list = fields->List("steps", /*required=*/false);
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      Fields entry(file_, fields->PathOf(absl::StrCat("steps[", i, "]")), *list[i], &status_);
      StepTime step;
      step.rows = entry.Int("rows", kCountRange, std::nullopt);
      step.sequences = entry.Int("sequences", {1, step.rows}, std::nullopt);
      step.context = entry.Integer("context", JobLimits::kContext.range, std::nullopt);
      step.threads = entry.Int("threads", kCountRange, std::nullopt);
      step.layer_us = entry.Number("layer_us", kTimeRange, std::nullopt);
      step.head_us = entry.Number("head_us", kTimeRange, 0);
      entry.End();
      host->steps.push_back(step);
    }
  }

  int HostIndex(Fields* fields, const char* name) {
    const std::string host = fields->Text(name, std::nullopt);
    const auto found = host_index_.find(host);
    if (found != host_index_.end()) return found->second;
    fields->Fail(name, "the name of a host", absl::StrCat("\"", host, "\""));
    return 0;
  }

  void ReadStages(Fields* top) {
    const std::vector<const Json*> list = top->List("stages", /*required=*/false);
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      Fields fields(file_, absl::StrCat("stages[", i, "]"), *list[i], &status_);
      ProbedStage stage;
      stage.host = HostIndex(&fields, "host");
      stage.rank = fields.Int("rank", kIndexRange, std::nullopt);
      stage.threads = fields.Int("threads", kCountRange, std::nullopt);
      stage.clock_offset_us = fields.Number("clock_offset_us", kOffsetRange, 0);
      stage.clock_error_us = fields.Number("clock_error_us", kTimeRange, 0);
      fields.End();
      profile_.stages.push_back(stage);
    }
  }

  static LinkFacts ReadLink(Fields* fields) {
    LinkFacts link;
    link.latency_us = fields->Number("latency_us", kTimeRange, std::nullopt);
    link.bandwidth_gbit_s = fields->Number("bandwidth_gbit_s", kRateRange, std::nullopt);
    link.jitter_us = fields->Number("jitter_us", kTimeRange, 0);
    return link;
  }

  // A number, or the coordinator by its name.
  int LinkEnd(Fields* fields, const Json& object, const char* name) {
    if (!fields->Has(name)) return LinkFacts::kNoStage;
    if (object[name].is_string() && object[name].get_ref<const std::string&>() == kCoordinatorStage)
      return LinkFacts::kCoordinator;
    const int64_t last = static_cast<int64_t>(profile_.stages.size()) - 1;
    return fields->Int(name, {0, std::max<int64_t>(last, 0)}, std::nullopt);
  }

  void ReadLinks(Fields* top) {
    const std::vector<const Json*> list = top->List("links", /*required=*/false);
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      Fields fields(file_, absl::StrCat("links[", i, "]"), *list[i], &status_);
      LinkFacts link = ReadLink(&fields);
      link.from = HostIndex(&fields, "from");
      link.to = HostIndex(&fields, "to");
      link.from_stage = LinkEnd(&fields, *list[i], "from_stage");
      link.to_stage = LinkEnd(&fields, *list[i], "to_stage");
      fields.End();
      profile_.links.push_back(link);
    }
    if (const Json* link = top->Object("link"); link != nullptr && status_.ok()) {
      Fields fields(file_, "link", *link, &status_);
      profile_.default_link = ReadLink(&fields);
      fields.End();
    }
  }

  void ReadUplinks(Fields* top) {
    const std::vector<const Json*> list = top->List("uplinks", /*required=*/false);
    std::set<std::string> names;
    std::set<int> taken;
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      Fields fields(file_, absl::StrCat("uplinks[", i, "]"), *list[i], &status_);
      UplinkFacts uplink;
      uplink.name = fields.Text("name", std::nullopt);
      if (!names.insert(uplink.name).second) {
        fields.Fail("name", "a name that no other uplink has", absl::StrCat("\"", uplink.name, "\" again"));
      }
      uplink.bandwidth_gbit_s = fields.Number("bandwidth_gbit_s", kRateRange, std::nullopt);
      for (const Json* host : fields.List("hosts", /*required=*/true)) {
        const auto found = host->is_string() ? host_index_.find(host->get<std::string>()) : host_index_.end();
        if (found == host_index_.end()) {
          fields.Fail("hosts", "names of hosts", Shown(*host));
        } else if (!taken.insert(found->second).second) {
          fields.Fail("hosts", "every host in one uplink at most", absl::StrCat(Shown(*host), " again"));
        } else {
          uplink.hosts.push_back(found->second);
        }
      }
      fields.End();
      profile_.uplinks.push_back(std::move(uplink));
    }
  }

  void ReadModel(Fields* top) {
    const Json* object = top->Object("model");
    if (object == nullptr || !status_.ok()) return;
    Fields fields(file_, "model", *object, &status_);
    constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();
    ProbedModel model;
    model.name = fields.Text("name", std::nullopt);
    model.file_bytes = static_cast<uint64_t>(fields.Integer("file_bytes", {0, kMostBytes}, std::nullopt));
    const std::string hash = fields.Text("header_hash", std::nullopt);
    if (hash.size() != 16 || !absl::SimpleHexAtoi(hash, &model.header_hash)) {
      fields.Fail("header_hash", "16 hexadecimal digits", absl::StrCat("\"", CutText(hash), "\""));
    }
    model.layer = fields.Integer("layer", kIndexRange, std::nullopt);
    model.layer_bytes = static_cast<uint64_t>(fields.Integer("layer_bytes", {0, kMostBytes}, std::nullopt));
    model.head_bytes = static_cast<uint64_t>(fields.Integer("head_bytes", {0, kMostBytes}, std::nullopt));
    model.kv_type = fields.Text("kv_type", std::nullopt);
    if (absl::Status known = ParseKvType(model.kv_type).status(); status_.ok() && !known.ok()) {
      fields.Fail("kv_type", "a type of stored keys and values", known.message());
    }
    fields.End();
    profile_.model = std::move(model);
  }

  const absl::string_view file_;
  absl::Status status_;  // the first error
  HostProfile profile_;
  absl::flat_hash_map<std::string, int> host_index_;
};

// On one line what fits there.
void Append(const Json& json, size_t indent, std::string* text) {
  constexpr size_t kLineBytes = 180;
  const std::string line = CompactJson(json);
  if (!json.is_structured() || json.empty() || indent + line.size() <= kLineBytes) {
    text->append(line);
    return;
  }
  text->push_back(json.is_array() ? '[' : '{');
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    absl::StrAppend(text, separator, std::string(indent + 2, ' '));
    if (json.is_object()) absl::StrAppend(text, JsonString(key), ": ");
    Append(value, indent + 2, text);
    separator = ",\n";
  }
  absl::StrAppend(text, "\n", std::string(indent, ' '), json.is_array() ? "]" : "}");
}

Json JsonOf(const HostFacts& host) {
  Json json = {{"name", host.name},
               {"slots", host.slots},
               {"cores", host.cores},
               {"hardware_threads", host.hardware_threads},
               {"numa_nodes", host.numa_nodes},
               {"memory_gib", static_cast<double>(host.memory_bytes) / kGib},
               {"available_gib", static_cast<double>(host.available_bytes) / kGib},
               {"huge_pages", host.huge_pages},
               {"isas", host.isas},
               {"isa", host.isa}};
  json["speeds"] = Json::array();
  for (const HostSpeed& speed : host.speeds) {
    json["speeds"].push_back({{"stages", speed.stages},
                              {"threads", speed.threads},
                              {"read_gb_s", speed.read_gbps},
                              {"int8_gops", speed.int8_gops},
                              {"bf16_gops", speed.bf16_gops},
                              {"f32_gops", speed.f32_gops}});
  }
  json["steps"] = Json::array();
  for (const StepTime& step : host.steps) {
    json["steps"].push_back({{"rows", step.rows},
                             {"sequences", step.sequences},
                             {"context", step.context},
                             {"threads", step.threads},
                             {"layer_us", step.layer_us},
                             {"head_us", step.head_us}});
  }
  return json;
}

Json JsonOf(const HostProfile& profile, const LinkFacts& link) {
  Json json = {{"from", profile.hosts[static_cast<size_t>(link.from)].name},
               {"to", profile.hosts[static_cast<size_t>(link.to)].name},
               {"latency_us", link.latency_us},
               {"bandwidth_gbit_s", link.bandwidth_gbit_s}};
  if (link.jitter_us > 0) json["jitter_us"] = link.jitter_us;
  const auto put = [&json](const char* name, int stage) {
    if (stage != LinkFacts::kNoStage) json[name] = stage >= 0 ? Json(stage) : Json(kCoordinatorStage);
  };
  put("from_stage", link.from_stage);
  put("to_stage", link.to_stage);
  return json;
}

}  // namespace

absl::StatusOr<HostProfile> ParseHostProfile(absl::string_view file, absl::string_view text) {
  const absl::StatusOr<Json> document = ParseJson(text);
  if (!document.ok()) return absl::InvalidArgumentError(absl::StrCat("'", file, "': ", document.status().message()));
  return Reader(file).Read(*document);
}

std::string HostProfileJson(const HostProfile& profile) {
  Json json = {{"version", kHostProfileVersion}, {"measured_at", profile.measured_at}};
  json["coordinator"] = profile.hosts[static_cast<size_t>(profile.coordinator)].name;
  json["hosts"] = Json::array();
  for (const HostFacts& host : profile.hosts) json["hosts"].push_back(JsonOf(host));
  json["stages"] = Json::array();
  for (const ProbedStage& stage : profile.stages) {
    json["stages"].push_back({{"host", profile.hosts[static_cast<size_t>(stage.host)].name},
                              {"rank", stage.rank},
                              {"threads", stage.threads},
                              {"clock_offset_us", stage.clock_offset_us},
                              {"clock_error_us", stage.clock_error_us}});
  }
  json["links"] = Json::array();
  for (const LinkFacts& link : profile.links) json["links"].push_back(JsonOf(profile, link));
  if (profile.default_link.has_value()) {
    json["link"] = {{"latency_us", profile.default_link->latency_us},
                    {"bandwidth_gbit_s", profile.default_link->bandwidth_gbit_s}};
    if (profile.default_link->jitter_us > 0) json["link"]["jitter_us"] = profile.default_link->jitter_us;
  }
  for (const UplinkFacts& uplink : profile.uplinks) {
    Json hosts = Json::array();
    for (const int host : uplink.hosts) hosts.push_back(profile.hosts[static_cast<size_t>(host)].name);
    json["uplinks"].push_back(
        {{"name", uplink.name}, {"bandwidth_gbit_s", uplink.bandwidth_gbit_s}, {"hosts", std::move(hosts)}});
  }
  if (profile.model.has_value()) {
    const ProbedModel& model = *profile.model;
    json["model"] = {{"name", model.name},
                     {"file_bytes", model.file_bytes},
                     {"header_hash", absl::StrCat(absl::Hex(model.header_hash, absl::kZeroPad16))},
                     {"layer", model.layer},
                     {"layer_bytes", model.layer_bytes},
                     {"head_bytes", model.head_bytes},
                     {"kv_type", model.kv_type}};
  }
  std::string text;
  Append(json, 0, &text);
  return text + "\n";
}

}  // namespace stagecoach
