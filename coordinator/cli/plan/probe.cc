// probe: what the hosts of a cluster and the links between them can do, as a profile that the planner reads.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/cli/verb.h"
#include "coordinator/plan/probe_plan.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

absl::StatusOr<ProbedModel> DescribeProbedModel(const ModelDescription& model, const pb::ConfigureJob& job) {
  ASSIGN_OR_RETURN(const ModelParts parts,
                   PartsOf(model, KvType::kF32, /*bf16_dot=*/false));  // bytes depend on neither
  ProbedModel probed;
  probed.name = model.file->path();
  probed.file_bytes = TotalBytes(model.file->fingerprints());
  probed.header_hash = model.file->fingerprints().front().header_hash;
  probed.layer_bytes = static_cast<uint64_t>(parts.layers[static_cast<size_t>(LayerToTime(model.hyper))].bytes_kept);
  probed.head_bytes = static_cast<uint64_t>(parts.head.bytes_kept);
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(job.kv_type()));
  probed.kv_type = KvTypeName(kv_type);
  return probed;
}

// What the report says is wrong; a profile with holes would make a plan that is.
absl::Status CheckReport(const pb::ProbeReport& report, const ModelDescription* model) {
  for (const pb::ProbeLink& link : report.links()) {
    if (!link.error().empty()) return WithExitCode(absl::UnavailableError(link.error()), ExitCode::kLaunch);
  }
  for (const pb::ProbedStage& stage : report.stages()) {
    const std::string name = absl::StrCat("stage ", stage.stage(), " on ", report.hellos(stage.stage() + 1).host());
    if (stage.model_code() != 0) return InputFileError(absl::StrCat(name, ": ", stage.model_error()));
    if (model == nullptr) continue;
    if (!SameContent(FromProto(stage.model().fingerprints()),
                     model->file->fingerprints())) {  // as a stage compares them
      return InputFileError(absl::StrCat(name, ": '", model->file->path(),
                                         "' is another file than here; put the same file at this path on every host"));
    }
  }
  return absl::OkStatus();
}

using Model = std::shared_ptr<const ModelDescription>;

std::string Number(double value) { return absl::StrFormat("%.*f", value < 100 ? 1 : 0, value); }
std::string Gib(uint64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / 1073741824.0); }
std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string HostTable(const HostProfile& profile) {
  TextTable table(
      {"host", "instruction set", "stages", "cores", "threads", "NUMA nodes", "GiB free", "of", "huge pages"});
  for (const HostFacts& host : profile.hosts) {
    const std::string& isa = !host.isa.empty() || host.isas.empty() ? host.isa : host.isas.front();
    table.Add({host.name, OrDash(isa), absl::StrCat(host.slots), absl::StrCat(host.cores),
               absl::StrCat(host.hardware_threads), absl::StrCat(host.numa_nodes), Gib(host.available_bytes),
               Gib(host.memory_bytes), OrDash(host.huge_pages)});
  }
  return table.Text();
}

std::string SpeedTable(const HostProfile& profile) {
  TextTable table({"host", "stages at once", "threads each", "read GB/s", "int8 GOP/s", "bf16 GOP/s", "f32 GOP/s"}, 1);
  for (const HostFacts& host : profile.hosts) {
    for (const HostSpeed& speed : host.speeds) {
      table.Add({host.name, absl::StrCat(speed.stages), absl::StrCat(speed.threads), Number(speed.read_gbps),
                 Number(speed.int8_gops), speed.bf16_gops > 0 ? Number(speed.bf16_gops) : "-", Number(speed.f32_gops)});
    }
  }
  return table.Text();
}

std::string EndName(const HostProfile& profile, int host, int stage) {
  const std::string& name = profile.hosts[static_cast<size_t>(host)].name;
  if (stage == LinkFacts::kNoStage) return name;
  return absl::StrCat(stage < 0 ? "coordinator" : absl::StrCat("stage ", stage), " on ", name);
}

std::string LinkTable(const HostProfile& profile) {
  TextTable table({"link from", "to", "latency us", "Gbit/s", "clock there us", "+-"});
  for (const LinkFacts& link : profile.links) {
    const bool clock = link.from_stage == LinkFacts::kCoordinator;
    const ProbedStage stage = clock ? profile.stages[static_cast<size_t>(link.to_stage)] : ProbedStage();
    table.Add({EndName(profile, link.from, link.from_stage), EndName(profile, link.to, link.to_stage),
               Number(link.latency_us), Number(link.bandwidth_gbit_s),
               clock ? absl::StrFormat("%.1f", stage.clock_offset_us) : "-",
               clock ? absl::StrFormat("%.1f", stage.clock_error_us) : "-"});
  }
  return table.Text();
}

std::string StepTable(const HostProfile& profile) {
  TextTable table({"host", "step", "rows", "context", "threads", "a layer us", "head us"});
  for (const HostFacts& host : profile.hosts) {
    for (const StepTime& step : host.steps) {
      table.Add({host.name, step.rows == step.sequences ? "decode" : "chunk", absl::StrCat(step.rows),
                 absl::StrCat(step.context), absl::StrCat(step.threads), Number(step.layer_us),
                 step.head_us > 0 ? Number(step.head_us) : "-"});
    }
  }
  return table.Text();
}

// A profile for people: its hosts, their speeds, the links with the clocks, the times of the model's steps.
std::string ProbeTables(const HostProfile& profile) {
  std::string text = absl::StrCat(HostTable(profile), "\n", LinkTable(profile));
  bool speeds = false, steps = false;
  for (const HostFacts& host : profile.hosts) {
    speeds = speeds || !host.speeds.empty();
    steps = steps || !host.steps.empty();
  }
  if (speeds) absl::StrAppend(&text, "\n", SpeedTable(profile));
  if (steps && profile.model.has_value()) {
    absl::StrAppend(&text, "\nlayer ", profile.model->layer, " and the head of ", profile.model->name, "\n",
                    StepTable(profile));
  }
  return text;
}

absl::Status OutputStatus(const absl::Status& status) { return status.ok() ? status : OptionError("--output", status); }

class ProbeVerb : public Verb {
 public:
  ProbeVerb()
      : Verb("probe", "measure the hosts of a cluster and the links between them",
             "coordinator probe --hostfile hosts --load-format dummy --shape qwen3-0.6b --type q8_0 -o profile.json") {}
  bool NeedsCluster() const override { return !options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddProbeOptions(app, &options_, "no layer is timed, and plans are computed from the hosts' rates");
    AddText(app, "-o,--output", &output_, "FILE",
            "write the profile to this file, for --profile of plan, sweep and simulate");
    AddVerbosityOptions(app, &verbosity_);
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    RETURN_IF_ERROR(ResolveModel(&options_, /*required=*/false));
    Model model;
    if (!options_.model.empty()) {
      ASSIGN_OR_RETURN(model, OpenDescription(options_.model, options_.q2_layout));
    }
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options_, context));
    if (options_.dry_run) return PrintLaunch(launch);
    // Found out before seconds are spent.
    if (!output_.empty()) RETURN_IF_ERROR(OutputStatus(CheckWholeFile(output_)));
    ASSIGN_OR_RETURN(const HostProfile profile,
                     MeasureProfile(std::move(launch), context.engine_descriptor, model, verbosity_.ShowProgress()));
    RETURN_IF_ERROR(WriteStdout(ProbeTables(profile)));
    return output_.empty() ? absl::OkStatus() : Write(profile);
  }

 private:
  absl::Status Write(const HostProfile& profile) const {
    RETURN_IF_ERROR(OutputStatus(WriteWholeFile(output_, HostProfileJson(profile))));
    return WriteStdout(absl::StrCat("\nwrote ", output_, "\n"));
  }

  ClusterOptions options_;
  Verbosity verbosity_;
  std::string output_;
};

}  // namespace

absl::StatusOr<HostProfile> MeasureProfile(LaunchOptions options, int engine_descriptor,
                                           const std::shared_ptr<const ModelDescription>& model, bool show_progress) {
  options.job.mutable_probe()->set_speeds(true);
  std::optional<ProbedModel> probed;
  if (model != nullptr) {
    ASSIGN_OR_RETURN(probed, DescribeProbedModel(*model, options.job));
  }
  const WantedIsa isa = WantedIsaOf(options.job);
  ASSIGN_OR_RETURN(const pb::ProbeReport report, RunProbeJob(std::move(options), engine_descriptor, show_progress));
  RETURN_IF_ERROR(CheckReport(report, model.get()));
  return ProfileOf(report, absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()), probed, isa);
}

std::unique_ptr<Verb> MakeProbeVerb() { return std::make_unique<ProbeVerb>(); }

}  // namespace stagecoach
