#ifndef STAGECOACH_COORDINATOR_CLI_CLUSTER_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_CLUSTER_OPTIONS_H_

// The options that say on what cluster, and how, a model runs.

#include <string>

#include "absl/status/statusor.h"
#include "common/job/job_settings.h"
#include "common/model/hyper_parameters.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/session.h"

namespace CLI {
class App;
}

namespace stagecoach {

// As the user gave them; 0 and empty mean the default that the help names.
struct ClusterOptions : JobSettings {
  std::string model;
  std::string plan;
  double startup_timeout_s = 60;
  double relaunch_timeout_s = 600;
  std::string hostfile;
  std::string hosts;
  std::string hosts_option = "--host";  // its name, where that stands for something else
  LauncherKind launcher = LauncherKind::kAuto;
  std::string launcher_args;
  std::string rsh_agent;
  double host_timeout_s = 30;
  std::string stage_worker;
  bool dry_run = false;
};

// -m/--model.
void AddModelOption(CLI::App* app, std::string* model);

// Everything above. `context_help` describes -c/--ctx-size.
void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help);

// Those of them that many runs can share: all but the model, --q2-layout, -c, --pp,
// --layer-split, --plan, -t and --max-num-seqs.
void AddSharedClusterOptions(CLI::App* app, ClusterOptions* options);

// Those of them that say where stages run, and with what.
void AddHostOptions(CLI::App* app, ClusterOptions* options);

// The hosts of verbs that start nothing: --hostfile, --host, --cluster and --profile.
void AddPlannedPlaceOptions(CLI::App* app, ClusterOptions* options, std::string* cluster, std::string* profile,
                            const std::string& group);

// The options that fit no model of this shape (layers, context) or contradict each other are usage errors. Paths become
// absolute. The job's fingerprints stay empty. A saved plan (--plan) sets what it fixes: hosts, stages, layers of each,
// threads, micro-batches in flight and chunk; whether it fits the hosts, the engine finds out.
absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& options, const HyperParameters& model,
                                                const RunContext& context);
// The same for a job that may have no model: what depends on one is not checked.
absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& options, const RunContext& context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CLUSTER_OPTIONS_H_
