#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_CLUSTER_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_CLUSTER_OPTIONS_H_

// The options that say which model runs, on what cluster, and how.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_settings.h"
#include "common/model/model_description.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/cli/verb.h"
#include "coordinator/session/session.h"

namespace stagecoach {

// --load-format dummy with --shape, --type and --layers: a model without weights (common/gguf/dummy_model.h) instead of
// a file.
struct DummyOptions {
  std::string load_format = "gguf";
  std::vector<std::string> shapes, types;  // as given, with commas
  std::optional<int64_t> layers;           // the first ones of every shape; absent: all
};

// As the user gave them; 0 and empty mean the default that the help names.
struct ClusterOptions : JobSettings {
  std::string model;
  std::string draft_model;
  DummyOptions dummy;
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

// Files that describe hosts and links (--cluster, --profile): at most one of them.
struct PlaceSources {
  std::string cluster, profile;

  bool given() const { return !cluster.empty() || !profile.empty(); }
  std::string Name() const;  // "profile FILE", "cluster FILE", "assumed"
};

// -m, required, and --q2-layout.
void AddModelFileOptions(CLI::App* app, ClusterOptions* options);
// -m, with more help, or --load-format dummy and its options.
void AddModelOptions(CLI::App* app, ClusterOptions* options, const std::string& more_help = "");
// `several`: of shapes and types; else one of each.
void AddDummyOptions(CLI::App* app, DummyOptions* options, bool several);
// The options of a verb that runs a model file. `context_help` describes -c/--ctx-size.
void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help);
// --draft-model of a verb whose jobs have no draft: it is refused with what to do instead.
void RefuseDraftOption(CLI::App* app, const char* why);
// Hosts, and what starts the ranks there.
void AddLaunchOptions(CLI::App* app, ClusterOptions* options);
// The same, and the settings that say where stages run and with what.
void AddHostOptions(CLI::App* app, ClusterOptions* options);
// The options of a verb that examines a cluster. `without`: what it does without a model.
void AddProbeOptions(CLI::App* app, ClusterOptions* options, const std::string& without);
// The hosts of verbs that start nothing: --hostfile, --host, --cluster and --profile.
void AddPlannedPlaceOptions(CLI::App* app, ClusterOptions* options, PlaceSources* sources);

// What plans reckon with beside the stages' times: --coordinator-us and --wake-us.
void AddTurnOptions(CLI::App* app, double* coordinator_us, double* wake_us);

// The models to use: `files`, or every shape with every type. Usage errors: both kinds; a shape or a type alone; if
// `required`, none at all.
absl::StatusOr<std::vector<std::string>> ModelsOf(const std::vector<std::string>& files, const DummyOptions& options,
                                                  bool required);
// Sets options->model to the one that the options name; it stays empty if there is none.
absl::Status ResolveModel(ClusterOptions* options, bool required);
// The same options as command-line words; none without a shape.
std::vector<std::string> DummyWords(const DummyOptions& options);
// Reads all of a model but its weights. Failures carry their exit code.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenDescription(const std::string& path,
                                                                        const std::string& q2_layout);

// Refuses a draft whose tokens are not the model's, with the first that differs (ExitCode::kInputFile).
absl::Status CheckDraft(const ModelDescription& model, const ModelDescription& draft);

// Takes over what the saved plan of options->plan fixes: all that `coordinator plan` chose, and its hosts where the
// options name none. Usage errors: an option that the plan fixes. ExitCode::kLaunch: it is for another model.
absl::Status FollowPlan(const HyperParameters& model, const RunContext& context, ClusterOptions* options,
                        pb::PlannedFor* planned);

// The launch that the options describe; its paths are absolute, and its job's fingerprints empty. Usage errors: options
// that contradict each other, or do not fit the model's layers and context. A saved plan (--plan) sets hosts, stages,
// the layers of each, threads, micro-batches in flight and chunk; the engine checks whether it still fits the hosts.
// A draft that cannot be read is left out and logged; errors of one that can: CheckDraft.
absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& options, const ModelDescription& model,
                                                const RunContext& context);
// The same for a job that may have no model: nothing is checked against one.
absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& options, const RunContext& context);

// Prints the launch line (--dry-run).
absl::Status PrintLaunch(const LaunchOptions& launch);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_CLUSTER_OPTIONS_H_
