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
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/job/job_limits.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/job_flags.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/launch/host_file.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

constexpr NumberRange kStartupTimeoutS = {0.1, 86400};

void AddStages(CLI::App* app, ClusterOptions* o) {
  AddInteger(app, "--pp,--pipeline-parallel-size", &o->stages, JobLimits::kStages.range,
             "pipeline stages, each a process", "the slots of the hosts, else 1")
      ->group(kClusterGroup);
}

void AddThreads(CLI::App* app, ClusterOptions* o) {
  AddInteger(app, "-t,--threads", &o->threads, JobLimits::kThreads.range, "compute threads per stage",
             "allowed cores / stages of the host")
      ->group(kClusterGroup);
}

void AddShape(CLI::App* app, ClusterOptions* o, const std::string& context_help) {
  const char* group = kClusterGroup;
  AddInteger(app, "-c,--ctx-size", &o->context, JobLimits::kContext.range, context_help,
             o->context > 0 ? absl::StrCat(o->context) : "min(the model's context, what the pool holds)")
      ->group(group);
  AddStages(app, o);
  AddIntegerList(app, "--layer-split", &o->layer_split, {1, kMaxLayers},
                 "layers of each stage, such as 10,9,9 (otherwise split by cost)")
      ->group(group);
  AddText(app, "--plan", &o->plan, "FILE",
          "follow a saved plan (coordinator plan -o FILE): hosts, layers, threads, micro-batches and chunk")
      ->group(group);
  AddThreads(app, o);
}

void AddPlaces(CLI::App* app, ClusterOptions* o) {
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
  AddOptionalChoice(app, "--isa", &o->isa, kInstructionSets, "auto", "instruction set of the kernels on every stage")
      ->group(group);
  AddChoice(app, "--cpu-bind", &o->cpu_bind, kCpuBinds,
            "auto: the stages of a host compute on disjoint CPUs where there are enough; none: anywhere")
      ->group(group);
  AddChoice(app, "--weights", &o->weights, kWeightSources,
            "file: every host has the model at the same path; stream: only this one, which sends each stage its part")
      ->group(group);
  AddText(app, "--weights-cache", &o->weights_cache, "DIR",
          "where the stages' hosts keep what was streamed, so that the next job asks only for what is missing")
      ->group(group);
  AddFlag(app, "--allow-damaged", &o->allow_damaged,
          "load the model also where a tensor is all zeros, has a hole of zeros or numbers that are not finite")
      ->group(group);
  AddNumber(app, "--stage-timeout", &o->stage_timeout_s, JobLimits::kStageTimeoutS,
            "seconds without progress after which a stage is lost", "60")
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

void AddPolicy(CLI::App* app, ClusterOptions* o) {
  AddChoice(app, "--policy", &o->policy, kPolicies, absl::StrCat(kPolicyHelp, ". Answers are the same under all"))
      ->group(kBatchingGroup);
}

// But for --policy.
void AddScheduling(CLI::App* app, ClusterOptions* o) {
  const char* group = kBatchingGroup;
  AddInteger(app, "--max-num-batched-tokens", &o->max_num_batched_tokens, JobLimits::kMaxNumBatchedTokens.range,
             "token rows of a micro-batch", absl::StrCat(o->max_num_batched_tokens))
      ->group(group);
  AddInteger(app, "--prefill-chunk", &o->prefill_chunk, JobLimits::kPrefillChunk.range,
             "rows of one prompt in a micro-batch", absl::StrCat(o->prefill_chunk))
      ->group(group);
  AddChoice(app, "--chunking", &o->chunking, kChunkings,
            "chunks of --prefill-chunk rows, or fewer ever deeper in a prompt, so that each takes as long as its first")
      ->group(group);
  AddDuration(app, "--slo-itl", &o->slo_itl_s, JobLimits::kSloItlS,
              "with --policy throttled: wanted gap between two tokens of a sequence, such as 80ms, or 1h where prompts "
              "come first; otherwise 250ms or four decode steps, or what prompts need to come in at half of their best "
              "rate, whichever is longest")
      ->group(group);
  AddInteger(app, "--micro-batches", &o->micro_batches, JobLimits::kMicroBatches.range, "micro-batches in flight",
             "the number of stages")
      ->group(group);
  AddInteger(app, "--decode-groups", &o->decode_groups, JobLimits::kDecodeGroups.range,
             "groups that decoding sequences go round the pipeline in, at most --micro-batches where that is given",
             "found out from the stages' times, at most one more than stages")
      ->group(group);
  AddInteger(app, "--block-size", &o->block_tokens, JobLimits::kBlockTokens.range,
             absl::StrCat("tokens of a KV block, a multiple of ", JobLimits::kBlockTokensStep),
             absl::StrCat(o->block_tokens))
      ->group(group);
  app->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", o->prefix_caching,
                absl::StrCat("requests that begin alike share the K and V of their full blocks; answers are the same (",
                             o->prefix_caching ? "on" : "off: every prompt is computed", ")"))
      ->group(group);
  AddBytes(app, "--kv-cache-memory", &o->kv_cache_bytes, "KV cache per stage, such as 512M or 4G",
           "min(what --max-num-seqs x -c needs, half of what weights and buffers leave of the free memory)")
      ->group(group);
  AddChoice(app, "--kv-type", &o->kv_type, kKvTypes, "type of the stored keys and values")->group(group);
  AddChoice(app, "--wire-dtype", &o->wire_type, kWireTypes, "type of hidden states between stages")->group(group);
  AddLinkOption(app, &o->emulated_link);
  AddText(app, "--step-log", &o->step_log, "FILE", "write one JSON line per micro-batch")->group(group);
  AddText(app, "--trace", &o->trace, "FILE",
          "write a timeline of all ranks, for ui.perfetto.dev and `coordinator trace summary`")
      ->group(group);
  AddInteger(app, "--stage-delay-us", &o->stage_delay_us, {0, 10000000}, "", "0")->group("");  // for tests of timing
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

void FillJob(const ClusterOptions& o, pb::ConfigureJob* job) {
  job->set_model_path(IsDummyModelPath(o.model) ? o.model : Absolute(o.model));
  job->set_q2_layout(o.q2_layout);
  for (int64_t layers : o.layer_split) job->add_layer_split(layers);
  job->set_context(o.context);
  job->set_threads(static_cast<int32_t>(o.threads));
  job->set_max_num_seqs(static_cast<int32_t>(o.max_num_seqs));
  job->set_max_num_batched_tokens(static_cast<int32_t>(o.max_num_batched_tokens));
  job->set_prefill_chunk(static_cast<int32_t>(o.prefill_chunk));
  job->set_policy(ToProto(o.policy));
  job->set_chunking(ToProto(o.chunking));
  job->set_slo_itl_s(o.slo_itl_s);
  job->set_micro_batches(static_cast<int32_t>(o.micro_batches));
  job->set_decode_groups(static_cast<int32_t>(o.decode_groups));
  job->set_block_tokens(static_cast<int32_t>(o.block_tokens));
  job->set_prefix_caching(o.prefix_caching);
  job->set_kv_cache_bytes(o.kv_cache_bytes);
  job->set_kv_type(ToProto(o.kv_type));
  job->set_wire_type(ToProto(o.wire_type));
  if (o.isa.has_value()) job->set_isa(ToProto(*o.isa));
  job->set_cpu_bind(ToProto(o.cpu_bind));
  job->set_weights(ToProto(o.weights));
  job->set_allow_damaged(o.allow_damaged);
  if (!o.weights_cache.empty()) job->set_weights_cache(Absolute(o.weights_cache));
  if (o.emulated_link != EmulatedLink()) *job->mutable_emulated_link() = ToProto(o.emulated_link);
  job->set_stage_timeout_s(o.stage_timeout_s);
  job->set_stage_delay_us(static_cast<uint32_t>(o.stage_delay_us));
}

}  // namespace

void AddLinkOption(CLI::App* app, EmulatedLink* link) {
  app->add_option_function<std::string>(
         "--emulate-link",
         [link](const std::string& text) {
           absl::StatusOr<EmulatedLink> parsed = ParseEmulatedLink(text);
           if (!parsed.ok()) {
             const absl::string_view why = absl::StripPrefix(parsed.status().message(), "`emulated_link`: ");
             throw CLI::ValidationError("--emulate-link", std::string(why));
           }
           *link = *parsed;
         },
         "delay every hop as over such a link, latency=2ms,bandwidth=1Gbit: steps and results between all ranks, on "
         "top of the real hop; outputs say so")
      ->type_name("LINK")
      ->group(kClusterGroup);
}

void AddModelOption(CLI::App* app, std::string* model) {
  AddText(app, "-m,--model", model, "FILE", "the model, a GGUF file (any shard of a split one)")
      ->required()
      ->group(kClusterGroup);
}

void AddQ2LayoutOption(CLI::App* app, std::string* layout) {
  AddChoice(app, "--q2-layout", layout, {"auto", "g64", "g128", "g128-oxi"},
            "layout of tensors of type id 42: llama.cpp's, PrismML's or OxiBonsai's; auto finds it")
      ->group(kClusterGroup);
}

void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help) {
  AddModelOption(app, &options->model);
  AddQ2LayoutOption(app, &options->q2_layout);
  AddShape(app, options, context_help);
  AddPlaces(app, options);
  AddInteger(app, "--max-num-seqs", &options->max_num_seqs, JobLimits::kMaxNumSeqs.range, "sequences that run at once",
             absl::StrCat(options->max_num_seqs))
      ->group(kBatchingGroup);
  AddPolicy(app, options);
  AddScheduling(app, options);
}

void AddSharedClusterOptions(CLI::App* app, ClusterOptions* options) {
  AddPlaces(app, options);
  AddPolicy(app, options);
  AddScheduling(app, options);
}

void AddSchedulingOptions(CLI::App* app, ClusterOptions* options) { AddScheduling(app, options); }
void AddHostOptions(CLI::App* app, ClusterOptions* options) { AddPlaces(app, options); }

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

void AddPlaceOptions(CLI::App* app, ClusterOptions* options) {
  AddStages(app, options);
  AddThreads(app, options);
  AddPlaces(app, options);
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
  FillJob(o, &launch.job);
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
    absl::StatusOr<std::string> path = ExistingFile("--hostfile", o.hostfile);
    if (!path.ok()) return path.status();
    launch.hostfile = *path;
  }
  if (!o.stage_worker.empty()) {
    absl::StatusOr<std::string> path = ExistingFile("--stage-worker", o.stage_worker);
    if (!path.ok()) return path.status();
    launch.stage_worker_path = *path;
  }
  if (!o.step_log.empty() && !o.dry_run) {
    absl::StatusOr<std::string> path = WritableFile("--step-log", o.step_log);
    if (!path.ok()) return path.status();
    launch.job.set_step_log(*path);
  }
  if (!o.trace.empty() && !o.dry_run) {
    absl::StatusOr<std::string> path = WritableFile("--trace", o.trace);
    if (!path.ok()) return path.status();
    std::error_code error;
    if (!std::filesystem::is_regular_file(*path, error)) {  // when the run is over it is read and written anew
      return InputFileError(absl::StrCat("--trace: '", o.trace, "' is not a regular file"));
    }
    launch.job.set_trace(*path);
  }
  return launch;
}

}  // namespace stagecoach
