#ifndef STAGECOACH_COORDINATOR_CLI_CLUSTER_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_CLUSTER_OPTIONS_H_

// The options that say on what cluster, and how, a model runs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"
#include "common/model/hyper_parameters.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/session.h"

namespace CLI {
class App;
}

namespace stagecoach {

// As the user gave them; 0 and empty mean the default that the help names.
struct ClusterOptions {
  std::string model;
  std::string q2_layout = "auto";
  int64_t context = 0;
  int64_t threads = 0;
  int64_t stages = 0;
  std::vector<int64_t> layer_split;
  std::string plan;
  int64_t max_num_seqs = 8;
  int64_t max_num_batched_tokens = 512;
  int64_t prefill_chunk = 512;
  // Which in simulation gives most tokens, first tokens soonest and the shortest long gaps:
  // tests/bench/policy_bench.py, whose README has the table and what it costs. The one campaign of real programs
  // (tests/bench/results) cannot tell: policies differ there by no more than one request alone, which they treat alike.
  Policy policy = Policy::kThrottled;
  Chunking chunking = Chunking::kConstant;
  double slo_itl_s = 0;
  int64_t micro_batches = 0;
  int64_t decode_groups = 0;
  int64_t block_tokens = 32;
  bool prefix_caching = true;
  uint64_t kv_cache_bytes = 0;
  KvType kv_type = KvType::kF16;
  WireType wire_type = WireType::kF32;
  std::optional<InstructionSet> isa;  // absent: of each stage its best
  CpuBind cpu_bind = CpuBind::kAuto;
  WeightSource weights = WeightSource::kFile;
  std::string weights_cache;
  bool allow_damaged = false;
  double stage_timeout_s = 60;
  double startup_timeout_s = 60;
  double relaunch_timeout_s = 600;
  EmulatedLink emulated_link;  // one that delays nothing: none
  std::string step_log;
  std::string trace;
  std::string hostfile;
  std::string hosts;
  std::string hosts_option = "--host";  // its name, where that stands for something else
  LauncherKind launcher = LauncherKind::kAuto;
  std::string launcher_args;
  std::string rsh_agent;
  double host_timeout_s = 30;
  std::string stage_worker;
  int64_t stage_delay_us = 0;
  bool dry_run = false;
};

// What the policies are, in the order of kPolicies; for help texts.
inline constexpr char kPolicyHelp[] =
    "what a micro-batch takes: prompts alone while there are any; decode rows, then prompts; few prompt rows beside "
    "decode rows; as many as queue, free KV blocks and the gap of --slo-itl suggest; all prompts that fit, then "
    "decoding, in turns";

// The headings that cluster options stand under in the help.
inline constexpr char kClusterGroup[] = "Model and cluster";
inline constexpr char kBatchingGroup[] = "Batching and KV cache";

// -m/--model.
void AddModelOption(CLI::App* app, std::string* model);

// --q2-layout, for the few files whose layout of type id 42 cannot be found; `layout` holds the default, "auto".
void AddQ2LayoutOption(CLI::App* app, std::string* layout);

// Everything above. `context_help` describes -c/--ctx-size, whose default is what options->context holds.
void AddClusterOptions(CLI::App* app, ClusterOptions* options, const std::string& context_help);

// Those of them that many runs can share: all but the model, --q2-layout, -c, --pp,
// --layer-split, --plan, -t and --max-num-seqs.
void AddSharedClusterOptions(CLI::App* app, ClusterOptions* options);

// Those of them that say what micro-batches are made of, and --step-log; but for --policy.
void AddSchedulingOptions(CLI::App* app, ClusterOptions* options);

// Those of them that say where stages run, and with what: --pp, -t and what is about hosts, mpirun and CPUs.
void AddPlaceOptions(CLI::App* app, ClusterOptions* options);

// --emulate-link, which the first two have too.
void AddLinkOption(CLI::App* app, EmulatedLink* link);

// Those of AddPlaceOptions without --pp and -t.
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
