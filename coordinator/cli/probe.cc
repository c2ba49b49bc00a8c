// probe: what the hosts of a cluster and the links between them can do, as a profile that the planner reads.

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/probe_options.h"
#include "coordinator/cli/probe_tables.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/probe_run.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/probe_plan.h"

namespace stagecoach {
namespace {

using Model = std::shared_ptr<const ModelDescription>;

absl::Status CannotWrite(const std::string& path) {
  return InputFileError(absl::StrCat("--output: cannot write '", path, "': ", std::strerror(errno)));
}

ProbedModel DescribeProbedModel(const ModelDescription& model, KvType kv_type) {
  const ModelCosts costs = CostsOf(model);
  ProbedModel probed;
  probed.name = model.file->path();
  for (const FileFingerprint& shard : model.file->fingerprints()) probed.file_bytes += shard.size_bytes;
  probed.header_hash = model.file->fingerprints().front().header_hash;
  probed.layer_bytes = static_cast<uint64_t>(costs.layer_bytes.front());
  probed.head_bytes = static_cast<uint64_t>(costs.head_bytes);
  probed.kv_type = KvTypeName(kv_type);
  return probed;
}

// What the report says is wrong; a profile with holes would make a plan that is.
absl::Status CheckReport(const pb::ProbeReport& report, const Model& model) {
  for (const pb::ProbeLink& link : report.links()) {
    if (!link.error().empty()) return WithExitCode(absl::UnavailableError(link.error()), ExitCode::kLaunch);
  }
  for (const pb::ProbedStage& stage : report.stages()) {
    const std::string name = absl::StrCat("stage ", stage.stage(), " on ", report.hellos(stage.stage() + 1).host());
    if (stage.model_code() != 0) return InputFileError(absl::StrCat(name, ": ", stage.model_error()));
    if (model != nullptr && FromProto(stage.model().fingerprints()) != model->file->fingerprints()) {
      return InputFileError(absl::StrCat(name, ": '", model->file->path(),
                                         "' is another file than here; put the same file at this path on every host"));
    }
  }
  return absl::OkStatus();
}

class ProbeVerb : public Verb {
 public:
  const char* name() const override { return "probe"; }
  const char* summary() const override { return "measure the hosts of a cluster and the links between them"; }
  const char* example() const override {
    return "coordinator probe --hostfile hosts --load-format dummy --shape qwen3-0.6b --type q8_0 -o profile.json";
  }
  bool NeedsCluster() const override { return !options_.cluster.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddProbeOptions(app, &options_);
    AddText(app, "-o,--output", &output_, "FILE", "write the profile to this file");
    AddVerbosityOptions(app, &verbosity_, /*with_progress=*/true);
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(const Model model, OpenProbeModel(&options_));
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options_.cluster, context));
    launch.job.mutable_probe()->set_speeds(true);
    if (options_.cluster.dry_run) {
      absl::StatusOr<std::string> line = DescribeLaunch(launch);
      if (!line.ok()) return WithExitCode(line.status(), ExitCode::kLaunch);
      return WriteStdout(*line + "\n");
    }
    // Found out before seconds are spent, and without losing what an earlier probe wrote.
    if (!output_.empty() && !std::ofstream(output_, std::ios::app)) return CannotWrite(output_);
    ASSIGN_OR_RETURN(const pb::ProbeReport report,
                     RunProbeJob(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress()));
    RETURN_IF_ERROR(CheckReport(report, model));
    std::optional<ProbedModel> probed;
    if (model != nullptr) probed = DescribeProbedModel(*model, options_.cluster.kv_type);
    const HostProfile profile =
        ProfileOf(report, absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()), probed);
    RETURN_IF_ERROR(WriteStdout(ProbeTables(profile)));
    return output_.empty() ? absl::OkStatus() : Write(profile);
  }

 private:
  absl::Status Write(const HostProfile& profile) const {
    std::ofstream out(output_, std::ios::trunc);
    out << HostProfileJson(profile) << std::flush;
    if (!out) return CannotWrite(output_);
    return WriteStdout(absl::StrCat("\nwrote ", output_, "\n"));
  }

  ProbeOptions options_;
  Verbosity verbosity_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Verb> MakeProbeVerb() { return std::make_unique<ProbeVerb>(); }

}  // namespace stagecoach
