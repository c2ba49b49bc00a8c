#include "coordinator/cli/cluster_options.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/host_file.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

constexpr NumberRange kStartupTimeoutS = {0.1, 86400};

void AddLaunchOptions(CLI::App* app, ClusterOptions* o) {
  const char* group = kClusterGroup;
  AddText(
      app, "--hostfile", &o->hostfile, "FILE",
      "hosts and their slots, a line each: node1 slots=2 (1 unless given); stages take slots in order; 'spare' on a "
      "line keeps that host for the place of one that is lost, 'model=PATH' says where it has the model")
      ->group(group);
  AddText(app, o->hosts_option, &o->hosts, "LIST", "the same as a list, such as node1:2,node2:2")->group(group);
  AddChoice(app, "--launcher", &o->launcher, kLauncherKinds,
            "what starts the ranks; auto: srun inside a Slurm allocation where it offers PMIx, else mpirun")
      ->group(group);
  AddText(app, "--launcher-args,--mpirun-args", &o->launcher_args, "ARGS",
          "further arguments for mpirun or srun, split as a shell would")
      ->group(group);
  AddText(app, "--rsh-agent", &o->rsh_agent, "PROGRAM",
          "what mpirun logs in to other hosts by (otherwise Open MPI's setting, else ssh)")
      ->group(group);
  AddNumber(app, "--host-timeout", &o->host_timeout_s, {0.1, 3600},
            "seconds another host has to answer before a launch; one that takes longer is left out",
            absl::StrCat(o->host_timeout_s))
      ->group(group);
  AddText(app, "--stage-worker", &o->stage_worker, "PATH",
          "the stage program (otherwise beside this program, then in ../stage_worker/)")
      ->group(group);
  AddNumber(app, "--startup-timeout", &o->startup_timeout_s, kStartupTimeoutS, "seconds the launched job has to report",
            "60")
      ->group(group);
  AddNumber(app, "--relaunch-timeout", &o->relaunch_timeout_s, {0, 604800},
            "seconds without a token or loading progress after which a job that keeps being lost is given up",
            absl::StrCat(o->relaunch_timeout_s))
      ->group(group);
  app->add_flag("--dry-run", o->dry_run, "print the launch line and end")->group(group);
}

// As it is when it cannot be made absolute; opening it will tell.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

absl::Status CheckSplit(const ClusterOptions& o, const HyperParameters& model) {
  if (o.stages > model.layer_count()) {
    return UsageError(absl::StrCat("--pp: ", o.stages, " stages, but the model has ", model.layer_count(),
                                   " layers and each stage needs one; use --pp ", model.layer_count(), " or less"));
  }
  if (o.layer_split.empty()) return absl::OkStatus();
  const int64_t sum = std::accumulate(o.layer_split.begin(), o.layer_split.end(), int64_t{0});
  if (sum != model.layer_count()) {
    return UsageError(absl::StrCat("--layer-split: ", absl::StrJoin(o.layer_split, ","), " adds up to ", sum,
                                   ", the model has ", model.layer_count(), " layers"));
  }
  if (o.stages > 0 && static_cast<int64_t>(o.layer_split.size()) != o.stages) {
    return UsageError(
        absl::StrCat("--layer-split: has ", o.layer_split.size(), " parts, --pp asks for ", o.stages, " stages"));
  }
  return absl::OkStatus();
}

// Takes over what a saved plan fixes.
absl::Status FollowPlan(const HyperParameters& model, const RunContext& context, ClusterOptions* o,
                        pb::PlannedFor* planned) {
  const ClusterOptions defaults;
  if (o->stages != defaults.stages || !o->layer_split.empty() || o->threads != defaults.threads ||
      o->micro_batches != defaults.micro_batches || o->prefill_chunk != defaults.prefill_chunk) {
    return UsageError("--plan fixes --pp, --layer-split, -t, --micro-batches and --prefill-chunk; leave them out");
  }
  absl::StatusOr<SavedPlan> plan = ReadSavedPlan(o->plan);
  if (!plan.ok()) {
    return WithExitCode(absl::Status(plan.status().code(), absl::StrCat("--plan: ", plan.status().message())),
                        ExitCode::kInputFile);
  }
  if (plan->layers != model.layer_count()) {
    return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                            "--plan: '", o->plan, "' is for a model of ", plan->layers, " layers, this one has ",
                            model.layer_count(), "; make a new one with `coordinator plan`, or leave --plan out")),
                        ExitCode::kLaunch);
  }
  *planned = PlannedForOf(*plan);
  o->stages = static_cast<int64_t>(plan->stages.size());
  for (const SavedStage& stage : plan->stages) o->layer_split.push_back(stage.layers);
  o->threads = plan->threads;
  o->micro_batches = plan->micro_batches;
  o->prefill_chunk = plan->prefill_chunk;
  const bool hosts_given = context.joined || !o->hosts.empty() || !o->hostfile.empty();
  if (!hosts_given) o->hosts = HostListOf(*plan);
  return absl::OkStatus();
}

absl::StatusOr<std::string> WritableFile(const char* option, const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return InputFileError(absl::StrCat(option, ": cannot write '", path, "': ", std::strerror(errno)));
  }
  close(descriptor);
  return Absolute(path);
}

absl::StatusOr<std::string> ExistingFile(const char* option, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return Absolute(path);
  const bool there = std::filesystem::exists(path, error);
  return WithExitCode(absl::NotFoundError(there ? absl::StrCat(option, ": '", path, "' is no regular file")
                                                : absl::StrCat(option, ": there is no file '", path, "'")),
                      ExitCode::kLaunch);
}

}  // namespace

void AddModelOption(CLI::App* app, std::string* model) {
  AddText(app, "-m,--model", model, "FILE", "the model, a GGUF file (any shard of a split one)")
      ->required()
      ->group(kClusterGroup);
}

void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help) {
  AddModelOption(app, &options->model);
  AddJobSettings(app, options, AllSettingsBut({}));
  app->get_option("--ctx-size")->description(context_help);
  AddText(app, "--plan", &options->plan, "FILE",
          "follow a saved plan (coordinator plan -o FILE): hosts, layers, threads, micro-batches and chunk")
      ->group(kClusterGroup);
  AddLaunchOptions(app, options);
}

void AddSharedClusterOptions(CLI::App* app, ClusterOptions* options) {
  AddJobSettings(app, options,
                 AllSettingsBut({"q2_layout", "context", "stages", "layer_split", "threads", "max_num_seqs"}));
  AddLaunchOptions(app, options);
}

void AddHostOptions(CLI::App* app, ClusterOptions* options) {
  AddJobSettings(app, options,
                 Settings({"isa", "cpu_bind", "weights", "weights_cache", "allow_damaged", "stage_timeout_s"}));
  AddLaunchOptions(app, options);
}

void AddPlannedPlaceOptions(CLI::App* app, ClusterOptions* options, std::string* cluster, std::string* profile,
                            const std::string& group) {
  AddText(app, "--hostfile", &options->hostfile, "FILE",
          "hosts and their slots, a line each: node1 slots=2 (1 unless given); their speed is assumed")
      ->group(group);
  AddText(app, "--host", &options->hosts, "LIST", "the same as a list, such as node1:2,node2:2")->group(group);
  AddText(app, "--cluster", cluster, "FILE", ClusterFileHelp())->group(group);
  AddText(app, "--profile", profile, "FILE", "hosts and links as `coordinator probe -o FILE` measured them")
      ->group(group);
}

absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& given, const HyperParameters& model,
                                                const RunContext& context) {
  ClusterOptions o = given;
  pb::PlannedFor planned;
  if (!o.plan.empty()) RETURN_IF_ERROR(FollowPlan(model, context, &o, &planned));
  if (absl::Status status = CheckSplit(o, model); !status.ok()) return status;
  if (o.context > model.context) {
    return UsageError(absl::StrCat("-c: ", o.context, " tokens, but the model's context is ", model.context));
  }
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(o, context));
  if (!o.plan.empty()) *launch.job.mutable_planned_for() = planned;
  return launch;
}

absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& o, const RunContext& context) {
  if (context.joined && !(o.hostfile.empty() && o.hosts.empty() && o.launcher_args.empty() && o.rsh_agent.empty() &&
                          o.stage_worker.empty() && o.launcher == LauncherKind::kAuto)) {
    return UsageError(
        "--hostfile, --host, --launcher, --launcher-args, --rsh-agent and --stage-worker are for a job that the "
        "coordinator launches; here mpirun or srun has");
  }
  if (!o.hosts.empty()) {
    if (!o.hostfile.empty()) return UsageError("--hostfile and --host name the hosts twice; give one of them");
    if (absl::Status status = ParseHostList(o.hosts).status(); !status.ok()) return UsageError(status.message());
  }
  if (absl::Status status = CheckBlockTokens(o.block_tokens); !status.ok()) return UsageError(status.message());
  if (o.slo_itl_s > 0 && o.policy != Policy::kThrottled) {
    return UsageError("--slo-itl is what --policy throttled keeps to; give that, or leave --slo-itl out");
  }
  if (o.weights == WeightSource::kStream && IsDummyModelPath(o.model)) {
    return UsageError(absl::StrCat("--weights: stream sends a model's file, but ", o.model,
                                   " has none: every stage makes it itself; leave --weights out"));
  }
  if (o.weights == WeightSource::kFile && !o.weights_cache.empty()) {
    return UsageError("--weights-cache is for streamed weights; give --weights stream too");
  }
  LaunchOptions launch;
  JobSettings settings = o;
  if (!o.weights_cache.empty()) settings.weights_cache = Absolute(o.weights_cache);
  settings.step_log.clear();  // as a path that can be written, below
  settings.trace.clear();
  settings.stages = 0;  // the launch's; a world that is joined is asked for them when it is opened
  launch.job.set_model_path(IsDummyModelPath(o.model) ? o.model : Absolute(o.model));
  launch.stages = static_cast<int>(o.stages > 0 ? o.stages : static_cast<int64_t>(o.layer_split.size()));
  launch.launcher = o.launcher;
  launch.launcher_args = o.launcher_args;
  launch.rsh_agent = o.rsh_agent;
  launch.host_timeout = absl::Seconds(o.host_timeout_s);
  launch.hosts = o.hosts;
  launch.coordinator_path = context.program;
  launch.startup_timeout = absl::Seconds(o.startup_timeout_s);
  launch.relaunch_timeout = absl::Seconds(o.relaunch_timeout_s);
  launch.wording = WithFlags;
  if (!o.hostfile.empty()) {
    ASSIGN_OR_RETURN(launch.hostfile, ExistingFile("--hostfile", o.hostfile));
  }
  if (!o.stage_worker.empty()) {
    ASSIGN_OR_RETURN(launch.stage_worker_path, ExistingFile("--stage-worker", o.stage_worker));
  }
  if (!o.step_log.empty() && !o.dry_run) {
    ASSIGN_OR_RETURN(settings.step_log, WritableFile("--step-log", o.step_log));
  }
  if (!o.trace.empty() && !o.dry_run) {
    ASSIGN_OR_RETURN(settings.trace, WritableFile("--trace", o.trace));
    std::error_code error;
    if (!std::filesystem::is_regular_file(settings.trace, error)) {  // when the run is over it is read and written anew
      return InputFileError(absl::StrCat("--trace: '", o.trace, "' is not a regular file"));
    }
  }
  SetJobSettings(settings, &launch.job);
  return launch;
}

}  // namespace stagecoach
