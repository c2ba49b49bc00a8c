#include "coordinator/plan/job_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/model/footprint.h"
#include "common/step/sampling.h"
#include "common/step/step.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/saved_plan.h"
#include "coordinator/plan/stage_memory.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMostGivenBytes = uint64_t{1} << 50;  // more than any host has; sums of it fit

// Runs of neighbours on one host, each with its share of the least that any stage sees of the host's memory.
std::vector<HostMemory> HostsOf(const std::vector<pb::Hello>& hellos) {
  struct Host {
    uint64_t available = std::numeric_limits<uint64_t>::max();
    uint64_t stages = 0;
  };
  std::map<std::string, Host> hosts;
  for (const pb::Hello& hello : hellos) {
    Host& host = hosts[hello.host()];
    host.available = std::min<uint64_t>(host.available, hello.available_memory_bytes());
    ++host.stages;
  }
  std::vector<HostMemory> runs;
  for (int i = 0; i < static_cast<int>(hellos.size()); ++i) {
    if (runs.empty() || runs.back().host != hellos[i].host()) runs.push_back({hellos[i].host(), i, i, 0});
    ++runs.back().last_stage;
  }
  for (HostMemory& run : runs) {
    const Host& host = hosts[run.host];
    const auto stages = static_cast<uint64_t>(run.last_stage - run.first_stage);
    run.available_bytes =
        stages == host.stages ? host.available : host.available / host.stages * stages;  // in this order: no overflow
  }
  return runs;
}

pb::StageAssignment WithLayers(pb::StageAssignment stage, int64_t begin, int64_t end) {
  stage.set_first_layer(begin);
  stage.set_last_layer(end);
  return stage;
}

absl::StatusOr<PartitionMemory> MemoryOf(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                         const ModelDescription& model,
                                         const std::vector<pb::StageAssignment>& stages) {
  const int64_t layers = model.hyper.layer_count();
  const PoolSizes pools(job, model.hyper, stages.front().most_guesses());
  PartitionMemory memory;
  memory.hosts = HostsOf(hellos);
  for (int64_t layer = 0; layer < layers; ++layer) {
    ASSIGN_OR_RETURN(const PoolUnits units, PoolUnitsOf(model, WithLayers(stages.front(), layer, layer + 1)));
    memory.layer_bytes.push_back(StageWeightMemory(model, layer, layer + 1, false, false) +
                                 (job.kv_cache_bytes() > 0 ? 0 : LeastPoolBytes(job, pools, units)));
  }
  // Tensors that every stage has are in each of these.
  const uint64_t layer = StageWeightMemory(model, 0, 1, false, false);
  const uint64_t with_embedding = StageWeightMemory(model, 0, 1, true, false);
  const uint64_t with_head = StageWeightMemory(model, 0, 1, false, true);
  memory.embedding_bytes = with_embedding - layer;
  memory.head_bytes = with_head - layer;
  memory.tied_bytes = with_embedding + with_head - layer - StageWeightMemory(model, 0, 1, true, true);
  const int64_t typical = (layers + static_cast<int64_t>(stages.size()) - 1) / static_cast<int64_t>(stages.size());
  std::map<std::tuple<uint64_t, int32_t, bool, bool>, uint64_t> known;  // stages that need the same
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto [same, is_new] = known.try_emplace(
        {hellos[i].available_memory_bytes(), stages[i].threads(), stages[i].owns_embedding(), stages[i].owns_head()});
    if (!is_new) {
      memory.stage_bytes.push_back(same->second);
      continue;
    }
    ASSIGN_OR_RETURN(const PoolUnits units, PoolUnitsOf(model, WithLayers(stages[i], 0, typical)));
    const uint64_t blocks = std::min(MostBlocks(job, stages[i].context()),
                                     std::max<uint64_t>(1, pools.Fitting(hellos[i].available_memory_bytes(), units)));
    ASSIGN_OR_RETURN(const StageMemory all,
                     StageMemoryOf(model, WithLayers(stages[i], 0, layers), pools.Blocks(blocks), pools.Slots(blocks)));
    same->second = all.buffers() + std::min<uint64_t>(job.kv_cache_bytes(), kMostGivenBytes);
    memory.stage_bytes.push_back(same->second);
  }
  return memory;
}

struct LayerSplit {
  std::vector<LayerRange> layers;  // [stages]
  absl::Status lack;               // why no split fits, as far as can be told before the pools are sized: then the
                                   // layers are split as if there were memory enough
};

// As the job says, else by cost (`costs`; nullptr: the bytes that a decode step of one group for every stage reads)
// within the memory of the hosts. `stages` are complete but for layers and pools, each for one of `hellos`. What a host
// must have room for: weights, buffers, and the LeastPoolBytes of KV cache; buffers are counted for
// the widest layers of the model. Where a host's stages are not neighbours, each run of them has its share of the
// memory by number of stages. kInvalidArgument: a split that is none.
absl::StatusOr<LayerSplit> SplitLayers(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                       const ModelDescription& model, const std::vector<pb::StageAssignment>& stages,
                                       const PartitionInput* costs) {
  LayerSplit split;
  if (job.layer_split_size() > 0) {
    ASSIGN_OR_RETURN(split.layers, ParseLayerSplit(absl::StrJoin(job.layer_split(), ","), model.hyper.layer_count(),
                                                   static_cast<int>(stages.size())));
    return split;
  }
  PartitionInput input;
  if (costs != nullptr) {
    input = *costs;
  } else {
    // Whatever K and V are stored as: only weights count here.
    ASSIGN_OR_RETURN(const ModelParts parts, PartsOf(model, KvType::kF32, /*bf16_dot=*/false));
    const double rows = std::max(1.0, static_cast<double>(job.max_num_seqs()) / static_cast<double>(stages.size()));
    PartCosts& all = input.costs.emplace_back();
    for (const PartWork& layer : parts.layers) all.layers.push_back(layer.BytesTouched(rows));
    all.head = parts.head.BytesTouched(rows);
  }
  input.stages = static_cast<int>(stages.size());
  input.memory = {};
  absl::StatusOr<PartitionMemory> memory = MemoryOf(job, hellos, model, stages);
  const absl::Status counted = memory.status();
  absl::Status lack;
  if (counted.ok()) {
    input.memory = *std::move(memory);
    absl::StatusOr<std::vector<LayerRange>> within = PartitionLayers(input);
    if (within.ok()) {
      split.layers = *std::move(within);
      return split;
    }
    lack = within.status();
  }
  // Without memory: what is wrong with the rest is then not hidden behind it.
  const size_t hosts = input.memory.hosts.size();
  input.memory = {};
  ASSIGN_OR_RETURN(split.layers, PartitionLayers(input));
  RETURN_IF_ERROR(counted);
  // Of one host the sizing of the pools says it better: it knows the fields.
  if (hosts > 1 && job.kv_cache_bytes() == 0) {
    split.lack = lack;
    if (const int64_t state = StateBytes(model.hyper, 0, model.hyper.layer_count()); state > 0) {
      split.lack = absl::ResourceExhaustedError(absl::StrCat(lack.message(), ", or lower `max_num_seqs`: each of ",
                                                             job.max_num_seqs(), " sequences has a recurrent state of ",
                                                             state, " bytes, over all layers"));
    }
  }
  return split;
}

constexpr int64_t kMinOpenTokens = 16384;

absl::Status CheckTogether(const JobSettings& settings, const ModelDescription& model) {
  if (settings.slo_itl_s > 0 && settings.policy != Policy::kThrottled) {
    return absl::InvalidArgumentError(absl::StrCat("`slo_itl_s` is what the throttled `policy` keeps to, but that is ",
                                                   PolicyName(settings.policy),
                                                   "; give throttled, or leave `slo_itl_s` out"));
  }
  if (settings.context > model.hyper.context) {
    return absl::InvalidArgumentError(absl::StrCat("`context` is ", settings.context,
                                                   ", but the model was trained for ", model.hyper.context,
                                                   " tokens; give at most that"));
  }
  if (settings.weights == WeightSource::kStream && !model.file->has_files()) {
    return absl::InvalidArgumentError(absl::StrCat("`weights` is stream, but '", model.file->path(),
                                                   "' has no file to send: every stage makes it itself; leave "
                                                   "`weights` out"));
  }
  if (settings.weights == WeightSource::kFile && !settings.weights_cache.empty()) {
    return absl::InvalidArgumentError("`weights_cache` is for streamed weights; give `weights` stream too");
  }
  return absl::OkStatus();
}

void SetContext(int64_t context, JobPlan* plan) {
  plan->context = context;
  plan->max_open_tokens = std::max(context, kMinOpenTokens);
  for (pb::StageAssignment& stage : plan->stages) {
    stage.set_context(context);
    stage.set_max_open_tokens(plan->max_open_tokens);
  }
}

// Sizes the pools of the stages, whose assignments are complete but for them, with the largest context; sets both.
absl::Status SizePool(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos, const ModelDescription& model,
                      JobPlan* plan) {
  const int64_t wanted_context = plan->context;
  ASSIGN_OR_RETURN(const int32_t blocks, PlanBlocks(job, hellos, model, plan->stages, wanted_context));
  const PoolSizes pools(job, model.hyper, plan->most_guesses);
  plan->group_blocks = pools.Blocks(static_cast<uint64_t>(blocks));
  plan->state_slots = pools.Slots(static_cast<uint64_t>(blocks));
  plan->state_blocks = pools.state_blocks();
  const int64_t pool_tokens = int64_t{blocks} * job.block_tokens();
  if (pool_tokens < job.min_kv_tokens()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache has room for ", pool_tokens, " tokens (", blocks, " blocks of ", job.block_tokens(),
                     "), what an earlier job accepted needs ", job.min_kv_tokens(),
                     "; end other programs on the stages' hosts, or give `kv_cache_bytes`"));
  }
  if (job.context() == 0) SetContext(std::min(wanted_context, pool_tokens), plan);
  for (pb::StageAssignment& stage : plan->stages) {
    stage.mutable_group_blocks()->Add(plan->group_blocks.begin(), plan->group_blocks.end());
    stage.set_state_slots(plan->state_slots);
  }
  return absl::OkStatus();
}

// Guessed rows of a sequence in flight, of so many micro-batches at most.
int32_t MostGuesses(const pb::ConfigureJob& job, const HyperParameters& hyper, int stages, int32_t in_flight) {
  if (!Speculates(job)) return 0;
  return (job.guess_rows() > 0 ? std::min(job.guess_rows(), in_flight) : MostGuessRows(hyper, stages, in_flight)) - 1;
}

void FillCommon(const pb::ConfigureJob& job, const ModelDescription& model, const JobEpoch& epoch, const JobPlan& plan,
                pb::StageAssignment* stage) {
  stage->set_run_id(epoch.run_id);
  stage->set_epoch(epoch.epoch);
  stage->set_q2_layout(job.q2_layout());
  stage->set_allow_damaged(job.allow_damaged());
  if (job.weights() == pb::WEIGHT_SOURCE_STREAM) {
    stage->set_weights(job.weights());
    for (const uint64_t bytes : model.file->opened_bytes()) stage->add_opened_bytes(bytes);
    // A stage that opens only what it was sent cannot detect it from a tensor's blocks.
    stage->set_q2_layout(Q2LayoutName(model.file->q2_layout()));
    stage->set_weights_cache(job.weights_cache());
    stage->set_weights_timeout_us(static_cast<uint64_t>(job.stage_timeout_s() * 1e6));
  }
  *stage->mutable_fingerprints() = ToProto(model.file->fingerprints());
  stage->set_block_tokens(job.block_tokens());
  const std::vector<int64_t> windows = ReleaseWindows(model.hyper);
  stage->mutable_group_windows()->Add(windows.begin(), windows.end());
  stage->set_kv_type(job.kv_type());
  stage->set_wire_type(job.wire_type());
  stage->set_max_rows(job.max_num_batched_tokens());
  stage->set_max_slices(job.max_num_seqs());
  stage->set_max_prompt_logprobs(job.max_prompt_logprobs());
  stage->set_in_flight(plan.most_groups);
  stage->set_most_guesses(plan.most_guesses);
  stage->set_stage_delay_us(job.stage_delay_us());
  stage->set_step_account(job.step_account());
  if (job.layer_checksums()) stage->set_checksum_layers(static_cast<int32_t>(model.hyper.layer_count()));
  if (job.has_emulated_link()) *stage->mutable_emulated_link() = job.emulated_link();
}

// --- threads and CPUs ------------------------------------------------------------------------------------------------

// A core's hardware threads, and the NUMA node they are on.
struct Core {
  std::vector<int32_t> cpus;
  int32_t node = 0;
};
using Cores = std::vector<Core>;

// In the order of their first hardware threads.
Cores CoresOf(const pb::Hello& hello) {
  Cores cores;
  std::map<int32_t, size_t> index;
  for (const pb::CpuPlace& place : hello.cpus()) {
    const auto [at, added] = index.try_emplace(place.core(), cores.size());
    if (added) cores.push_back({.node = place.node()});
    cores[at->second].cpus.push_back(place.cpu());
  }
  return cores;
}

std::set<int32_t> CpuSet(const pb::Hello& hello) {
  std::set<int32_t> cpus;
  for (const pb::CpuPlace& place : hello.cpus()) cpus.insert(place.cpu());
  return cpus;
}

// The stages of one host, as indices.
using Host = std::vector<size_t>;

// The stages of the host that may use a CPU of this one's, itself included.
Host Contenders(const std::vector<pb::Hello>& stages, const Host& host, size_t stage) {
  const std::set<int32_t> own = CpuSet(stages[stage]);
  Host contenders;
  std::copy_if(host.begin(), host.end(), std::back_inserter(contenders), [&](size_t other) {
    const std::set<int32_t> cpus = CpuSet(stages[other]);
    return other == stage || own.empty() ||
           std::any_of(cpus.begin(), cpus.end(), [&](int32_t cpu) { return own.count(cpu) > 0; });
  });
  return contenders;
}

bool HasQuota(const pb::Hello& hello) { return hello.allowed_cores() < hello.cpus_size(); }

int32_t Threads(const std::vector<StageCpus>& plan, const Host& of) {
  return std::accumulate(of.begin(), of.end(), 0, [&](int32_t sum, size_t stage) { return sum + plan[stage].threads; });
}

// Whether an unbound stage and those that share CPUs with it have more threads than can run at once.
bool IsContended(const std::vector<pb::Hello>& stages, const Host& host, size_t stage,
                 const std::vector<StageCpus>& plan) {
  const pb::Hello& hello = stages[stage];
  if (HasQuota(hello) && Threads(plan, host) > hello.allowed_cores()) return true;
  const Host contenders = Contenders(stages, host, stage);
  std::set<int32_t> cpus;
  for (const size_t other : contenders) cpus.merge(CpuSet(stages[other]));
  return Threads(plan, contenders) > (cpus.empty() ? hello.allowed_cores() : static_cast<int32_t>(cpus.size()));
}

// The cores of as few nodes as have one for each thread; none when that takes all nodes.
Cores OnFewestNodes(const Cores& cores, int32_t threads) {
  std::map<int32_t, int32_t> size_of;
  std::vector<int32_t> nodes;  // in the order of the cores, then largest first
  for (const Core& core : cores) {
    if (size_of[core.node]++ == 0) nodes.push_back(core.node);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [&](int32_t a, int32_t b) { return size_of[a] > size_of[b]; });
  std::set<int32_t> taken;
  int32_t held = 0;
  for (size_t i = 0; i < nodes.size() && held < threads; ++i) {
    taken.insert(nodes[i]);
    held += size_of[nodes[i]];
  }
  if (taken.size() == nodes.size()) return {};
  Cores chosen;
  std::copy_if(cores.begin(), cores.end(), std::back_inserter(chosen),
               [&](const Core& core) { return taken.count(core.node) > 0; });
  return chosen;
}

// Where `threads` threads run within some cores; empty when they do not fit, or would tie a lone thread to one CPU.
std::vector<int32_t> PlaceWithin(const Cores& run, int32_t threads) {
  std::vector<int32_t> cpus;
  size_t most = 0;
  for (const Core& core : run) most = std::max(most, core.cpus.size());
  for (size_t sibling = 0; sibling < most; ++sibling) {
    for (const Core& core : run) {
      if (sibling < core.cpus.size()) cpus.push_back(core.cpus[sibling]);
    }
  }
  const size_t wanted = static_cast<size_t>(threads);
  if (wanted > cpus.size() || cpus.size() == 1) return {};
  if (wanted > 1 && wanted >= run.size()) cpus.resize(wanted);
  return cpus;
}

void BindHost(const std::vector<pb::Hello>& stages, const Host& host, std::vector<StageCpus>* plan) {
  const pb::Hello& hello = stages[host[0]];
  const Cores cores = CoresOf(hello);
  const std::set<int32_t> first = CpuSet(hello);
  const auto has_first = [&](size_t stage) { return CpuSet(stages[stage]) == first; };
  if (HasQuota(hello) || !std::all_of(host.begin(), host.end(), has_first)) return;
  if (const int32_t threads = (*plan)[host[0]].threads;
      host.size() == 1 && static_cast<size_t>(threads) < cores.size()) {
    (*plan)[host[0]].cpus = PlaceWithin(OnFewestNodes(cores, threads), threads);
    return;
  }
  std::vector<std::vector<int32_t>> sets;
  for (size_t i = 0; i < host.size(); ++i) {
    const auto begin = cores.begin() + static_cast<int64_t>(cores.size() * i / host.size());
    const auto end = cores.begin() + static_cast<int64_t>(cores.size() * (i + 1) / host.size());
    sets.push_back(PlaceWithin({begin, end}, (*plan)[host[i]].threads));
    if (sets.back().empty()) return;
  }
  for (size_t i = 0; i < host.size(); ++i) (*plan)[host[i]].cpus = std::move(sets[i]);
}

}  // namespace

size_t JobPlan::full_group() const {
  size_t group = 0;
  while (WindowOf(group_windows, group) > 0) ++group;
  return group;
}

int32_t MostGuessRows(const HyperParameters& hyper, int stages, int32_t micro_batches) {
  if (stages == 1) return 1;  // nothing of it is idle
  return std::min(micro_batches, hyper.recurrent() ? kMostStateRows : kMostGuessRows);
}

absl::Status CheckWorld(const pb::ConfigureJob& job, int stages) {
  if (job.stages() == 0 || job.stages() == stages) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(job.has_planned_for() ? "`planned_for`" : "`stages`", " asks for ", job.stages(),
                   " stages, but this world has ", stages, "; start as many stage_workers as ",
                   job.has_planned_for() ? "`planned_for`" : "`stages`", " says, or leave it out"));
}

namespace {

absl::StatusOr<JobPlan> PlanAsAsked(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                    const ModelDescription& model, const JobEpoch& epoch, const PartitionInput* costs) {
  ASSIGN_OR_RETURN(const JobSettings settings, JobSettingsOf(job));
  RETURN_IF_ERROR(CheckJobField({"max_prompt_logprobs", kPromptLogprobsRange}, job.max_prompt_logprobs()));
  RETURN_IF_ERROR(CheckTogether(settings, model));
  const int stages = static_cast<int>(hellos.size());
  RETURN_IF_ERROR(CheckJobField(JobLimits::kStages, stages));
  RETURN_IF_ERROR(CheckWorld(job, stages));
  // A relaunch, which knows the file's fingerprints, may be over other hosts than those of the plan.
  if (job.has_planned_for() && job.fingerprints_size() == 0) {
    RETURN_IF_ERROR(CheckPlanned(job.planned_for(), hellos, model));
  }
  ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(hellos, WantedIsaOf(job)));
  const std::vector<StageCpus> cpus =
      PlanCpus(hellos, job.threads(), job.cpu_bind() != NameOf(kCpuBinds, CpuBind::kNone));
  JobPlan plan;
  plan.bf16_dot = isas.bf16_dot;
  plan.group_windows = ReleaseWindows(model.hyper);
  plan.micro_batches = job.micro_batches() > 0 ? job.micro_batches() : stages;
  // One group more than stages hides the way from the last stage back to the first.
  const auto most = static_cast<int32_t>(std::min<int64_t>(stages + 1, JobLimits::kDecodeGroups.range.max));
  plan.most_groups = job.micro_batches() > 0 ? job.micro_batches() : std::max(most, job.decode_groups());
  if (job.decode_groups() > plan.most_groups) {
    return absl::InvalidArgumentError(absl::StrCat("`decode_groups` is ", job.decode_groups(), ", but only ",
                                                   plan.micro_batches, " micro-batches are in flight; give at most ",
                                                   job.has_planned_for() ? "that, or leave it or `planned_for` out"
                                                                         : "that, or more `micro_batches`, or leave "
                                                                           "these out"));
  }
  plan.most_guesses = MostGuesses(job, model.hyper, stages, plan.most_groups);
  for (int i = 0; i < stages; ++i) {
    pb::StageAssignment stage;
    stage.set_stage(i);
    stage.set_stages(stages);
    stage.set_rank(hellos[i].rank());
    stage.set_previous_rank(i == 0 ? kCoordinatorRank : hellos[i - 1].rank());
    stage.set_next_rank(i + 1 == stages ? kCoordinatorRank : hellos[i + 1].rank());
    stage.set_owns_embedding(i == 0);
    stage.set_owns_head(i + 1 == stages);
    stage.set_threads(cpus[i].threads);
    stage.mutable_cpus()->Add(cpus[i].cpus.begin(), cpus[i].cpus.end());
    stage.set_contended(cpus[i].contended);
    stage.set_isa(ToProto(isas.isas[i]));
    stage.set_model_path(hellos[i].model_path().empty() ? model.file->path() : hellos[i].model_path());
    FillCommon(job, model, epoch, plan, &stage);
    plan.stages.push_back(std::move(stage));
  }
  SetContext(job.context() > 0 ? job.context() : model.hyper.context, &plan);
  ASSIGN_OR_RETURN(const LayerSplit split, SplitLayers(job, hellos, model, plan.stages, costs));
  for (int i = 0; i < stages; ++i) {
    plan.stages[i].set_first_layer(split.layers[i].begin);
    plan.stages[i].set_last_layer(split.layers[i].end);
  }
  const absl::Status sized = SizePool(job, hellos, model, &plan);
  // Which of the splits that do not fit was tried says less than that none does.
  if (absl::IsResourceExhausted(sized) && !split.lack.ok()) return split.lack;
  RETURN_IF_ERROR(sized);
  return plan;
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                const ModelDescription& model, const JobEpoch& epoch, const PartitionInput* costs) {
  absl::StatusOr<JobPlan> plan = PlanAsAsked(job, hellos, model, epoch, costs);
  const bool may_do_without = job.speculate() == NameOf(kSpeculations, Speculate::kAuto) && model.hyper.recurrent();
  if (!absl::IsResourceExhausted(plan.status()) || !may_do_without) return plan;
  pb::ConfigureJob without = job;
  without.set_speculate(NameOf(kSpeculations, Speculate::kOff));
  return PlanAsAsked(without, hellos, model, epoch, costs);
}

std::vector<StageCpus> PlanCpus(const std::vector<pb::Hello>& stages, int32_t threads, bool bind) {
  std::map<std::string, Host> hosts;
  for (size_t stage = 0; stage < stages.size(); ++stage) hosts[stages[stage].host()].push_back(stage);
  std::vector<StageCpus> plan(stages.size());
  for (const auto& [name, host] : hosts) {
    for (const size_t stage : host) {
      // A rank without a list of cores has reported how many threads can run.
      const auto cores = static_cast<int32_t>(CoresOf(stages[stage]).size()), allowed = stages[stage].allowed_cores();
      int32_t share = cores == 0 ? allowed : std::min(cores, allowed);
      share /= static_cast<int32_t>(Contenders(stages, host, stage).size());
      // A quota is one for all, whatever CPUs each may use.
      if (HasQuota(stages[stage])) {
        share = std::min(share, allowed / static_cast<int32_t>(host.size()));
      }
      plan[stage].threads = threads > 0 ? threads : std::max(1, share);
    }
    if (bind) BindHost(stages, host, &plan);
    for (const size_t stage : host) {
      plan[stage].contended = plan[stage].cpus.empty() && IsContended(stages, host, stage, plan);
    }
  }
  return plan;
}

}  // namespace stagecoach
