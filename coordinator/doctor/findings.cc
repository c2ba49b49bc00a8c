#include "coordinator/doctor/findings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "common/host/host_info.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/launcher_backend.h"
#include "coordinator/plan/probe_plan.h"

namespace stagecoach {
namespace {

constexpr double kMostlyHuge = 0.9;           // of the pages of a trial
constexpr double kBusyShare = 0.5;            // of the cores, by other programs
constexpr double kSlowLinkBytesPerS = 0.1e9;  // a little less than a Gbit/s
constexpr double kSlowLatencyUs = 1000;
constexpr double kClockUs = 10000;

constexpr const char* kLevelNames[] = {"ok", "warning", "error"};  // by Finding::Level
const char* LevelName(const Finding& finding) { return kLevelNames[static_cast<size_t>(finding.level)]; }

std::string Gib(uint64_t bytes) { return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / 1073741824.0); }
std::string IsaOf(const pb::Hello& hello) {
  if (hello.isas().empty()) return "no instruction set";
  return InstructionSetName(static_cast<pb::InstructionSet>(*hello.isas().rbegin()));
}

// A host of the probe with the report of its first stage.
struct ProbedHostFacts {
  std::string subject;
  const pb::Hello& hello;
  const pb::ProbeHost& host;
  int stages = 0;
  int threads = 0;  // of all its stages
  int nodes = 1;    // of NUMA memory
};

// Memory that is not in huge pages is read more slowly, by a tenth or so. What a trial got counts for more than the
// host's setting: weights are moved into huge pages whatever that says, on Linux 6.1 and later.
template <typename Warn>
void FindSmallPages(const ProbedHostFacts& facts, const Warn& warn) {
  const uint64_t wanted = facts.host.huge_wanted_bytes(), huge = facts.host.huge_bytes();
  const bool granted = wanted > 0 && static_cast<double>(huge) >= kMostlyHuge * static_cast<double>(wanted);
  if (facts.host.huge_pages() == "never") {
    warn(granted ? "huge pages for weights alone: K and V are read more slowly, by a tenth or so"
                 : "no huge pages: memory is read more slowly, by a tenth or so",
         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  } else if (facts.host.huge_pages_denied()) {
    warn("huge pages are denied to the stage's process: memory is read more slowly, by a tenth or so",
         "start stages without prctl(PR_SET_THP_DISABLE), which a container's runtime or a batch system has set");
  } else if (wanted > 0 && !granted) {
    warn(absl::StrCat(huge >> 20, " of ", wanted >> 20,
                      " MiB got the huge pages that they asked for: free memory is in pieces too small for them, or "
                      "looking for larger ones is switched off"),
         "echo 1 > /proc/sys/vm/compact_memory; "
         "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag; end what fills the memory");
  }
}

void FindWeaknesses(const ProbedHostFacts& facts, Findings* out) {
  const auto warn = [&](std::string found, std::string fix) {
    out->push_back(Finding::Warning(facts.subject, std::move(found), std::move(fix)));
  };
  const int cores = std::max(facts.hello.allowed_cores(), 1);
  if (facts.threads > cores) {
    warn(absl::StrCat(CountOf(facts.stages, "stage"), " of ", facts.threads / facts.stages, " threads on ",
                      CountOf(cores, "core"), ": they take turns"),
         "give the host fewer slots, or fewer --threads");
  }
  const double quota = facts.host.cpu_quota();
  if (quota > 0 && quota < facts.hello.cpus_size()) {
    warn(absl::StrFormat(
             "a CPU quota of %.1f cores over %d hardware threads: threads cannot be bound, and stop when it is used up",
             quota, facts.hello.cpus_size()),
         "give the container whole CPUs (a static CPU policy, cpuset) in place of a quota");
  } else if (!facts.host.binds()) {
    warn("threads cannot be bound to CPUs", "allow sched_setaffinity in the container's seccomp profile");
  }
  if (facts.host.load() > kBusyShare * cores) {
    warn(absl::StrFormat("other programs compute: a load of %.1f on %s", facts.host.load(), CountOf(cores, "core")),
         "end them; a pipeline is as fast as its slowest stage");
  }
  if (facts.nodes > facts.stages) {
    warn(absl::StrCat(CountOf(facts.nodes, "NUMA node"), ", but ", CountOf(facts.stages, "stage")),
         "give the host a slot for each node: a stage reads the memory of its own node faster");
  }
  FindSmallPages(facts, warn);
  const uint64_t shared = kSharedMemoryPerRank * static_cast<uint64_t>(facts.stages + 1);
  if (facts.host.shared_memory_bytes() < shared) {
    warn(absl::StrCat(facts.host.shared_memory_bytes() >> 20, " MiB are free in /dev/shm, where its ranks meet"),
         absl::StrCat("give it ", shared >> 20, " MiB or more (docker run --shm-size)"));
  }
}

// "2 stages and the draft": by ascending stages.
std::string RunsText(const pb::ProbeReport& report, const std::vector<int>& stages) {
  const auto all = std::ssize(stages);
  if (!report.stages(stages.back()).draft()) return CountOf(all, "stage");
  return all == 1 ? "the draft" : absl::StrCat(CountOf(all - 1, "stage"), " and the draft");
}

void FindHosts(const pb::ProbeReport& report, Findings* out) {
  std::vector<std::string> names;
  for (const pb::ProbedStage& stage : report.stages()) names.push_back(report.hellos(stage.stage() + 1).host());
  for (const HostStages& group : GroupByHost(names)) {
    const int first = group.stages.front();
    ProbedHostFacts facts{absl::StrCat("host ", group.host), report.hellos(first + 1), report.stages(first).host()};
    facts.stages = static_cast<int>(group.stages.size());
    for (const int stage : group.stages) facts.threads += report.stages(stage).threads();
    for (const pb::CpuPlace& cpu : facts.hello.cpus()) facts.nodes = std::max(facts.nodes, cpu.node() + 1);
    out->push_back(Finding::Ok(
        facts.subject, absl::StrCat(RunsText(report, group.stages), ", ", CountOf(facts.hello.allowed_cores(), "core"),
                                    ", ", IsaOf(facts.hello), ", ", Gib(facts.hello.available_memory_bytes()), " of ",
                                    Gib(facts.host.memory_bytes()), " free, huge pages ",
                                    facts.host.huge_pages().empty() ? "not known" : facts.host.huge_pages())));
    FindWeaknesses(facts, out);
  }
}

std::string StageOf(const pb::ProbeReport& report, int stage) {
  if (stage < 0) return absl::StrCat("the coordinator on ", report.hellos(0).host());
  if (report.stages(stage).draft()) return absl::StrCat("the draft on ", report.hellos(stage + 1).host());
  return StageName(stage, report.hellos(stage + 1).host());
}

void FindLinks(const pb::ProbeReport& report, Findings* out) {
  for (const pb::ProbeLink& link : report.links()) {
    if (link.from_stage() >= 0 && report.stages(link.to_stage()).draft()) continue;  // nothing is sent there
    const std::string subject =
        absl::StrCat(StageOf(report, link.from_stage()), " -> ", StageOf(report, link.to_stage()));
    if (!link.error().empty()) {
      out->push_back(ErrorOfMessage(subject, link.error()));
      continue;
    }
    const std::string found =
        absl::StrFormat("latency %.1f us, %.1f Gbit/s", link.latency_us(), link.bytes_per_s() * 8e-9);
    if (link.bytes_per_s() < kSlowLinkBytesPerS || link.latency_us() > kSlowLatencyUs) {
      out->push_back(Finding::Warning(subject, found, "put neighbouring stages on hosts of one fast network"));
    } else {
      out->push_back(Finding::Ok(subject, found));
    }
    if (link.from_stage() >= 0 || std::abs(link.clock_offset_us()) <= link.clock_error_us() + kClockUs) continue;
    out->push_back(Finding::Warning(
        StageOf(report, link.to_stage()),
        absl::StrFormat("its clock differs from the coordinator's by %.3f s (+- %.6f s)", link.clock_offset_us() * 1e-6,
                        link.clock_error_us() * 1e-6),
        "run chrony or another NTP client on both hosts; nothing fails, but times of logs do not agree"));
  }
}

// `own_path`: what the host file says of a host; empty: nothing.
std::string WhereToHaveTheModel(absl::string_view own_path) {
  if (own_path.empty()) {
    return "put the same file there, say where it is by model=PATH in the host file, or give --weights stream";
  }
  return absl::StrCat("put the same file there, or mend model=", own_path, " of this host in the host file");
}

// What is wrong with the model file of a stage; absent: nothing.
std::optional<Finding> WhyNoModel(const pb::ProbeReport& report, const pb::ProbedStage& stage,
                                  const std::vector<FileFingerprint>& model) {
  const std::string name = StageOf(report, stage.stage());
  const std::string& own_path = report.hellos(stage.stage() + 1).model_path();
  if (stage.model_code() != 0) {
    return Finding::Error(name, stage.model_error(), WhereToHaveTheModel(own_path), ExitCode::kInputFile);
  }
  if (SameContent(FromProto(stage.model().fingerprints()), model)) return std::nullopt;  // as a stage does
  const std::string path = own_path.empty() ? "" : absl::StrCat(" '", own_path, "'");
  return Finding::Error(name,
                        absl::StrCat("its model file", path,
                                     " is another one than here (size, header and samples of the data are compared)"),
                        WhereToHaveTheModel(own_path), ExitCode::kInputFile);
}

void FindModel(const pb::ProbeReport& report, const std::vector<FileFingerprint>& model,
               const std::vector<FileFingerprint>& draft, Findings* out) {
  if (model.empty()) return;
  bool all_same = true;
  for (const pb::ProbedStage& stage : report.stages()) {
    std::optional<Finding> wrong = WhyNoModel(report, stage, stage.draft() ? draft : model);
    if (stage.draft()) {
      if (wrong.has_value()) wrong = DraftFinding(*std::move(wrong));
      out->push_back(wrong.value_or(Finding::Ok(StageOf(report, stage.stage()), "sees the same file")));
    } else if (wrong.has_value()) {
      out->push_back(*std::move(wrong));
      all_same = false;
    }
  }
  if (all_same) out->push_back(Finding::Ok("model", "every stage sees the same file"));
}

// As the launch will place the stages.
bool OthersSuffice(const std::vector<LaunchHost>& hosts, int stages, const std::set<std::string>& left_out) {
  return PlaceStages(hosts, stages, left_out).stages() == stages;
}

bool IsSpare(const std::vector<LaunchHost>& hosts, const std::string& name) {
  return std::any_of(hosts.begin(), hosts.end(),
                     [&](const LaunchHost& host) { return host.name() == name && host.slots.spare; });
}

// Where the host file says that a host has the model; empty: it does not.
std::string OwnModelOf(const std::vector<LaunchHost>& hosts, const std::string& name) {
  const auto host =
      std::find_if(hosts.begin(), hosts.end(), [&](const LaunchHost& candidate) { return candidate.name() == name; });
  return host == hosts.end() ? "" : host->slots.model;
}

// What a host says of its networks.
std::string NetworkText(const std::string& name) {
  return IsPlainName(absl::StrReplaceAll(name, {{":", "."}}), 64) ? name : ShownText(name);
}

// What a spare host would bring; no stage tells of it.
std::string SpareText(const HostAnswer& answer) {
  const pb::Hello& hello = answer.report->hello();
  std::vector<std::string> links;
  for (const pb::HostAddress& address : answer.report->addresses()) {
    if (address.loopback()) continue;
    links.push_back(absl::StrCat(NetworkText(address.interface()), " (", NetworkText(address.address()), ", MTU ",
                                 address.mtu(), ")"));
  }
  return absl::StrCat("; spare: ", CountOf(hello.allowed_cores(), "core"), ", ", IsaOf(hello), ", ",
                      Gib(hello.available_memory_bytes()), " free",
                      links.empty() ? "" : absl::StrCat(", links ", absl::StrJoin(links, ", ")),
                      answer.model.empty() ? "" : absl::StrCat(", has the model at '", answer.model, "'"));
}

// Why a job cannot use a host; empty where it can. `shortages`: of launch_check.h.
std::optional<Finding> WhyNotUsed(const std::string& subject, const HostAnswer& answer, const pb::Hello& own,
                                  absl::string_view own_model, const std::vector<std::string>& shortages) {
  if (!answer.report.has_value()) {
    const std::string said = answer.said.empty() ? "" : absl::StrCat("; its login wrote ", ShownText(answer.said));
    return Finding::Error(
        subject, answer.trouble.empty() ? absl::StrCat("gave no answer in time", said) : answer.trouble,
        absl::StrCat("check the name, that `ssh ", answer.host,
                     " true` works without a password, and that stage_worker is at the same path there"));
  }
  if (const std::string other = OtherVersion(answer.report->hello(), own); !other.empty()) {
    return Finding::Error(subject, other, "install one version on every host");
  }
  if (!shortages.empty()) return ErrorOfMessage(subject, absl::StrJoin(shortages, "; "));
  if (answer.LacksModel()) {
    return Finding::Error(subject, absl::StrCat("cannot read the model file '", answer.model, "'"),
                          WhereToHaveTheModel(own_model), ExitCode::kInputFile);
  }
  return std::nullopt;
}

// Hosts are distinguished by their own names: `own` for this one, the answer for another.
void FindNamesOfOneHost(const std::vector<HostAnswer>& answers, const pb::Hello& own,
                        const std::vector<LaunchHost>& hosts, Findings* out) {
  std::map<std::string, std::string> named;
  for (const LaunchHost& host : hosts) {
    if (host.here) named.emplace(own.host(), host.name());
  }
  for (const HostAnswer& answer : answers) {
    if (!answer.report.has_value()) continue;
    const auto [first, is_new] = named.emplace(answer.report->hello().host(), answer.host);
    if (is_new) continue;
    out->push_back(Finding::Warning(
        absl::StrCat("hosts ", first->second, " and ", answer.host),
        absl::StrCat("both call themselves '", first->first, "': stages share the cores and memory of one host"),
        "name a host once, with all its slots; if they are two, give each a host name of its own"));
  }
}

}  // namespace

Finding ErrorOfMessage(std::string subject, absl::string_view message, ExitCode code) {
  const size_t end = std::min(message.rfind("; "), message.size());
  return Finding::Error(std::move(subject), std::string(message.substr(0, end)),
                        std::string(absl::StripPrefix(message.substr(end), "; ")), code);
}

Finding DraftFinding(Finding finding) {
  finding.level = Finding::Level::kWarning;
  absl::StrAppend(&finding.found, " (a job goes on without the draft)");
  return finding;
}

Findings FindingsOfSurvey(const std::vector<HostAnswer>& answers, const pb::Hello& own,
                          const std::vector<LaunchHost>& hosts, int stages, int threads) {
  Findings findings;
  std::map<std::string, std::optional<Finding>> why_not;  // by host
  std::set<std::string> left_out;
  for (const HostAnswer& answer : answers) {
    std::vector<std::string> shortages;
    if (answer.report.has_value()) shortages = ShortagesThere(*answer.report, answer.host, hosts, stages, threads);
    why_not[answer.host] =
        WhyNotUsed(absl::StrCat("host ", answer.host), answer, own, OwnModelOf(hosts, answer.host), shortages);
    if (why_not[answer.host].has_value()) left_out.insert(answer.host);
  }
  const bool others_do = OthersSuffice(hosts, stages, left_out);
  for (const HostAnswer& answer : answers) {
    const std::string subject = absl::StrCat("host ", answer.host);
    if (std::optional<Finding>& finding = why_not[answer.host]; finding.has_value()) {
      if (others_do || IsSpare(hosts, answer.host)) finding->level = Finding::Level::kWarning;
      if (others_do) absl::StrAppend(&finding->found, " (a job of ", CountOf(stages, "stage"), " does without it)");
      findings.push_back(*std::move(finding));
      continue;
    }
    findings.push_back(
        Finding::Ok(subject, absl::StrCat("can be reached, version ", answer.report->hello().program_version(),
                                          IsSpare(hosts, answer.host) ? SpareText(answer) : "")));
    for (const pb::LeftProcess& left : answer.report->left()) {
      findings.push_back(Finding::Warning(subject,
                                          absl::StrCat("process ", left.pid(), " (", left.name(), ", state ",
                                                       left.state(), ") of an earlier job does not end"),
                                          "end it, or restart the host: it holds memory"));
    }
  }
  FindNamesOfOneHost(answers, own, hosts, &findings);
  return findings;
}

Findings FindingsOfReport(const pb::ProbeReport& report, const std::vector<FileFingerprint>& model,
                          const std::vector<FileFingerprint>& draft) {
  Findings findings;
  FindHosts(report, &findings);
  FindLinks(report, &findings);
  FindModel(report, model, draft, &findings);
  return findings;
}

ExitCode VerdictOf(const Findings& findings) {
  ExitCode code = ExitCode::kOk;
  for (const Finding& finding : findings) {
    if (finding.level != Finding::Level::kError) continue;
    code = code == ExitCode::kOk || code == finding.code ? finding.code : ExitCode::kLaunch;
  }
  return code;
}

std::string FindingsText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, absl::StrFormat("%-8s ", LevelName(finding)), finding.subject, ": ", finding.found,
                    finding.fix.empty() ? "" : "; ", finding.fix, "\n");
  }
  return text;
}

std::string FindingsJson(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back(
        {{"level", LevelName(finding)}, {"subject", finding.subject}, {"found", finding.found}, {"fix", finding.fix}});
  }
  return PrettyJson({{"would_run", VerdictOf(findings) == ExitCode::kOk}, {"findings", std::move(list)}});
}

Findings FindingsOfNetwork(const TriedHosts& tried, const std::string& own_networks,
                           const std::vector<LaunchHost>& hosts, int stages) {
  Findings findings;
  for (const auto& [host, path] : tried.paths) {
    findings.push_back(Finding::Ok(absl::StrCat("host ", host), absl::StrCat("TCP goes both ways, ", path)));
  }
  if (!own_networks.empty() && !tried.answers.empty()) {
    findings.push_back(Finding::Ok(
        "network", absl::StrCat("is as you set it, ", own_networks, "; TCP between the hosts was not tried alone")));
  } else if (const McaSettings settings = NetworkSettings("btl_tcp", tried.networks); !settings.empty()) {
    const auto option = [](std::string* out, const auto& setting) {
      absl::StrAppend(out, "--mca ", setting.first, " ", setting.second);
    };
    findings.push_back(Finding::Ok("network", absl::StrCat("Open MPI is told ", absl::StrJoin(settings, " ", option),
                                                           " (the same in --launcher-args replaces it)")));
  }
  std::set<std::string> left_out;
  for (const auto& [host, why] : tried.unreachable) left_out.insert(host);
  for (const HostAnswer& answer : tried.answers) {
    if (!answer.report.has_value()) left_out.insert(answer.host);
  }
  const bool others_do = OthersSuffice(hosts, stages, left_out);
  for (const auto& [name, why] : tried.unreachable) {
    Finding finding = ErrorOfMessage(absl::StrCat("host ", name), why);
    if (others_do || IsSpare(hosts, name)) finding.level = Finding::Level::kWarning;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace stagecoach
