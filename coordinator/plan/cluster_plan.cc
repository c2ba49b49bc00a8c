#include "coordinator/plan/cluster_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/last_that_fits.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/choice/split_choice.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {
namespace {

constexpr int64_t kLargestChunk = 512;  // of those that are tried: larger ones gain nothing and delay decoding more
constexpr double kInFlightMargin = 1e-3;

// The fields that costs are reckoned with, before PlanJob looks at the others.
absl::Status CheckLoadFields(const pb::ConfigureJob& job) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumSeqs, job.max_num_seqs()));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumBatchedTokens, job.max_num_batched_tokens()));
  return CheckJobFieldOrDefault(JobLimits::kPrefillChunk, job.prefill_chunk());
}

absl::Status CheckHosts(const ClusterQuestion& question) {
  const auto hosts = static_cast<int>(question.profile.hosts.size());
  for (const int host : question.stage_hosts) {
    if (host < 0 || host >= hosts) {
      return absl::InvalidArgumentError(absl::StrCat("a stage is on host ", host, " of ", hosts));
    }
    if (question.profile.hosts[host].speeds.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("nothing is known of the speed of host ", question.profile.hosts[host].name));
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const ClusterQuestion& question) {
  RETURN_IF_ERROR(CheckHosts(question));
  if (question.load.prompt_tokens < 1 || question.load.output_tokens < 1) {
    return absl::InvalidArgumentError("a request has at least one prompt token and one output token");
  }
  const int64_t tokens = question.load.prompt_tokens + question.load.output_tokens;
  const int64_t context = question.job.context() > 0 ? question.job.context() : question.model->hyper.context;
  if (tokens > context) {
    return absl::InvalidArgumentError(absl::StrCat("prompt and output have ", tokens, " tokens, but the context is ",
                                                   context, "; plan for shorter ones"));
  }
  return absl::OkStatus();
}

// The layer that the profile's steps are of, with the K and V that they read, when they are of this model.
std::optional<PartWork> MeasuredLayer(const HostProfile& profile, const ModelDescription& model, KvType kv_type,
                                      bool bf16_dot) {
  if (!ProfileIsOf(profile, model)) return std::nullopt;
  const absl::StatusOr<KvType> probed = ParseKvType(profile.model->kv_type);
  const absl::StatusOr<ModelParts> parts = PartsOf(model, probed.value_or(kv_type), bf16_dot);
  if (!parts.ok()) return std::nullopt;
  return parts->layers[static_cast<size_t>(profile.model->layer)];
}

absl::StatusOr<StageLink> LinkFrom(const HostProfile& profile, int from, int to) {
  const std::optional<LinkFacts> facts = LinkBetween(profile, from, to);
  if (facts.has_value()) return StageLink{facts->latency_us * 1e-6, facts->bytes_per_s(), facts->jitter_us * 1e-6};
  return absl::InvalidArgumentError(absl::StrCat("nothing is known of the link from ", profile.hosts[from].name, " to ",
                                                 profile.hosts[to].name,
                                                 "; give it, or one for all, in the description of the hosts"));
}

// The pipeline with no layers given yet, and what its stages cost on their hosts, whatever layers they have.
absl::StatusOr<std::shared_ptr<PlannedPipeline>> PipelineOn(const ClusterQuestion& question,
                                                            const std::vector<pb::Hello>& hellos) {
  auto planned = std::make_shared<PlannedPipeline>();
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(question.job.kv_type()));
  ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(hellos, WantedIsaOf(question.job)));
  ASSIGN_OR_RETURN(planned->parts, PartsOf(*question.model, kv_type, isas.bf16_dot));
  planned->measured_layer = MeasuredLayer(question.profile, *question.model, kv_type, isas.bf16_dot);
  const PartWork* measured = planned->measured_layer.has_value() ? &*planned->measured_layer : nullptr;
  const HostProfile& profile = question.profile;
  PipelineModel& pipeline = planned->model;
  ASSIGN_OR_RETURN(const WireType wire, FromProto(question.job.wire_type()));
  pipeline.row_bytes = static_cast<double>(question.model->hyper.hidden) * static_cast<double>(WireTypeBytes(wire));
  const std::vector<int>& at = question.stage_hosts;
  ASSIGN_OR_RETURN(const StageLink first, LinkFrom(profile, profile.coordinator, at.front()));
  pipeline.to_first_s = first.latency_s;
  pipeline.turn_s = question.coordinator_us * 1e-6;
  pipeline.wake_s = question.wake_us * 1e-6;
  const std::vector<StageCpus> cpus = PlanCpus(hellos, question.job.threads(), /*bind=*/false);
  for (size_t s = 0; s < at.size(); ++s) {
    planned->hosts.push_back(HostWith(profile.hosts[static_cast<size_t>(at[s])], isas.isas[s]));
    planned->costs.emplace_back(&planned->hosts.back(), cpus[s].threads, &planned->parts, measured);
    PipelineStage& stage = pipeline.stages.emplace_back();
    stage.costs = &planned->costs.back();
    stage.host = at[s];
    stage.host_stages = static_cast<int>(std::count(at.begin(), at.end(), at[s]));
    ASSIGN_OR_RETURN(stage.link, LinkFrom(profile, at[s], s + 1 < at.size() ? at[s + 1] : profile.coordinator));
  }
  std::vector<PipelineUplink> uplinks;
  for (const UplinkFacts& uplink : profile.uplinks) uplinks.push_back({uplink.bytes_per_s(), uplink.hosts});
  ShareUplinks(uplinks, &pipeline);
  return planned;
}

// Tokens of a request that a decode step gives each: the prompt's last row gives the first.
double DecodedTokens(const PlanLoad& load) { return static_cast<double>(load.output_tokens - 1); }

// What each stage would take for one request of each sequence if it had everything: the partitioner picks from it.
// Every stage is taken to be busy, with as many groups as stages.
PartitionInput PartitionCosts(const ClusterQuestion& question, const PlannedPipeline& costs) {
  const PipelineModel& pipeline = costs.model;
  const int stages = pipeline.size();
  const auto sequences = static_cast<double>(question.job.max_num_seqs());
  const double groups = std::max(std::min<double>(sequences, stages),
                                 sequences / static_cast<double>(question.job.max_num_batched_tokens()));
  const StepLoad decode = StepLoad::Decode(sequences / groups, question.load.decode_context(), pipeline.window());
  const int64_t chunk =
      std::min<int64_t>(question.job.prefill_chunk() > 0 ? question.job.prefill_chunk() : kLargestChunk,
                        question.job.max_num_batched_tokens());
  const PromptChunks chunks = ChunksOf(question.load.prompt_tokens, chunk, pipeline.window());
  const double steps = groups * DecodedTokens(question.load);
  PartitionInput input;
  input.stages = stages;
  for (int s = 0; s < stages; ++s) {
    const double active = ActiveStages(pipeline, s, stages);
    const StageCosts& on = costs.costs[static_cast<size_t>(s)];
    PartCosts& all = input.costs.emplace_back();
    all.layers.assign(costs.parts.layers.size(), 0);
    on.AddLayers(decode, active, steps, &all.layers);
    for (const StepLoad& load : chunks.loads) on.AddLayers(load, active, sequences * chunks.each, &all.layers);
    all.head = steps * on.Head(decode, active) + sequences * on.Head(StepLoad::Decode(1, 1), active);
    const double rows = steps * decode.rows + sequences * static_cast<double>(question.load.prompt_tokens);
    input.hop_cost.push_back(LinkSeconds(pipeline, s, rows));
  }
  return input;
}

double LoadTokensPerS(const ClusterQuestion& question, double sequences, double itl_s, double prompt_tokens_per_s) {
  const auto prompt = static_cast<double>(question.load.prompt_tokens);
  const auto output = static_cast<double>(question.load.output_tokens);
  return sequences * output / (sequences * prompt / prompt_tokens_per_s + DecodedTokens(question.load) * itl_s);
}

// In this number of groups, or more if micro-batches take no more rows.
DecodePrediction DecodeIn(const ClusterQuestion& question, const PipelineModel& pipeline, int64_t sequences,
                          int64_t groups) {
  const int64_t most_rows = question.job.max_num_batched_tokens();
  groups = std::min(groups, sequences);
  return PredictDecode(pipeline, sequences, question.load.decode_context(),
                       static_cast<int>(std::max(groups, (sequences + most_rows - 1) / most_rows)),
                       static_cast<int>(groups));
}

// What the layers cost on each stage in these steps, with so many micro-batches in flight.
std::shared_ptr<const SplitSums> SumsOf(const PlannedPipeline& planned, const std::vector<StepLoad>& loads,
                                        int in_flight) {
  auto sums = std::make_shared<SplitSums>();
  for (int s = 0; s < planned.model.size(); ++s) {
    const StageCosts& costs = planned.costs[static_cast<size_t>(s)];
    const double active = ActiveStages(planned.model, s, in_flight);
    std::vector<double> layers(planned.parts.layers.size(), 0);
    for (const StepLoad& load : loads) costs.AddLayers(load, active, 1, &layers);
    std::vector<double>& before = sums->before.emplace_back(1, 0.0);
    for (const double seconds : layers) before.push_back(before.back() + seconds);
    if (s + 1 < planned.model.size()) continue;
    for (const StepLoad& load : loads) sums->head += costs.Head(load, active);
  }
  return sums;
}

// The load of so many sequences as a split decides it (prediction.h), in chunks as the plan has them. `asked`:
// micro-batches in flight; 0: any number, of many stages the plan's own.
SplitLoad SplitLoadOf(const ClusterQuestion& question, const PlannedPipeline& planned, const ClusterPlan& plan,
                      int64_t sequences, int asked) {
  constexpr int kSomeStages = 16;
  const PipelineModel& pipeline = planned.model;
  const int stages = pipeline.size();
  const PromptChunks chunks = ChunksOf(question.load.prompt_tokens, plan.prefill.chunk, pipeline.window());
  const auto prompt_rows = static_cast<double>(question.load.prompt_tokens);
  const auto count = static_cast<double>(chunks.loads.size());
  double latency_s = pipeline.to_first_s + (stages + 1) * pipeline.wake_s + pipeline.turn_s, row_s = 0, row_floor_s = 0;
  for (int s = 0; s < stages; ++s) {
    latency_s += pipeline.stages[static_cast<size_t>(s)].link.latency_s;
    row_s += LinkSeconds(pipeline, s, 1);
    row_floor_s = std::max(row_floor_s, LinkSeconds(pipeline, s, 1));
  }
  for (const SharedWire& wire : pipeline.wires) row_floor_s = std::max(row_floor_s, WireSeconds(pipeline, wire, 1));
  const auto floor_of = [&](double steps, double rows) {
    return std::max(steps * pipeline.turn_s, rows * row_floor_s);
  };
  const bool shared = std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                                  [](const PipelineStage& stage) { return stage.host_stages > 1; });
  const int one = asked > 0 ? asked : stages > kSomeStages ? plan.job.micro_batches : 0;
  const int least = std::max(one, 1), most = one > 0 ? one : 2 * stages;
  std::shared_ptr<const SplitSums> sums;
  SplitLoad load;
  for (int in_flight = least; in_flight <= most; ++in_flight) {
    // More in flight is faster, unless stages that compute at the same time slow each other down.
    if (in_flight < most && (!shared || in_flight > stages)) continue;
    if (sums == nullptr || in_flight <= stages) sums = SumsOf(planned, chunks.loads, in_flight);
    load.prompts.push_back({.sums = sums,
                            .in_flight = in_flight,
                            .times = static_cast<double>(sequences) * chunks.each,
                            .floor = floor_of(count, prompt_rows / chunks.each),
                            .around = 1.0 / in_flight,
                            .fixed = count * latency_s + prompt_rows / chunks.each * row_s});
  }
  const int64_t most_rows = question.job.max_num_batched_tokens();
  const bool given = question.job.decode_groups() > 0;
  const bool as_planned = given || stages > kSomeStages || plan.decode.in_flight > 2 * stages;
  const int64_t last = std::min<int64_t>(as_planned ? plan.decode.in_flight : std::min(most, 2 * stages), sequences);
  for (int64_t at_once = as_planned ? last : 1; at_once <= last; ++at_once) {
    const int64_t groups = std::max(at_once, (sequences + most_rows - 1) / most_rows);
    const double rows = static_cast<double>(sequences) / static_cast<double>(groups);
    const double count_of = static_cast<double>(groups), rounds = count_of / static_cast<double>(at_once);
    load.decode.push_back(
        {.sums = SumsOf(planned, {StepLoad::Decode(rows, question.load.decode_context(), pipeline.window())},
                        static_cast<int>(at_once)),
         .in_flight = as_planned ? 1 : static_cast<int>(at_once),
         .times = DecodedTokens(question.load),
         .floor = floor_of(count_of, count_of * rows),
         .slowest = count_of,
         .around = rounds,
         .fixed = latency_s + rows * row_s});
  }
  return load;
}

// `asked`: micro-batches in flight; 0: the best number.
void Predict(const ClusterQuestion& question, const PipelineModel& pipeline, int asked, ClusterPlan* plan) {
  const auto sequences = static_cast<double>(plan->sequences);
  const int64_t given = question.job.prefill_chunk(), most_rows = question.job.max_num_batched_tokens();
  const int64_t largest = std::min(given > 0 ? given : kLargestChunk, most_rows);
  const int64_t prompt = question.load.prompt_tokens;
  int64_t chunk = largest;
  if (given == 0) chunk = PredictBestPrefill(pipeline, prompt, largest).chunk;
  struct Choice {
    int in_flight = 0;
    DecodePrediction decode;
    double output_tokens_per_s = 0;
  };
  std::vector<Choice> choices;
  PrefillPredictor prefill(&pipeline, prompt, chunk);
  const auto most = static_cast<int>(std::min<int64_t>(2 * pipeline.size(), JobLimits::kMicroBatches.range.max));
  const int64_t groups = question.job.decode_groups();  // 0: the best of those in flight, as the engine finds it
  DecodePrediction decode = DecodeIn(question, pipeline, plan->sequences, std::max<int64_t>(groups, 1));
  double fastest = 0;
  for (int in_flight = 1; in_flight <= (asked > 0 ? asked : most); ++in_flight) {
    if (groups == 0 && 1 < in_flight && in_flight <= plan->sequences) {
      DecodePrediction more = DecodeIn(question, pipeline, plan->sequences, in_flight);
      if (more.itl_s < decode.itl_s) decode = std::move(more);
    }
    if (in_flight < asked) continue;
    const double rate = LoadTokensPerS(question, sequences, decode.itl_s, prefill.TokensPerS(in_flight));
    choices.push_back({in_flight, decode, rate});
    fastest = std::max(fastest, rate);
  }
  const auto best = std::find_if(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.output_tokens_per_s >= fastest * (1 - kInFlightMargin);
  });
  plan->decode = best->decode;
  plan->prefill = prefill.Predict(best->in_flight);
  plan->output_tokens_per_s = best->output_tokens_per_s;
  plan->job.micro_batches = best->in_flight;
}

// What each stage has to do of the whole load, relative to the one that has most.
std::vector<double> Shares(const ClusterQuestion& question, const ClusterPlan& plan) {
  std::vector<double> shares;
  shares.reserve(plan.stages());
  for (int s = 0; s < plan.stages(); ++s) {
    shares.push_back(plan.decode.stage_s[s] * plan.decode.groups * DecodedTokens(question.load) +
                     plan.prefill.stage_s[s] * static_cast<double>(plan.sequences));
  }
  const double most = *std::max_element(shares.begin(), shares.end());
  for (double& share : shares) share = most > 0 ? share / most : 1;
  return shares;
}

// KV blocks of a sequence to its last token.
int64_t BlocksOfSequence(const ClusterQuestion& question) {
  const int64_t block = question.job.block_tokens();
  return (question.load.prompt_tokens + question.load.output_tokens + block - 1) / block;
}

// How many of the sequences the pools hold at once.
int64_t SequencesHeld(const ClusterQuestion& question, const JobPlan& job) {
  return std::min<int64_t>(job.group_blocks[job.full_group()] / BlocksOfSequence(question),
                           question.job.max_num_seqs());
}

absl::Status CheckThatItHoldsOne(const ClusterQuestion& question, const ClusterPlan& plan) {
  if (plan.sequences > 0) return absl::OkStatus();
  const int64_t block = question.job.block_tokens(), blocks = plan.job.group_blocks[plan.job.full_group()];
  return absl::ResourceExhaustedError(
      absl::StrCat("the KV cache has room for ", blocks * block, " tokens (", blocks, " blocks of ", block,
                   "), but a request has ", question.load.prompt_tokens, " prompt and ", question.load.output_tokens,
                   " output tokens; plan for shorter ones, give more `kv_cache_bytes`, or use hosts with more memory"));
}

std::vector<LayerRange> SplitOf(const JobPlan& job) {
  std::vector<LayerRange> split;
  for (const pb::StageAssignment& stage : job.stages) split.push_back({stage.first_layer(), stage.last_layer()});
  return split;
}

// The job with a split of its own.
pb::ConfigureJob JobWith(const pb::ConfigureJob& job, const std::vector<LayerRange>& split) {
  pb::ConfigureJob with = job;
  with.clear_layer_split();
  for (const LayerRange& layers : split) with.add_layer_split(layers.end - layers.begin);
  return with;
}

// The rest of a plan whose job is there; without sequences where its pools do not hold one, then of one.
absl::Status PredictJob(const ClusterQuestion& question, int32_t micro_batches,
                        const std::shared_ptr<PlannedPipeline>& costs, ClusterPlan* plan) {
  PipelineModel& pipeline = costs->model;
  plan->memory.clear();
  plan->measured = true;
  for (int s = 0; s < plan->stages(); ++s) {
    const pb::StageAssignment& stage = plan->job.stages[s];
    pipeline.stages[s].layers = {stage.first_layer(), stage.last_layer()};
    plan->measured = plan->measured && costs->costs[static_cast<size_t>(s)].measured();
    ASSIGN_OR_RETURN(const StageMemory memory,
                     StageMemoryOf(*question.model, stage, plan->job.group_blocks, plan->job.state_slots));
    plan->memory.push_back(memory);
  }
  const int64_t held = SequencesHeld(question, plan->job);
  plan->sequences = std::max<int64_t>(held, 1);
  Predict(question, pipeline, micro_batches, plan);
  plan->stage_share = Shares(question, *plan);
  plan->pipeline = costs;
  plan->sequences = held;
  if (held == 0) plan->output_tokens_per_s = 0;
  return absl::OkStatus();
}

// The job with pools that must hold so many sequences, if their size is the planner's.
pb::ConfigureJob WithRoomFor(int64_t sequences, const ClusterQuestion& question, pb::ConfigureJob job) {
  // Half of what is left beside weights and buffers; PlanBlocks gives seven eighths, if as much is needed.
  constexpr double kOfHalf = 1.75;
  const int64_t tokens = sequences * BlocksOfSequence(question) * job.block_tokens();
  job.set_min_kv_tokens(std::max(job.min_kv_tokens(), static_cast<int64_t>(kOfHalf * static_cast<double>(tokens))));
  return job;
}

// A few numbers of sequences, the largest first, up to the most that any split holds.
std::vector<int64_t> NumbersHeld(int64_t most) {
  constexpr int64_t kMostNumbers = 16;
  std::vector<int64_t> numbers;
  for (int64_t i = std::min(kMostNumbers, most); i > 0; --i) numbers.push_back(most * i / std::min(kMostNumbers, most));
  return numbers;
}

// `micro_batches`: in flight; 0: those of the defaults for what is sized, and the best number for what is predicted.
absl::StatusOr<ClusterPlan> PlanInFlight(const ClusterQuestion& question, int32_t micro_batches) {
  const std::vector<pb::Hello> hellos = HellosOf(question);
  ASSIGN_OR_RETURN(const std::shared_ptr<PlannedPipeline> costs, PipelineOn(question, hellos));
  PartitionInput split_by = PartitionCosts(question, *costs);
  pb::ConfigureJob job = question.job;
  job.set_micro_batches(micro_batches);
  if (job.prefill_chunk() == 0) job.set_prefill_chunk(static_cast<int32_t>(kLargestChunk));
  const auto job_of = [&](const pb::ConfigureJob& wanted) {
    return PlanJob(wanted, hellos, *question.model, JobEpoch{}, &split_by);
  };
  ClusterPlan plan;
  ASSIGN_OR_RETURN(plan.job, job_of(job));
  RETURN_IF_ERROR(PredictJob(question, micro_batches, costs, &plan));
  // Takes the split that is best for so many sequences, of those with room for them, if it is better. How many it
  // holds.
  const auto choose = [&](const pb::ConfigureJob& with_room, int64_t sequences) -> int64_t {
    split_by.load = std::make_shared<SplitLoad>(SplitLoadOf(question, *costs, plan, sequences, micro_batches));
    const absl::StatusOr<JobPlan> roomy = job_of(with_room);
    if (!roomy.ok()) return 0;
    absl::StatusOr<JobPlan> as_usual = job_of(JobWith(job, SplitOf(*roomy)));
    if (!as_usual.ok()) return 0;
    ClusterPlan other;
    other.job = *std::move(as_usual);
    if (!PredictJob(question, micro_batches, costs, &other).ok()) return 0;
    const int64_t held = other.sequences;
    if (other.output_tokens_per_s > plan.output_tokens_per_s) plan = std::move(other);
    return held;
  };
  const bool may_choose = job.layer_split_size() == 0 && plan.stages() > 1;
  if (may_choose && choose(job, job.max_num_seqs()) < job.max_num_seqs() && job.kv_cache_bytes() == 0) {
    split_by.load = nullptr;
    const int64_t most = LastThatFits(
        0, job.max_num_seqs(), [&](int64_t sequences) { return job_of(WithRoomFor(sequences, question, job)).ok(); });
    for (const int64_t sequences : NumbersHeld(most)) choose(WithRoomFor(sequences, question, job), sequences);
  }
  RETURN_IF_ERROR(CheckThatItHoldsOne(question, plan));
  RETURN_IF_ERROR(PredictJob(question, micro_batches, costs, &plan));  // the pipeline's layers are the plan's again
  return plan;
}

// That the stages of a host may use together: a launcher may have given each its own.
int CoresOfHost(const std::string& host, const std::vector<pb::Hello>& hellos) {
  const std::vector<StageCpus> cpus = PlanCpus(hellos, /*threads=*/0, /*bind=*/false);
  int of_one = 1, of_all = 0;
  for (size_t s = 0; s < hellos.size(); ++s) {
    if (hellos[s].host() != host) continue;
    of_one = std::max(of_one, hellos[s].allowed_cores());
    of_all += cpus[s].contended ? 0 : cpus[s].threads;
  }
  return std::max(of_one, of_all);
}

}  // namespace

bool ProfileIsOf(const HostProfile& profile, const ModelDescription& model) {
  if (!profile.model.has_value()) return false;
  const ProbedModel& probed = *profile.model;
  return probed.file_bytes == TotalBytes(model.file->fingerprints()) &&
         probed.header_hash == model.file->fingerprints().front().header_hash && probed.layer >= 0 &&
         probed.layer < model.hyper.layer_count();
}

std::vector<pb::Hello> HellosOf(const ClusterQuestion& question) {
  std::vector<pb::Hello> hellos;
  const pb::InstructionSet wanted = question.job.isa();
  for (size_t s = 0; s < question.stage_hosts.size(); ++s) {
    const HostFacts& host = question.profile.hosts[static_cast<size_t>(question.stage_hosts[s])];
    pb::Hello& hello = hellos.emplace_back();
    hello.set_role(pb::Hello::ROLE_STAGE);
    hello.set_rank(static_cast<int32_t>(s) + 1);
    hello.set_host(host.name);
    hello.set_allowed_cores(host.cores);
    hello.set_available_memory_bytes(host.available_bytes);
    // Where it is not known: whether there is a dot instruction for bfloat16 is all that sizes and costs depend on.
    const bool bf16_dot =
        std::any_of(host.speeds.begin(), host.speeds.end(), [](const HostSpeed& speed) { return speed.bf16_gops > 0; });
    hello.add_isas(pb::INSTRUCTION_SET_AVX2);
    if (bf16_dot) hello.add_isas(pb::INSTRUCTION_SET_AVX512_BF16);
    if (wanted != pb::INSTRUCTION_SET_UNSPECIFIED) hello.add_isas(wanted);
    if (!host.isas.empty()) hello.clear_isas();
    for (auto name = host.isas.rbegin(); name != host.isas.rend(); ++name) {
      if (const auto isa = ParseInstructionSet(*name); isa.ok()) hello.add_isas(ToProto(*isa));
    }
  }
  return hellos;
}

absl::StatusOr<JobPlan> PlanJobUnmeasured(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                          std::shared_ptr<const ModelDescription> model, const JobEpoch& epoch) {
  if (job.layer_split_size() > 0) return PlanJob(job, hellos, *model, epoch);
  RETURN_IF_ERROR(CheckLoadFields(job));
  ClusterQuestion question = {.model = std::move(model), .job = job};
  HostProfile& profile = question.profile;
  profile.default_link = AssumedLink();  // that to and from the coordinator carries no hidden states: any will do
  ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(hellos, WantedIsaOf(job)));
  for (size_t s = 0; s < hellos.size(); ++s) {
    const pb::Hello& hello = hellos[s];
    auto host = std::find_if(profile.hosts.begin(), profile.hosts.end(),
                             [&](const HostFacts& facts) { return facts.name == hello.host(); });
    if (host == profile.hosts.end()) {
      host = profile.hosts.insert(host, AssumedHost(hello.host(), CoresOfHost(hello.host(), hellos),
                                                    hello.available_memory_bytes(), isas.isas[s]));
    }
    question.stage_hosts.push_back(static_cast<int>(host - profile.hosts.begin()));
  }
  const int64_t context = job.context() > 0 ? job.context() : question.model->hyper.context;
  question.load.prompt_tokens =
      std::clamp<int64_t>(context - question.load.output_tokens, 1, question.load.prompt_tokens);
  question.load.output_tokens = std::clamp<int64_t>(context - 1, 1, question.load.output_tokens);
  if (const absl::StatusOr<ClusterPlan> plan = PlanInFlight(question, job.micro_batches()); plan.ok()) {
    absl::StatusOr<JobPlan> split = PlanJob(JobWith(job, SplitOf(plan->job)), hellos, *question.model, epoch);
    if (split.ok()) return split;
  }
  // What is wrong, or that no request of that length fits, is said of the job itself.
  ASSIGN_OR_RETURN(const std::shared_ptr<PlannedPipeline> costs, PipelineOn(question, hellos));
  const PartitionInput split_by = PartitionCosts(question, *costs);
  return PlanJob(job, hellos, *question.model, epoch, &split_by);
}

absl::StatusOr<double> LoneTokenSeconds(const ClusterQuestion& question) {
  RETURN_IF_ERROR(CheckHosts(question));
  ASSIGN_OR_RETURN(const std::shared_ptr<PlannedPipeline> costs, PipelineOn(question, HellosOf(question)));
  CHECK_EQ(costs->model.size(), 1);
  costs->model.stages.front().layers = {0, question.model->hyper.layer_count()};
  const double context = std::min(question.load.decode_context(), static_cast<double>(question.model->hyper.context));
  return PredictDecode(costs->model, /*sequences=*/1, context, /*groups=*/1).itl_s;
}

absl::Status UseDefaultSplit(ClusterQuestion* question) {
  if (question->job.layer_split_size() > 0) return absl::OkStatus();
  RETURN_IF_ERROR(Validate(*question));
  ASSIGN_OR_RETURN(const JobPlan as_run,
                   PlanJobUnmeasured(question->job, HellosOf(*question), question->model, JobEpoch{}));
  for (const pb::StageAssignment& stage : as_run.stages) {
    question->job.add_layer_split(stage.last_layer() - stage.first_layer());
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterPlan> PlanCluster(const ClusterQuestion& question) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kStages, static_cast<int64_t>(question.stage_hosts.size())));
  RETURN_IF_ERROR(CheckLoadFields(question.job));
  RETURN_IF_ERROR(CheckBlockTokens(question.job.block_tokens()));
  RETURN_IF_ERROR(Validate(question));
  const int32_t asked = question.job.micro_batches();
  ASSIGN_OR_RETURN(ClusterPlan plan, PlanInFlight(question, asked));
  if (asked > 0) return plan;
  const int32_t recommended = plan.job.micro_batches;
  const bool is_short = plan.sequences < question.job.max_num_seqs();
  // Frames in flight take memory: plans it again with the recommended number.
  if (recommended != plan.job.most_groups) {
    if (absl::StatusOr<ClusterPlan> again = PlanInFlight(question, recommended); again.ok()) plan = *std::move(again);
  }
  if (!is_short) return plan;
  // With one less there may be room for a sequence more, and one more may suit a split that now has room.
  for (const int32_t in_flight : {recommended - 1, recommended + 1}) {
    if (in_flight < 1 || in_flight > JobLimits::kMicroBatches.range.max) continue;
    absl::StatusOr<ClusterPlan> other = PlanInFlight(question, in_flight);
    if (other.ok() && other->output_tokens_per_s > plan.output_tokens_per_s) plan = *std::move(other);
  }
  return plan;
}

}  // namespace stagecoach
