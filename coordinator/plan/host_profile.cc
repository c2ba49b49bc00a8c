#include "coordinator/plan/host_profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/job/job_limits.h"
#include "common/json/json.h"
#include "common/json/json_fields.h"

namespace stagecoach {

void SortSpeeds(std::vector<HostSpeed>* speeds) {
  std::stable_sort(speeds->begin(), speeds->end(), [](const HostSpeed& a, const HostSpeed& b) {
    return std::pair(a.stages, a.threads) < std::pair(b.stages, b.threads);
  });
}

namespace {

// Takes the slower one of each.
void Worsen(const LinkFacts& link, std::optional<LinkFacts>* worst) {
  if (!worst->has_value()) {
    *worst = link;
    return;
  }
  (*worst)->latency_us = std::max((*worst)->latency_us, link.latency_us);
  (*worst)->bandwidth_gbit_s = std::min((*worst)->bandwidth_gbit_s, link.bandwidth_gbit_s);
  (*worst)->jitter_us = std::max((*worst)->jitter_us, link.jitter_us);
}

std::optional<LinkFacts> WorstOf(const HostProfile& profile, int from, int to) {
  std::optional<LinkFacts> worst;
  for (const LinkFacts& link : profile.links) {
    if (link.from == from && link.to == to) Worsen(link, &worst);
  }
  return worst;
}

// Of a core with the kernels of an instruction set, in 10^9 operations a second; bf16 is 0 without its dot. What
// AVX-512 VNNI has is a round number; the others stand to it as they did in kernel_bench on a Sapphire Rapids (busy
// machine, processor time, two runs, GOP/s with AVX2, AVX-512, VNNI and VNNI with the BF16 dot): prefill of Q8_0 51,
// 62, 267, 243, of Q4_0 82, 96, 178, 186, of Q4_K 84, 86, 144, 184, of Q6_K 59, 70, 112, 112 (in the mean 0.4 and 0.46
// of VNNI); of F32 41, 63, 64, 64, attention 29, 59, 59, 59; of BF16 39, 68, 64, 54. AVX-VNNI is 1.45 of AVX2, as on a
// Zen 5 (of these four types 2.15, 1.20, 1.13 and 1.34). Scalar kernels: the peak of scalar code. Arm's sets were not
// measured, and are taken for VNNI.
HostSpeed SpeedOfCore(InstructionSet isa) {
  switch (isa) {
    case InstructionSet::kScalar: return {.int8_gops = 8, .f32_gops = 10};
    case InstructionSet::kAvx2: return {.int8_gops = 120, .f32_gops = 40};
    case InstructionSet::kAvxVnni: return {.int8_gops = 175, .f32_gops = 40};
    case InstructionSet::kAvx512: return {.int8_gops = 140, .f32_gops = 75};
    case InstructionSet::kAvx512Bf16: return {.int8_gops = 300, .bf16_gops = 75, .f32_gops = 75};
    case InstructionSet::kAvx512Vnni:
    case InstructionSet::kNeonDotprod:
    case InstructionSet::kNeonI8mm: break;
  }
  return {.int8_gops = 300, .f32_gops = 75};
}

// --- the document: what is declared here is written and read -----------------------------------------------------

constexpr double kGib = 1073741824.0;
constexpr size_t kLineBytes = 180;
constexpr IntegerRange kVersionRange = {kHostProfileVersion, kHostProfileVersion};
constexpr IntegerRange kNameBytes = {1, 255};
constexpr IntegerRange kTextBytes = {0, 4096};
constexpr IntegerRange kSlotsRange = {0, JobLimits::kStages.range.max};
constexpr IntegerRange kCountRange = {1, 1 << 20};
constexpr IntegerRange kIndexRange = {0, 1 << 20};
constexpr IntegerRange kFileBytesRange = {0, std::numeric_limits<int64_t>::max()};
constexpr NumberRange kMemoryGibRange = {0, 1 << 22, /*open_min=*/true};
constexpr NumberRange kAvailableGibRange = {0, kMemoryGibRange.max};
// A hundred times what the fastest machines of 2026 have: a rate in another unit is beyond.
constexpr NumberRange kReadRange = {1e-6, 5e5};
constexpr NumberRange kOpsRange = {1e-6, 1e8};
constexpr NumberRange kOpsOrZeroRange = {0, kOpsRange.max};
constexpr NumberRange kLinkRange = {1e-6, 1e6};
constexpr NumberRange kTimeRange = {0, 1e12};
constexpr NumberRange kOffsetRange = {-1e18, 1e18};
constexpr double kF32OfInt8 = 0.25;  // where a hand-written host says nothing
constexpr char kCoordinatorStage[] = "coordinator";

template <typename Fields>
constexpr bool kReads = std::is_same_v<Fields, JsonReader>;

absl::Status CheckIsa(const std::string& name) { return ParseInstructionSet(name).status(); }
absl::Status CheckKvType(const std::string& name) { return ParseKvType(name).status(); }
absl::Status CheckHugePages(const std::string& setting) {
  if (setting == "always" || setting == "madvise" || setting == "never") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected always, madvise or never, found ", JsonString(setting)));
}

template <typename Fields, typename Bytes>
void VisitGib(Fields& fields, const char* name, Bytes& bytes, NumberRange range,
              std::optional<double> absent = std::nullopt) {
  double gib = static_cast<double>(bytes) / kGib;
  fields.Field(name, gib, range, absent);
  if constexpr (kReads<Fields>) bytes = static_cast<uint64_t>(std::llround(gib * kGib));
}

template <typename Fields, typename Speed>
void VisitRates(Fields& fields, Speed& speed) {
  fields.Field("read_gb_s", speed.read_gbps, kReadRange);
  fields.Field("int8_gops", speed.int8_gops, kOpsRange);
  fields.Field("bf16_gops", speed.bf16_gops, kOpsOrZeroRange, 0.0);
  fields.Field("f32_gops", speed.f32_gops, kOpsRange, kF32OfInt8 * speed.int8_gops);
}

constexpr auto kVisitSpeed = [](auto& fields, auto& speed) {
  fields.Field("stages", speed.stages, kCountRange);
  fields.Field("threads", speed.threads, kCountRange);
  VisitRates(fields, speed);
  fields.End();
};

constexpr auto kVisitStep = [](auto& fields, auto& step) {
  fields.Field("rows", step.rows, kCountRange);
  fields.Field("sequences", step.sequences, IntegerRange{1, step.rows});
  fields.Field("context", step.context, JobLimits::kContext.range);
  fields.Field("threads", step.threads, kCountRange);
  fields.Field("layer_us", step.layer_us, kTimeRange);
  fields.Field("head_us", step.head_us, kTimeRange, 0.0);
  fields.End();
};

// Of a host that has no list of speeds: of one stage with all cores. The coordinator's host needs none.
void ReadOwnSpeed(JsonReader& fields, HostFacts* host) {
  const bool has_rates = fields.Has("read_gb_s") || fields.Has("int8_gops");
  if (host->slots == 0 && !has_rates) return;
  host->speeds.push_back({.threads = host->cores});
  VisitRates(fields, host->speeds.back());
}

bool IsOfArm(const std::string& isa) { return isa.rfind("neon", 0) == 0; }

// What no machine is.
void CheckPossible(JsonReader& fields, const HostFacts& host) {
  if (host.available_bytes > host.memory_bytes) {
    fields.Fail("available_gib", "no more than memory_gib",
                absl::StrCat(static_cast<double>(host.available_bytes) / kGib));
  }
  if (host.hardware_threads < host.cores) {
    fields.Fail("hardware_threads", absl::StrCat("at least the ", host.cores, " of cores"),
                absl::StrCat(host.hardware_threads));
  }
  if (host.numa_nodes > host.hardware_threads) {
    fields.Fail("numa_nodes", absl::StrCat("at most the ", host.hardware_threads, " of hardware_threads"),
                absl::StrCat(host.numa_nodes));
  }
  const auto named = [&](const std::string& isa) {
    return std::find(host.isas.begin(), host.isas.end(), isa) != host.isas.end();
  };
  const std::string scalar = InstructionSetName(InstructionSet::kScalar);
  for (const std::string& isa : host.isas) {
    if (isa == scalar || host.isas.front() == scalar || IsOfArm(isa) == IsOfArm(host.isas.front())) continue;
    fields.Fail("isas", "sets of one processor", absl::StrCat(host.isas.front(), " and ", isa));
  }
  if (!host.isa.empty() && !host.isas.empty() && !named(host.isa)) {
    fields.Fail("isa", "one of the host's isas", JsonString(host.isa));
  }
}

// Best first, whatever the order in which somebody wrote them.
void SortIsas(std::vector<std::string>* isas) {
  std::sort(isas->begin(), isas->end(), [](const std::string& a, const std::string& b) {
    return ParseInstructionSet(a).value_or(InstructionSet::kScalar) >
           ParseInstructionSet(b).value_or(InstructionSet::kScalar);
  });
}

constexpr auto kVisitHost = [](auto& fields, auto& host) {
  fields.Field("name", host.name, kNameBytes);
  fields.Field("slots", host.slots, kSlotsRange, 1);
  fields.Field("cores", host.cores, kCountRange);
  fields.Field("hardware_threads", host.hardware_threads, kCountRange, host.cores);
  fields.Field("numa_nodes", host.numa_nodes, kCountRange, 1);
  VisitGib(fields, "memory_gib", host.memory_bytes, kMemoryGibRange);
  VisitGib(fields, "available_gib", host.available_bytes, kAvailableGibRange,
           static_cast<double>(host.memory_bytes) / kGib);
  fields.Field("huge_pages", host.huge_pages, CheckHugePages, "");
  fields.Texts("isas", host.isas, CheckIsa);
  fields.Field("isa", host.isa, CheckIsa, "");
  if constexpr (kReads<std::decay_t<decltype(fields)>>) {
    if (!fields.Has("speeds")) {
      ReadOwnSpeed(fields, &host);
    } else {
      fields.Objects("speeds", host.speeds, kVisitSpeed);
      if (host.speeds.empty() && host.slots > 0) fields.Fail("speeds", "at least one", "none");
      SortSpeeds(&host.speeds);
    }
  } else {
    fields.Objects("speeds", host.speeds, kVisitSpeed);
  }
  fields.Objects("steps", host.steps, kVisitStep);
  if constexpr (kReads<std::decay_t<decltype(fields)>>) {
    CheckPossible(fields, host);
    SortIsas(&host.isas);
  }
  fields.End();
};

// The hosts of a profile, which its other parts name.
struct HostNames {
  const std::vector<HostFacts>& hosts;
  absl::flat_hash_map<std::string, int> index = {};  // while reading, as are the others
  std::set<std::string> uplinks = {};
  std::set<int> in_uplinks = {};

  // -1: no such host.
  int IndexOf(const std::string& name) const {
    const auto found = index.find(name);
    return found == index.end() ? -1 : found->second;
  }
};

template <typename Fields, typename Index>
void VisitHostName(Fields& fields, const char* field, const HostNames& names, Index& host) {
  std::string name;
  if constexpr (!kReads<Fields>) name = names.hosts[static_cast<size_t>(host)].name;
  fields.Field(field, name, kTextBytes);
  if constexpr (kReads<Fields>) {
    host = names.IndexOf(name);
    if (host < 0) fields.Fail(field, "the name of a host", JsonString(name));
  }
}

// The stage at an end of a link: a number, the coordinator by its name, or nothing.
void VisitLinkEnd(JsonReader& fields, const char* field, size_t stages, int& stage) {
  const Json* found = fields.Find(field, /*required=*/false);
  if (found == nullptr) return;
  const bool coordinator = found->is_string() && found->get_ref<const std::string&>() == kCoordinatorStage;
  if (coordinator) {
    stage = LinkFacts::kCoordinator;
  } else {
    fields.Field(field, stage, IntegerRange{0, std::max<int64_t>(static_cast<int64_t>(stages) - 1, 0)});
  }
}
void VisitLinkEnd(JsonWriter& fields, const char* field, size_t, int stage) {
  if (stage != LinkFacts::kNoStage) fields.Field(field, stage >= 0 ? Json(stage) : Json(kCoordinatorStage));
}

constexpr auto kVisitLink = [](auto& fields, auto& link) {
  fields.Field("latency_us", link.latency_us, kTimeRange);
  fields.Field("bandwidth_gbit_s", link.bandwidth_gbit_s, kLinkRange);
  if (kReads<std::decay_t<decltype(fields)>> || link.jitter_us > 0) {
    fields.Field("jitter_us", link.jitter_us, kTimeRange, 0.0);
  }
};

constexpr auto kVisitModel = [](auto& fields, auto& model) {
  fields.Field("name", model.name, kTextBytes);
  fields.Field("file_bytes", model.file_bytes, kFileBytesRange);
  fields.Hash("header_hash", model.header_hash);
  fields.Field("layer", model.layer, kIndexRange);
  fields.Field("layer_bytes", model.layer_bytes, kFileBytesRange);
  fields.Field("head_bytes", model.head_bytes, kFileBytesRange);
  fields.Field("kv_type", model.kv_type, CheckKvType);
  fields.End();
};

// An uplink has a name of its own, and a host one uplink at most.
void ReadUplinkHosts(JsonReader& fields, HostNames* names, UplinkFacts* uplink) {
  if (!names->uplinks.insert(uplink->name).second) {
    fields.Fail("name", "a name that no other uplink has", absl::StrCat(JsonString(uplink->name), " again"));
  }
  std::vector<std::string> hosts;
  fields.Texts(
      "hosts", hosts, [](const std::string&) { return absl::OkStatus(); }, /*required=*/true);
  for (const std::string& name : hosts) {
    uplink->hosts.push_back(names->IndexOf(name));
    if (uplink->hosts.back() < 0) return fields.Fail("hosts", "names of hosts", JsonString(name));
    if (names->in_uplinks.insert(uplink->hosts.back()).second) continue;
    fields.Fail("hosts", "every host in one uplink at most", absl::StrCat(JsonString(name), " again"));
  }
}

// What the rest of the document names its hosts by.
void IndexHosts(JsonReader& fields, const std::string& coordinator, HostProfile* profile, HostNames* names) {
  if (profile->hosts.empty()) fields.Fail("hosts", "at least one host", "none");
  for (size_t i = 0; i < profile->hosts.size(); ++i) {
    const std::string& name = profile->hosts[i].name;
    if (names->index.emplace(name, static_cast<int>(i)).second) continue;
    fields.Fail(absl::StrCat("hosts[", i, "].name"), "a name that no other host has",
                absl::StrCat(JsonString(name), " again"));
  }
  if (!fields.Has("coordinator")) return;
  profile->coordinator = names->IndexOf(coordinator);
  if (profile->coordinator < 0) fields.Fail("coordinator", "the name of a host", JsonString(coordinator));
}

template <typename Fields, typename Profile>
void VisitProfile(Fields& fields, Profile& profile) {
  int version = kHostProfileVersion;
  fields.Field("version", version, kVersionRange, kHostProfileVersion);
  fields.Field("measured_at", profile.measured_at, kTextBytes, "");
  HostNames names = {.hosts = profile.hosts};
  std::string coordinator;
  if constexpr (!kReads<Fields>) coordinator = profile.hosts[static_cast<size_t>(profile.coordinator)].name;
  fields.Field("coordinator", coordinator, kTextBytes, "");
  fields.Objects("hosts", profile.hosts, kVisitHost, /*required=*/true);
  if constexpr (kReads<Fields>) {
    IndexHosts(fields, coordinator, &profile, &names);
    if (fields.Has("draft")) VisitHostName(fields, "draft", names, profile.draft);
  } else if (profile.draft >= 0) {
    VisitHostName(fields, "draft", names, profile.draft);
  }
  fields.Objects("stages", profile.stages, [&](auto& stage_fields, auto& stage) {
    VisitHostName(stage_fields, "host", names, stage.host);
    stage_fields.Field("rank", stage.rank, kIndexRange);
    stage_fields.Field("threads", stage.threads, kCountRange);
    stage_fields.Field("clock_offset_us", stage.clock_offset_us, kOffsetRange, 0.0);
    stage_fields.Field("clock_error_us", stage.clock_error_us, kTimeRange, 0.0);
    stage_fields.End();
  });
  fields.Objects("links", profile.links, [&](auto& link_fields, auto& link) {
    VisitHostName(link_fields, "from", names, link.from);
    VisitHostName(link_fields, "to", names, link.to);
    kVisitLink(link_fields, link);
    VisitLinkEnd(link_fields, "from_stage", profile.stages.size(), link.from_stage);
    VisitLinkEnd(link_fields, "to_stage", profile.stages.size(), link.to_stage);
    link_fields.End();
  });
  fields.Object("link", profile.default_link, [](auto& link_fields, auto& link) {
    kVisitLink(link_fields, link);
    link_fields.End();
  });
  if (kReads<Fields> || !profile.uplinks.empty()) {
    fields.Objects("uplinks", profile.uplinks, [&](auto& uplink_fields, auto& uplink) {
      uplink_fields.Field("name", uplink.name, kTextBytes);
      uplink_fields.Field("bandwidth_gbit_s", uplink.bandwidth_gbit_s, kLinkRange);
      if constexpr (kReads<std::decay_t<decltype(uplink_fields)>>) {
        ReadUplinkHosts(uplink_fields, &names, &uplink);
      } else {
        std::vector<std::string> hosts;
        for (const int host : uplink.hosts) hosts.push_back(profile.hosts[static_cast<size_t>(host)].name);
        uplink_fields.Field("hosts", hosts);
      }
      uplink_fields.End();
    });
  }
  fields.Object("model", profile.model, kVisitModel);
  fields.End();
}

}  // namespace

std::optional<LinkFacts> LinkBetween(const HostProfile& profile, int from, int to) {
  if (std::optional<LinkFacts> link = WorstOf(profile, from, to); link.has_value()) return link;
  if (std::optional<LinkFacts> back = WorstOf(profile, to, from); back.has_value()) {
    std::swap(back->from, back->to);
    std::swap(back->from_stage, back->to_stage);
    return back;
  }
  if (from == to) return LinkFacts{from, to, kLocalLatencyUs, kLocalBandwidthGbitS};
  std::optional<LinkFacts> link = profile.default_link;
  if (link.has_value()) {
    link->from = from;
    link->to = to;
  }
  return link;
}

const HostSpeed* SpeedOf(const HostFacts& host, int stages, int threads) {
  const HostSpeed* best = nullptr;
  // Of two, the one that fits better: not above what is asked for, and then as close to it as can be.
  const auto better = [](int candidate, int best, int asked) {
    if ((candidate <= asked) != (best <= asked)) return candidate <= asked;
    return candidate <= asked ? candidate > best : candidate < best;
  };
  for (const HostSpeed& speed : host.speeds) {
    if (best == nullptr || better(speed.stages, best->stages, stages) ||
        (speed.stages == best->stages && better(speed.threads, best->threads, threads))) {
      best = &speed;
    }
  }
  return best;
}

HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes, InstructionSet isa) {
  HostFacts host;
  host.name = name;
  host.cores = cores;
  host.hardware_threads = cores;
  host.memory_bytes = available_bytes;
  host.available_bytes = available_bytes;
  host.isas.push_back(InstructionSetName(isa));
  const HostSpeed core = SpeedOfCore(isa);
  host.speeds.push_back({.threads = cores,
                         .read_gbps = std::min(kAssumedReadGbpsOfCore * cores, kAssumedReadGbpsOfHost),
                         .int8_gops = core.int8_gops * cores,
                         .bf16_gops = core.bf16_gops * cores,
                         .f32_gops = core.f32_gops * cores});
  return host;
}

HostFacts HostWith(const HostFacts& host, InstructionSet isa) {
  HostFacts with = host;
  if (!host.isa.empty() || host.isas.empty()) return with;
  const HostSpeed to = SpeedOfCore(isa);
  const HostSpeed from = SpeedOfCore(ParseInstructionSet(host.isas.front()).value_or(isa));
  for (HostSpeed& speed : with.speeds) {
    speed.int8_gops *= to.int8_gops / from.int8_gops;
    speed.f32_gops *= to.f32_gops / from.f32_gops;
    if (!HasBf16Dot(isa)) speed.bf16_gops = 0;
  }
  return with;
}

LinkFacts AssumedLink() {
  LinkFacts link;
  link.latency_us = kAssumedLinkLatencyUs;
  link.bandwidth_gbit_s = kAssumedLinkGbitS;
  return link;
}

absl::StatusOr<HostProfile> ParseHostProfile(absl::string_view file, absl::string_view text) {
  const absl::StatusOr<Json> document = ParseJson(text);
  if (!document.ok()) return absl::InvalidArgumentError(absl::StrCat("'", file, "': ", document.status().message()));
  absl::Status status;
  JsonReader fields(file, "", *document, &status);
  HostProfile profile;
  VisitProfile(fields, profile);
  RETURN_IF_ERROR(status);
  return profile;
}

std::string HostProfileJson(const HostProfile& profile) {
  Json json;
  JsonWriter fields(&json);
  VisitProfile(fields, profile);
  return WrappedJson(json, kLineBytes);
}

absl::StatusOr<HostProfile> ReadHostProfile(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadDocument(file, "host profile"));
  return ParseHostProfile(file, text);
}

}  // namespace stagecoach
