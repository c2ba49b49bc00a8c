#include "coordinator/cli/options/cluster_options.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "CLI/App.hpp"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/front/model_file.h"
#include "coordinator/job/draft_setup.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/plan/host_profile.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

constexpr char kModelHelp[] = "the model, a GGUF file (any shard of a split one)";
constexpr char kHostsHelp[] = "the same as a list, such as node1:2,node2:2";

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

absl::StatusOr<std::string> WritableFile(const char* option, const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return InputFileError(absl::StrCat(option, ": cannot write '", path, "': ", std::strerror(errno)));
  }
  close(descriptor);
  return AbsolutePath(path);
}

absl::StatusOr<std::string> ExistingFile(const char* option, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return AbsolutePath(path);
  const bool there = std::filesystem::exists(path, error);
  return WithExitCode(absl::NotFoundError(there ? absl::StrCat(option, ": '", path, "' is no regular file")
                                                : absl::StrCat(option, ": there is no file '", path, "'")),
                      ExitCode::kLaunch);
}

constexpr absl::string_view kNoModel = "--model is required, or --load-format dummy with --shape and --type";

std::vector<std::string> LowerNames(const std::vector<std::string>& values) {
  std::vector<std::string> names;
  for (const std::string& value : values) {
    for (absl::string_view name : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      names.push_back(absl::AsciiStrToLower(name));
    }
  }
  return names;
}

// A job without its draft gives the same answers, so one that cannot be read is done without.
bool DraftIsThere(const ClusterOptions& o) {
  if (o.draft_model.empty()) return false;
  const absl::Status opened = OpenDescription(o.draft_model, o.q2_layout).status();
  if (!opened.ok()) LogError(absl::StrCat("--draft-model: ", opened.message(), "; the job goes on without the draft"));
  return opened.ok();
}

}  // namespace

std::string PlaceSources::Name() const {
  if (!profile.empty()) return absl::StrCat("profile ", profile);
  return cluster.empty() ? "assumed" : absl::StrCat("cluster ", cluster);
}

void AddModelFileOptions(CLI::App* app, ClusterOptions* options) {
  const HelpGroup group(app, kClusterGroup);
  AddRequiredText(app, "-m,--model", &options->model, "FILE", kModelHelp);
  AddJobSettings(app, options, Settings({"q2_layout"}));
}

void AddDummyOptions(CLI::App* app, DummyOptions* options, bool several) {
  AddChoice(app, "--load-format", &options->load_format, {"gguf", "dummy"},
            "dummy: random weights of --shape and --type in place of -m");
  const auto add = [&](const char* name, std::vector<std::string>* out, const std::string& description) {
    CLI::Option* option = AddTexts(app, name, out, several ? "NAME,..." : "NAME", description);
    if (!several) option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  };
  add("--shape", &options->shapes, absl::StrCat("with dummy: ", DummyModelShapes()));
  add("--type", &options->types, absl::StrCat("with dummy: ", DummyModelTypes()));
  AddInteger(app, "--layers", &options->layers, {1, kMostDummyLayers}, "with dummy: of the shape, its first ones",
             "all");
}

void AddModelOptions(CLI::App* app, ClusterOptions* options, const std::string& more_help) {
  AddText(app, "-m,--model", &options->model, "FILE", absl::StrCat(kModelHelp, more_help));
  AddDummyOptions(app, &options->dummy, /*several=*/false);
}

void AddLaunchOptions(CLI::App* app, ClusterOptions* o) {
  const HelpGroup group(app, kClusterGroup);
  AddText(
      app, "--hostfile", &o->hostfile, "FILE",
      "hosts and their slots, a line each: node1 slots=2 (1 unless given); stages take slots in order; 'spare' on a "
      "line keeps that host for the place of one that is lost, 'draft' for --draft-model alone, 'model=PATH' says "
      "where it has the model");
  AddText(app, o->hosts_option, &o->hosts, "LIST", kHostsHelp);
  AddChoice(app, "--launcher", &o->launcher, kLauncherKinds,
            "what starts the ranks; auto: srun inside a Slurm allocation where it offers PMIx, else mpirun");
  AddText(app, "--launcher-args,--mpirun-args", &o->launcher_args, "ARGS",
          "further arguments for mpirun or srun, split as a shell would");
  AddText(app, "--rsh-agent", &o->rsh_agent, "PROGRAM",
          "what mpirun logs in to other hosts by (otherwise Open MPI's setting, else ssh)");
  AddNumber(app, "--host-timeout", &o->host_timeout_s, {0.1, 3600},
            "seconds another host has to answer before a launch; one that takes longer is left out");
  AddText(app, "--stage-worker", &o->stage_worker, "PATH",
          "the stage program (otherwise beside this program, then in ../stage_worker/)");
  AddNumber(app, "--startup-timeout", &o->startup_timeout_s, {0.1, 86400}, "seconds the launched job has to report");
  AddNumber(app, "--relaunch-timeout", &o->relaunch_timeout_s, {0, 604800},
            "seconds without a token or loading progress after which a job that keeps being lost is given up");
  AddFlag(app, "--dry-run", &o->dry_run, "print the launch line and end");
}

void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help) {
  AddModelFileOptions(app, options);
  AddJobSettings(app, options, AllSettingsBut({"q2_layout"}));
  app->get_option("--ctx-size")->description(context_help);
  const HelpGroup group(app, kClusterGroup);
  AddText(app, "--plan", &options->plan, "FILE",
          "follow a saved plan (coordinator plan -o FILE): hosts, layers, threads, micro-batches and chunk");
  AddText(
      app, "--draft-model", &options->draft_model, "FILE",
      "a smaller model of the same tokens that guesses (--speculate auto or draft), in a process of its own: on the "
      "host file's line with `draft`, else on this host; in a world that mpirun or srun started, its last rank");
  AddLaunchOptions(app, options);
}

void RefuseDraftOption(CLI::App* app, const char* why) {
  AddParsed(app, "--draft-model", "", "FILE", "", [why](const std::string&) {
    return absl::InvalidArgumentError(why);
  })->group("");  // the help does not have it
}

void AddHostOptions(CLI::App* app, ClusterOptions* options) {
  AddJobSettings(app, options,
                 Settings({"isa", "cpu_bind", "weights", "weights_cache", "allow_damaged", "stage_timeout_s"}));
  AddLaunchOptions(app, options);
}

void AddProbeOptions(CLI::App* app, ClusterOptions* options, const std::string& without) {
  {
    const HelpGroup group(app, kClusterGroup);
    AddModelOptions(app, options, absl::StrCat("; without one ", without));
  }
  AddJobSettings(app, options, Settings({"q2_layout", "kv_type", "stages", "threads"}));
  AddHostOptions(app, options);
}

void AddPlannedPlaceOptions(CLI::App* app, ClusterOptions* options, PlaceSources* sources) {
  AddText(app, "--hostfile", &options->hostfile, "FILE",
          "hosts and their slots, a line each: node1 slots=2 (1 unless given); their speed is assumed");
  AddText(app, "--host", &options->hosts, "LIST", kHostsHelp);
  AddText(app, "--cluster", &sources->cluster, "FILE",
          absl::StrCat("hosts and links in your own words, as JSON like ", kClusterFileExample,
                       "; of a host also slots, available_gib, bf16_gops, f32_gops, isas "
                       "(deploy/hostfiles/cluster.json is one)"));
  AddText(app, "--profile", &sources->profile, "FILE", "hosts and links as `coordinator probe -o FILE` measured them");
}

void AddTurnOptions(CLI::App* app, double* coordinator_us, double* wake_us) {
  AddNumber(app, "--coordinator-us", coordinator_us, {0, 1e7},
            "microseconds that the coordinator takes for a micro-batch, from a result to the next one's sending");
  AddNumber(app, "--wake-us", wake_us, {0, 1e7},
            "microseconds from a frame's arrival, at a stage or the coordinator, until whoever waits for it has it");
}

absl::StatusOr<std::vector<std::string>> ModelsOf(const std::vector<std::string>& files, const DummyOptions& options,
                                                  bool required) {
  if (options.load_format == "gguf") {
    if (!options.shapes.empty() || !options.types.empty()) {
      return UsageError("--shape and --type need --load-format dummy");
    }
    if (options.layers.has_value()) return UsageError("--layers needs --load-format dummy");
    if (files.empty() && required) return UsageError(kNoModel);
    return files;
  }
  if (!files.empty()) return UsageError("--load-format dummy takes --shape and --type instead of --model");
  const std::vector<std::string> shapes = LowerNames(options.shapes), types = LowerNames(options.types);
  if (shapes.empty())
    return UsageError(absl::StrCat("--shape is required with --load-format dummy: ", DummyModelShapes()));
  if (types.empty())
    return UsageError(absl::StrCat("--type is required with --load-format dummy: ", DummyModelTypes()));
  std::vector<std::string> models;
  for (const std::string& shape : shapes) {
    if (options.layers.has_value() && absl::StrContains(shape, ":layers=")) {
      return UsageError(
          absl::StrCat("--layers: --shape ", shape, " says how many layers already; give one of the two"));
    }
    const std::string cut = options.layers.has_value() ? DummyModelCutTo(shape, *options.layers) : shape;
    for (const std::string& type : types) models.push_back(DummyModelPath(cut, type));
  }
  return models;
}

absl::Status ResolveModel(ClusterOptions* options, bool required) {
  std::vector<std::string> files;
  if (!options->model.empty()) files.push_back(options->model);
  ASSIGN_OR_RETURN(const std::vector<std::string> models, ModelsOf(files, options->dummy, required));
  if (models.size() > 1) return UsageError("--shape and --type: give one of each");
  if (!models.empty()) options->model = models.front();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenDescription(const std::string& path,
                                                                        const std::string& q2_layout) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, OpenGguf(path, q2_layout));
  absl::StatusOr<std::shared_ptr<const ModelDescription>> model = DescribeModel(std::move(file));
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kInputFile);
  return model;
}

std::vector<std::string> DummyWords(const DummyOptions& options) {
  if (options.load_format == "gguf") return {};
  std::vector<std::string> words = {"--load-format", "dummy",
                                    "--shape",       absl::StrJoin(options.shapes, ","),
                                    "--type",        absl::StrJoin(options.types, ",")};
  if (options.layers.has_value()) {
    words.push_back("--layers");
    words.push_back(absl::StrCat(*options.layers));
  }
  return words;
}

absl::Status CheckDraft(const ModelDescription& model, const ModelDescription& draft) {
  const absl::Status status = CheckSameTokens(model, draft);
  return status.ok() ? status
                     : WithExitCode(absl::Status(status.code(), WithFlags(status.message())), ExitCode::kInputFile);
}

absl::Status FollowPlan(const HyperParameters& model, const RunContext& context, ClusterOptions* o,
                        pb::PlannedFor* planned) {
  const ClusterOptions defaults;
  if (o->stages != defaults.stages || !o->layer_split.empty() || o->threads != defaults.threads ||
      o->micro_batches != defaults.micro_batches || o->prefill_chunk != defaults.prefill_chunk) {
    return UsageError("--plan fixes --pp, --layer-split, -t, --micro-batches and --prefill-chunk; leave them out");
  }
  absl::StatusOr<SavedPlan> plan = ReadSavedPlan(o->plan);
  if (!plan.ok()) return OptionError("--plan", plan.status());
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

absl::StatusOr<LaunchOptions> MakeLaunchOptions(const ClusterOptions& given, const ModelDescription& model,
                                                const RunContext& context) {
  ClusterOptions o = given;
  pb::PlannedFor planned;
  if (!o.plan.empty()) RETURN_IF_ERROR(FollowPlan(model.hyper, context, &o, &planned));
  if (absl::Status status = CheckSplit(o, model.hyper); !status.ok()) return status;
  if (o.context > model.hyper.context) {
    return UsageError(absl::StrCat("-c: ", o.context, " tokens, but the model's context is ", model.hyper.context));
  }
  ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(o, context));
  if (!launch.job.draft_model_path().empty()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> draft, OpenDescription(o.draft_model, o.q2_layout));
    RETURN_IF_ERROR(CheckDraft(model, *draft));
  }
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
  const bool draws = o.speculate == Speculate::kAuto || o.speculate == Speculate::kDraft;
  if (!o.draft_model.empty() && !draws) {
    return UsageError(absl::StrCat("--draft-model guesses only with --speculate auto or draft, but that is ",
                                   NameOf(kSpeculations, o.speculate), "; give one of them"));
  }
  if (o.draft_model.empty() && o.speculate == Speculate::kDraft) {
    return UsageError("--speculate draft guesses by --draft-model; give that too");
  }
  LaunchOptions launch;
  JobSettings settings = o;
  if (!o.weights_cache.empty()) settings.weights_cache = AbsolutePath(o.weights_cache);
  settings.step_log.clear();  // as a path that can be written, below
  settings.trace.clear();
  settings.stages = 0;  // the launch's; a world that is joined is asked for them when it is opened
  launch.job.set_model_path(IsDummyModelPath(o.model) ? o.model : AbsolutePath(o.model));
  if (DraftIsThere(o)) {
    launch.job.set_draft_model_path(IsDummyModelPath(o.draft_model) ? o.draft_model : AbsolutePath(o.draft_model));
  }
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

absl::Status PrintLaunch(const LaunchOptions& launch) {
  const absl::StatusOr<std::string> line = DescribeLaunch(launch);
  return line.ok() ? WriteStdout(*line + "\n") : WithExitCode(line.status(), ExitCode::kLaunch);
}

}  // namespace stagecoach
