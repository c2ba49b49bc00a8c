// probe: what the hosts of a cluster and the links between them can do, as a profile that the planner reads.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/whole_file.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/probe_options.h"
#include "coordinator/cli/probe_profile.h"
#include "coordinator/cli/probe_tables.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {
namespace {

using Model = std::shared_ptr<const ModelDescription>;

absl::Status OfOutput(const absl::Status& status) {
  return status.ok() ? status : InputFileError(absl::StrCat("--output: ", status.message()));
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
    AddProbeOptions(app, &options_, "no layer is timed, and plans are computed from the hosts' rates");
    AddText(app, "-o,--output", &output_, "FILE",
            "write the profile to this file, for --profile of plan, sweep and simulate");
    AddVerbosityOptions(app, &verbosity_, /*with_progress=*/true);
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    ASSIGN_OR_RETURN(const Model model, OpenProbeModel(&options_));
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options_.cluster, context));
    if (options_.cluster.dry_run) {
      absl::StatusOr<std::string> line = DescribeLaunch(launch);
      if (!line.ok()) return WithExitCode(line.status(), ExitCode::kLaunch);
      return WriteStdout(*line + "\n");
    }
    // Found out before seconds are spent.
    if (!output_.empty()) RETURN_IF_ERROR(OfOutput(CheckWholeFile(output_)));
    ASSIGN_OR_RETURN(const HostProfile profile,
                     MeasureProfile(std::move(launch), context.engine_descriptor, model, verbosity_.ShowProgress()));
    RETURN_IF_ERROR(WriteStdout(ProbeTables(profile)));
    return output_.empty() ? absl::OkStatus() : Write(profile);
  }

 private:
  absl::Status Write(const HostProfile& profile) const {
    RETURN_IF_ERROR(OfOutput(WriteWholeFile(output_, HostProfileJson(profile))));
    return WriteStdout(absl::StrCat("\nwrote ", output_, "\n"));
  }

  ProbeOptions options_;
  Verbosity verbosity_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Verb> MakeProbeVerb() { return std::make_unique<ProbeVerb>(); }

}  // namespace stagecoach
