#include "coordinator/cli/sweep/sweep_points.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/net/addresses.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/bench_work.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/sweep/sweep_options.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {
namespace {

// The hosts with as many slots as the stages need, spread evenly; those that a profile gives first.
void PlaceMoreStages(int64_t stages, PlanPlaces* places) {
  const int64_t known = static_cast<int64_t>(places->stage_hosts.size());
  if (stages <= known || known == 0) return;
  std::vector<int> hosts;
  for (int64_t s = 0; s < stages; ++s) hosts.push_back(places->stage_hosts[static_cast<size_t>(s * known / stages)]);
  places->stage_hosts = std::move(hosts);
}

absl::string_view UpToFirstDot(absl::string_view name) { return name.substr(0, name.find('.')); }

bool IsAddress(absl::string_view host) {
  return host.find_first_not_of("0123456789.") == absl::string_view::npos || absl::StrContains(host, ':');
}

absl::StatusOr<Placement> PlacementOf(const LaunchOptions& launch) {
  absl::StatusOr<LaunchHosts> hosts = ResolveHosts(launch);
  if (!hosts.ok()) return UsageError(hosts.status().message());
  return PlaceStages(hosts->hosts, hosts->stages, /*left_out=*/{});
}

// Of a host's name; empty: it has none. Asked for once, for a resolver may take seconds. Of one thread.
const std::string& AddressOf(const std::string& name) {
  static auto* const known = new std::map<std::string, std::string>;
  const auto [entry, fresh] = known->try_emplace(name);
  if (fresh) {
    const std::vector<std::string> addresses = AddressesOfName(name);
    if (!addresses.empty()) entry->second = addresses.front();
  }
  return entry->second;
}

// The facts of a host that a launch names; nullptr: there are none.
const HostFacts* FactsOf(const PlacedStages& placed, const HostProfile& profile) {
  for (const HostFacts& facts : profile.hosts) {
    const absl::string_view name = UpToFirstDot(facts.name);
    if (facts.name == placed.host || (!IsAddress(placed.host) && name == UpToFirstDot(placed.host))) return &facts;
    if (placed.here && (name == UpToFirstDot(HostName()) || name == "localhost")) return &facts;
  }
  // A probe knows hosts by the names that they give themselves.
  const std::string& address = AddressOf(placed.host);
  for (const HostFacts& facts : profile.hosts) {
    if (!address.empty() && AddressOf(facts.name) == address) return &facts;
  }
  return nullptr;
}

// Where the profile has the launch's hosts, in the order of the stages; none: the launch names addresses.
absl::StatusOr<std::vector<int>> StageHostsIn(const HostProfile& profile, const LaunchOptions& launch,
                                              const std::string& source) {
  ASSIGN_OR_RETURN(const Placement placement, PlacementOf(launch));
  std::vector<int> stage_hosts;
  for (const PlacedStages& placed : placement.hosts) {
    const HostFacts* const facts = FactsOf(placed, profile);
    if (facts == nullptr && IsAddress(placed.host)) return std::vector<int>();
    if (facts == nullptr || facts->speeds.empty()) {
      const std::string names = absl::StrJoin(
          profile.hosts, ", ", [](std::string* out, const HostFacts& host) { absl::StrAppend(out, host.name); });
      return absl::FailedPreconditionError(absl::StrCat("the ", source, " has no speeds of host '",
                                                        placed.here ? HostName() : placed.host, "', only of ", names));
    }
    stage_hosts.insert(stage_hosts.end(), static_cast<size_t>(placed.stages),
                       static_cast<int>(facts - profile.hosts.data()));
  }
  return stage_hosts;
}

// Output tokens a second if the pipeline never were behind: the last request ends as soon as it does alone.
double OfferedRate(const std::vector<ArrivingRequest>& requests, const ClusterPlan& alone) {
  double tokens = 0;
  for (const ArrivingRequest& request : requests) tokens += static_cast<double>(request.output_tokens);
  const ArrivingRequest& last = requests.back();
  const double gaps = static_cast<double>(last.output_tokens - 1);
  return tokens / (last.arrival_s - requests.front().arrival_s + alone.prefill.ttft_s + gaps * alone.decode.itl_s);
}

enum class Better { kMore, kLess, kNeither };

struct ComparedFigure {
  const char* title;
  double (*of)(const SweepResult& result);
  Better better;
  int digits;  // behind the point
};

constexpr ComparedFigure kComparedFigures[] = {
    {"tokens/s", [](const SweepResult& r) { return r.output_tokens_per_s; }, Better::kMore, 1},
    {"TTFT p50 ms", [](const SweepResult& r) { return 1e3 * r.ttft_s.p50; }, Better::kLess, 1},
    {"p99", [](const SweepResult& r) { return 1e3 * r.ttft_s.p99; }, Better::kLess, 1},
    {"ITL p50 ms", [](const SweepResult& r) { return 1e3 * r.itl_s.p50; }, Better::kLess, 2},
    {"p99", [](const SweepResult& r) { return 1e3 * r.itl_s.p99; }, Better::kLess, 2},
    {"bubble %", [](const SweepResult& r) { return 100 * r.bubble; }, Better::kNeither, 1},
    {"rows a pass", [](const SweepResult& r) { return r.rows_per_pass; }, Better::kNeither, 1},
};
constexpr ComparedFigure kGoodShare = {"good %", [](const SweepResult& r) { return 100 * r.slo_share; }, Better::kMore,
                                       1};

struct PolicyResults {
  std::string policy;
  std::vector<const SweepResult*> results;
};

double MedianOf(const PolicyResults& row, const ComparedFigure& figure) {
  std::vector<double> values;
  for (const SweepResult* result : row.results) values.push_back(figure.of(*result));
  return SpreadOf(std::move(values)).median;
}

// The cells of one figure, the best ones starred.
std::vector<std::string> CellsOf(const std::vector<PolicyResults>& rows, const ComparedFigure& figure) {
  std::vector<double> values(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) values[i] = MedianOf(rows[i], figure);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double best = figure.better == Better::kMore ? *most : *least;
  const bool differ = figure.better != Better::kNeither && *least < *most;
  std::vector<std::string> cells(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    cells[i] = absl::StrFormat("%.*f%s", figure.digits, values[i], !differ ? "" : values[i] == best ? "*" : " ");
  }
  return cells;
}

}  // namespace

void AddEmulatedLink(const EmulatedLink& emulated, HostProfile* profile) {
  if (emulated == EmulatedLink()) return;
  const double us_per_gbit = emulated.bytes_per_s > 0 ? 1e9 / 8 / emulated.bytes_per_s * 1e6 : 0;
  std::vector<LinkFacts> links;
  for (int from = 0; from < static_cast<int>(profile->hosts.size()); ++from) {
    for (int to = 0; to < static_cast<int>(profile->hosts.size()); ++to) {
      std::optional<LinkFacts> link = LinkBetween(*profile, from, to);
      if (!link.has_value()) continue;
      LinkFacts& slower = links.emplace_back();
      slower.from = from;
      slower.to = to;
      slower.latency_us = link->latency_us + emulated.latency_s * 1e6;
      slower.jitter_us = link->jitter_us;
      slower.bandwidth_gbit_s = 1e6 / (1e6 / link->bandwidth_gbit_s + us_per_gbit);
    }
  }
  profile->links = std::move(links);
}

PlanLoad MeanLoad(const std::vector<ArrivingRequest>& requests) {
  double prompt = 0, output = 0;
  for (const ArrivingRequest& request : requests) {
    prompt += static_cast<double>(request.prompt_tokens);
    output += static_cast<double>(request.output_tokens);
  }
  const double n = static_cast<double>(requests.size());
  return {.prompt_tokens = std::max<int64_t>(1, std::llround(prompt / n)),
          .output_tokens = std::max<int64_t>(1, std::llround(output / n))};
}

SweepPrediction PredictionOf(const ClusterPlan& plan) {
  SweepPrediction p;
  p.measured_steps = plan.measured;
  p.sequences = plan.sequences;
  p.prefill_tokens_per_s = plan.prefill.tokens_per_s;
  p.decode_tokens_per_s = plan.decode.tokens_per_s;
  p.output_tokens_per_s = plan.output_tokens_per_s;
  p.ttft_s = plan.prefill.ttft_s;
  p.itl_s = plan.decode.itl_s;
  p.decode_groups = plan.decode.groups;
  p.bubble = plan.decode.bubble;
  p.bubble_few = plan.decode.bubble_few;
  p.bubble_imbalance = plan.decode.bubble_imbalance;
  p.bubble_hop = plan.decode.bubble_hop + plan.decode.bubble_coordinator;
  p.prefill_bubble = plan.prefill.bubble;
  const PipelineLimit& limit = plan.decode.limit;
  p.bottleneck_is_link = limit.what == PipelineLimit::What::kLink;
  p.bottleneck_stage = p.bottleneck_is_link || limit.what == PipelineLimit::What::kStage ? limit.index : 0;
  return p;
}

absl::StatusOr<SweepPrediction> PredictPoint(const SweepConfig& point, const std::vector<ArrivingRequest>& requests,
                                             ClusterOptions options, const PlaceSources& sources, bool own_probe,
                                             const LaunchOptions& launch,
                                             const std::shared_ptr<const ModelDescription>& model) {
  if (sources.given()) {
    options.hosts.clear();
    options.hostfile.clear();
    options.stages = 0;  // all slots; what is missing or too much is settled below
  }
  ASSIGN_OR_RETURN(PlanPlaces places, FindPlaces(options, sources, launch));
  if (sources.given()) {
    std::vector<int> stage_hosts;
    // A probe is of the hosts that run, in their order, but for a plan's, which may be another.
    if (!own_probe || launch.job.has_planned_for()) {
      ASSIGN_OR_RETURN(stage_hosts, StageHostsIn(places.profile, launch, sources.Name()));
    }
    if (!stage_hosts.empty()) {
      places.stage_hosts = std::move(stage_hosts);
    } else if (point.stages > 0) {
      PlaceMoreStages(point.stages, &places);
      places.stage_hosts.resize(static_cast<size_t>(point.stages));
    }
  }
  AddEmulatedLink(options.emulated_link, &places.profile);
  ClusterQuestion question = QuestionOf(model, places, launch);
  question.load = MeanLoad(requests);
  RETURN_IF_ERROR(UseDefaultSplit(&question));
  const int64_t in_flight =
      point.micro_batches > 0 ? point.micro_batches : static_cast<int64_t>(places.stage_hosts.size());
  // Without a number of their own there are as many in flight as decode rows have groups.
  question.job.set_micro_batches(
      static_cast<int32_t>(point.micro_batches > 0 ? in_flight : std::max(in_flight, point.decode_groups)));
  if (point.concurrency > 0) {
    question.job.set_max_num_seqs(static_cast<int32_t>(std::min(point.concurrency, point.max_num_seqs)));
  }
  ASSIGN_OR_RETURN(const ClusterPlan plan, PlanCluster(question));
  SweepPrediction prediction = PredictionOf(plan);
  if (point.concurrency == 0) {
    question.job.set_max_num_seqs(1);
    ASSIGN_OR_RETURN(const ClusterPlan alone, PlanCluster(question));
    prediction.output_tokens_per_s = std::min(prediction.output_tokens_per_s, OfferedRate(requests, alone));
  }
  prediction.source = sources.Name();
  return prediction;
}

absl::Status CheckCanRun(const LaunchOptions& launch, const std::optional<HostProfile>& facts,
                         const ModelDescription& model) {
  ASSIGN_OR_RETURN(const Placement placement, PlacementOf(launch));
  const std::vector<InstructionSet> own = CpuInstructionSets();
  std::vector<pb::Hello> hellos;
  for (const PlacedStages& placed : placement.hosts) {
    const HostFacts* const known = facts.has_value() ? FactsOf(placed, *facts) : nullptr;
    pb::Hello hello;
    hello.set_role(pb::Hello::ROLE_STAGE);
    hello.set_host(placed.here ? HostName() : placed.host);
    hello.set_allowed_cores(AllowedCores());
    hello.set_available_memory_bytes(uint64_t{1} << 50);
    std::vector<InstructionSet> isas = own;
    if (!placed.here && known != nullptr && !known->isas.empty()) {
      isas.clear();
      for (auto name = known->isas.rbegin(); name != known->isas.rend(); ++name) {
        if (const auto isa = ParseInstructionSet(*name); isa.ok()) isas.push_back(*isa);
      }
    } else if (!placed.here) {
      if (const std::optional<InstructionSet> wanted = WantedIsaOf(launch.job).isa; wanted.has_value())
        isas = {*wanted};
    }
    for (const InstructionSet isa : isas) hello.add_isas(ToProto(isa));
    for (int stage = 0; stage < placed.stages; ++stage) {
      hello.set_rank(static_cast<int32_t>(hellos.size()) + 1);
      hellos.push_back(hello);
    }
  }
  pb::ConfigureJob job = launch.job;
  job.clear_planned_for();  // which is about the hosts as the job finds them
  return PlanJob(job, hellos, model, JobEpoch{}).status();
}

std::string HostText(const LaunchHost& host) {
  std::string text = host.name();
  if (host.slots.slots != 1) absl::StrAppend(&text, ":", host.slots.slots);
  if (host.slots.spare) absl::StrAppend(&text, " spare");
  if (!host.slots.model.empty()) absl::StrAppend(&text, " model=", host.slots.model);
  return text;
}

absl::StatusOr<std::string> HostsText(const LaunchOptions& launch) {
  absl::StatusOr<LaunchHosts> resolved = ResolveHosts(launch);
  if (!resolved.ok()) return UsageError(resolved.status().message());
  const std::vector<LaunchHost>& hosts = resolved->hosts;
  const bool named = !launch.hosts.empty() || !launch.hostfile.empty();
  if (!named && std::all_of(hosts.begin(), hosts.end(), [](const LaunchHost& host) { return host.here; })) return "";
  return absl::StrJoin(hosts, ",", [](std::string* out, const LaunchHost& host) { *out += HostText(host); });
}

std::string OtherHostsThatRan(const LaunchOptions& launch, const std::vector<SweepStage>& stages) {
  const absl::StatusOr<LaunchHosts> hosts = ResolveHosts(launch);
  if (!hosts.ok()) return "";
  std::vector<std::string> meant;  // [stages]
  for (const PlacedStages& placed : PlaceStages(hosts->hosts, hosts->stages, /*left_out=*/{}).hosts) {
    meant.insert(meant.end(), static_cast<size_t>(placed.stages), placed.host);
  }
  bool other = false;
  std::vector<std::string> ran;
  for (size_t s = 0; s < std::min(stages.size(), meant.size()); ++s) {
    const absl::string_view name = UpToFirstDot(stages[s].host);
    const auto known = std::find_if(hosts->hosts.begin(), hosts->hosts.end(),
                                    [&](const LaunchHost& host) { return UpToFirstDot(host.name()) == name; });
    other = other || (known != hosts->hosts.end() && name != UpToFirstDot(meant[s]));
    if (s > 0 && stages[s].host == stages[s - 1].host) continue;
    LaunchHost host = known == hosts->hosts.end() ? LaunchHost{.slots = {.name = stages[s].host}} : *known;
    host.slots.spare = false;  // no longer, for it ran
    ran.push_back(HostText(host));
  }
  return other ? absl::StrJoin(ran, ",") : "";
}

std::string KeepTrace(const std::string& written, const std::string& directory, const SweepConfig& config,
                      const std::string& name) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(written, error);
  if (error) return "";
  if (bytes > kMostSweepTraceBytes) {
    LogInfo(absl::StrCat("the timeline of '", name, "' has ", bytes >> 20, " MiB, but at most ",
                         kMostSweepTraceBytes >> 20, " are kept; measure it with fewer --requests"));
    std::filesystem::remove(written, error);
    return "";
  }
  const std::string trace = SweepTraceName(config);
  std::filesystem::rename(written, std::filesystem::path(directory) / trace, error);
  return error ? "" : trace;
}

absl::Status EndOfSweep(int64_t all, int64_t failed, int64_t other_hosts) {
  std::vector<std::string> missing;
  if (failed > 0) missing.push_back(absl::StrCat(failed, " of ", all, " points failed"));
  if (other_hosts > 0) {
    missing.push_back(absl::StrCat(other_hosts, " of ", all, " points ran on other hosts than were asked for"));
  }
  if (missing.empty()) return absl::OkStatus();
  return WithExitCode(
      absl::UnavailableError(absl::StrCat(absl::StrJoin(missing, ", and "), "; the same command tries them again")),
      ExitCode::kLostStages);
}

void SetProgramAndModel(const ModelDescription& model, SweepConfig* config) {
  config->program_version = kProgramVersion;
  const std::vector<FileFingerprint> shards = model.file->fingerprints();
  if (!model.file->has_files() || shards.empty()) return;
  config->file_bytes = TotalBytes(shards);
  for (const FileFingerprint& shard : shards) {
    config->file_time_us = std::max(config->file_time_us, shard.modified_ns / 1000);
  }
  config->header_hash = absl::StrCat(absl::Hex(shards.front().header_hash, absl::kZeroPad16));
}

SweepOrigin CurrentOrigin(const ModelDescription& model) {
  const ModelSummary summary = SummarizeModel(model);
  SweepOrigin origin;
  origin.model_type = summary.type;
  origin.model_bytes = summary.bytes;
  origin.model_elements = summary.elements;
  origin.host = HostName();
  return origin;
}

absl::StatusOr<std::unique_ptr<SweepFile>> OpenSweepFile(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return InputFileError(absl::StrCat("-o: cannot make '", directory, "': ", error.message()));
  absl::StatusOr<std::unique_ptr<SweepFile>> file =
      SweepFile::Open((std::filesystem::path(directory) / kSweepFileName).string());
  if (!file.ok()) return WithExitCode(file.status(), ExitCode::kInputFile);
  return file;
}

absl::StatusOr<std::vector<Policy>> ParsePolicies(const std::vector<std::string>& given, Policy none) {
  std::vector<Policy> policies;
  const auto add = [&policies](Policy policy) {
    if (std::find(policies.begin(), policies.end(), policy) == policies.end()) policies.push_back(policy);
  };
  for (const std::string& list : given) {
    for (const absl::string_view part : absl::StrSplit(list, ',')) {
      const absl::string_view name = absl::StripAsciiWhitespace(part);
      if (name == "all") {
        for (const NamedValue<Policy>& entry : kPolicies) add(entry.value);
        continue;
      }
      ASSIGN_OR_RETURN(const Policy policy, ParsePolicy(name));
      add(policy);
    }
  }
  if (policies.empty()) policies = {none};
  return policies;
}

std::string PolicyTable(const std::vector<SweepPoint>& points) {
  std::vector<PolicyResults> rows;
  bool bounds = false;
  for (const SweepPoint& point : points) {
    bounds = bounds || point.config.slo_ttft_s > 0 || point.config.slo_itl_s > 0;
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const PolicyResults& row) {
      return row.policy == PolicyName(point.config.policy);
    });
    PolicyResults& row =
        found == rows.end() ? rows.emplace_back(PolicyResults{PolicyName(point.config.policy), {}}) : *found;
    row.results.push_back(&point.result);
  }
  if (rows.empty()) return "";
  std::vector<ComparedFigure> figures(std::begin(kComparedFigures), std::end(kComparedFigures));
  if (bounds) figures.push_back(kGoodShare);
  std::vector<std::string> header = {"policy"};
  std::vector<std::vector<std::string>> columns;
  for (const ComparedFigure& figure : figures) {
    header.emplace_back(figure.title);
    columns.push_back(CellsOf(rows, figure));
  }
  TextTable table(std::move(header), 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> cells = {rows[i].policy};
    for (const std::vector<std::string>& column : columns) cells.push_back(column[i]);
    table.Add(std::move(cells));
  }
  return table.Text();
}

std::string PolicyTables(const std::vector<SweepPoint>& points) {
  struct Load {
    SweepConfig config;  // with one policy and repetition for all
    std::vector<SweepPoint> points;
  };
  std::vector<Load> loads;
  for (const SweepPoint& point : points) {
    if (!point.ok()) continue;
    SweepConfig config = point.config;
    config.policy = Policy();
    config.repetition = 0;
    const auto found =
        std::find_if(loads.begin(), loads.end(), [&](const Load& l) { return SweepKey(l.config) == SweepKey(config); });
    Load& load = found == loads.end() ? loads.emplace_back(Load{std::move(config), {}}) : *found;
    load.points.push_back(point);
  }
  std::vector<SweepConfig> configs;
  for (const Load& load : loads) configs.push_back(load.config);
  const PointNames names(configs);
  std::string text;
  for (const Load& load : loads) {
    const Policy first = load.points.front().config.policy;
    if (std::all_of(load.points.begin(), load.points.end(),
                    [&](const SweepPoint& point) { return point.config.policy == first; })) {
      continue;
    }
    absl::StrAppend(&text, "\n",
                    absl::StrReplaceAll(names.Of(load.config),
                                        {{absl::StrCat(PolicyName(Policy()), "/"), "each policy/"}, {", run 1", ""}}),
                    "\n", PolicyTable(load.points));
  }
  return text;
}

}  // namespace stagecoach
