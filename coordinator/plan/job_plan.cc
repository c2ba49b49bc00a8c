#include "coordinator/plan/job_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/frame.h"
#include "coordinator/plan/cpu_plan.h"
#include "coordinator/plan/partitioner.h"

namespace stagecoach {
namespace {

constexpr int64_t kMinOpenTokens = 16384;

absl::Status CheckRange(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", value, ", expected ", low, " to ", high));
}

absl::Status CheckOptions(const pb::ConfigureJob& job, const ModelDescription& model) {
  RETURN_IF_ERROR(CheckRange("--max-num-seqs", job.max_num_seqs(), 1, 4096));
  RETURN_IF_ERROR(CheckRange("--max-num-batched-tokens", job.max_num_batched_tokens(), 1, 65536));
  RETURN_IF_ERROR(CheckRange("--prefill-chunk", job.prefill_chunk(), 1, 65536));
  RETURN_IF_ERROR(CheckRange("--micro-batches", job.micro_batches(), 0, 256));
  RETURN_IF_ERROR(CheckRange("--threads", job.threads(), 0, 1024));
  if (job.cpu_bind() != "" && job.cpu_bind() != "auto" && job.cpu_bind() != "none") {
    return absl::InvalidArgumentError(absl::StrCat("--cpu-bind is '", job.cpu_bind(), "', expected auto or none"));
  }
  RETURN_IF_ERROR(CheckRange("--block-size", job.block_tokens(), 16, 1024));
  if (job.block_tokens() % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-size is ", job.block_tokens(), ", expected a multiple of 16"));
  }
  if (job.context() > model.hyper.context) {
    return absl::InvalidArgumentError(absl::StrCat("--ctx-size is ", job.context(), ", but the model was trained for ",
                                                   model.hyper.context, " tokens; give at most that"));
  }
  return ParseWireType(job.wire_type()).status();
}

absl::StatusOr<std::vector<LayerRange>> SplitLayers(const pb::ConfigureJob& job, const ModelDescription& model,
                                                    int stages) {
  if (job.layer_split_size() > 0) {
    return ParseLayerSplit(absl::StrJoin(job.layer_split(), ","), model.hyper.layers, stages);
  }
  const ModelCosts costs = CostsOf(model);
  PartitionInput input;
  input.layer_cost = costs.layer_bytes;
  input.head_cost = costs.head_bytes;
  input.stages = stages;
  return PartitionLayers(input);
}

std::map<std::string, int> StagesByHost(const std::vector<pb::Hello>& stages) {
  std::map<std::string, int> count;
  for (const pb::Hello& hello : stages) ++count[hello.host()];
  return count;
}

// Bytes each stage may use for its pool when the user does not say: its share of half of what the host has, less the
// weights.
std::vector<uint64_t> PoolBudgets(const std::vector<pb::Hello>& hellos, const ModelDescription& model,
                                  const std::vector<pb::StageAssignment>& stages) {
  const std::map<std::string, int> by_host = StagesByHost(hellos);
  std::map<std::string, uint64_t> weights, available;
  for (size_t i = 0; i < stages.size(); ++i) {
    const pb::StageAssignment& stage = stages[i];
    weights[hellos[i].host()] +=
        StageWeightBytes(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
    uint64_t& least = available.try_emplace(hellos[i].host(), hellos[i].available_memory_bytes()).first->second;
    least = std::min<uint64_t>(least, hellos[i].available_memory_bytes());
  }
  std::vector<uint64_t> budgets;
  for (const pb::Hello& hello : hellos) {
    const uint64_t half = available[hello.host()] / 2;
    const uint64_t used = weights[hello.host()];
    budgets.push_back(half > used ? (half - used) / by_host.at(hello.host()) : 0);
  }
  return budgets;
}

// What the user asks of a host must be there beside its weights: all of its stages take it.
absl::Status CheckGivenPool(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                            const ModelDescription& model, const std::vector<pb::StageAssignment>& stages) {
  std::map<std::string, uint64_t> wanted;
  for (size_t i = 0; i < stages.size(); ++i) {
    const uint64_t available = hellos[i].available_memory_bytes();
    const pb::StageAssignment& stage = stages[i];
    uint64_t& sum = wanted[hellos[i].host()];
    sum += StageWeightBytes(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
    sum += std::min(job.kv_cache_bytes(), available + 1);  // no overflow, whatever was asked for
    if (sum > available) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "--kv-cache-memory is ", job.kv_cache_bytes(), " bytes a stage; with their weights the stages on ",
          hellos[i].host(), " need more than the ", available, " bytes of memory available there; give less"));
    }
  }
  return absl::OkStatus();
}

// Sets plan->blocks and plan->context.
absl::Status SizePool(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos, const ModelDescription& model,
                      JobPlan* plan) {
  ASSIGN_OR_RETURN(const uint64_t token_layer_bytes, KvBytesPerTokenLayer(model.hyper, job.kv_type()));
  const int64_t wanted_context = job.context() > 0 ? job.context() : model.hyper.context;
  const int64_t blocks_a_sequence = (wanted_context + job.block_tokens() - 1) / job.block_tokens();
  if (job.kv_cache_bytes() > 0) RETURN_IF_ERROR(CheckGivenPool(job, hellos, model, plan->stages));
  const std::vector<uint64_t> budgets = PoolBudgets(hellos, model, plan->stages);
  // Given bytes are taken as they are; a default never asks for more than the sequences could use.
  uint64_t blocks =
      job.kv_cache_bytes() > 0 ? INT32_MAX : static_cast<uint64_t>(job.max_num_seqs()) * blocks_a_sequence;
  for (size_t i = 0; i < plan->stages.size(); ++i) {
    const uint64_t layers = plan->stages[i].last_layer() - plan->stages[i].first_layer();
    const uint64_t block_bytes = layers * job.block_tokens() * token_layer_bytes;
    const uint64_t budget = job.kv_cache_bytes() > 0 ? job.kv_cache_bytes() : budgets[i];
    if (budget < block_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "stage ", i, " on ", hellos[i].host(), " has ", budget, " bytes for its KV cache, but one block of ",
          job.block_tokens(), " tokens needs ", block_bytes,
          job.kv_cache_bytes() > 0 ? "; raise --kv-cache-memory" : "; use more stages or hosts with more memory"));
    }
    blocks = std::min<uint64_t>(blocks, budget / block_bytes);
  }
  plan->blocks = static_cast<int32_t>(std::min<uint64_t>(blocks, INT32_MAX / 2));
  const int64_t pool_tokens = static_cast<int64_t>(plan->blocks) * job.block_tokens();
  plan->context = job.context() > 0 ? job.context() : std::min(wanted_context, pool_tokens);
  return absl::OkStatus();
}

// The one instruction set all stages compute with: answers may differ in the last bit between two.
absl::StatusOr<std::string> CommonIsa(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages) {
  if (!job.isa().empty() && job.isa() != "auto") return job.isa();
  for (size_t i = 1; i < stages.size(); ++i) {
    if (stages[i].isa() != stages[0].isa()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "stage 0 on ", stages[0].host(), " computes with ", stages[0].isa(), ", stage ", i, " on ", stages[i].host(),
          " with ", stages[i].isa(), "; name one that every host has with --isa (scalar, avx2, avx512-vnni)"));
    }
  }
  return stages[0].isa();
}

void FillCommon(const pb::ConfigureJob& job, const ModelDescription& model, uint64_t run_id, const std::string& isa,
                const JobPlan& plan, pb::StageAssignment* stage) {
  stage->set_run_id(run_id);
  stage->set_model_path(model.file->path());
  stage->set_q2_layout(job.q2_layout());
  for (const FileFingerprint& fingerprint : model.file->fingerprints()) {
    pb::FileFingerprint* out = stage->add_fingerprints();
    out->set_size_bytes(fingerprint.size_bytes);
    out->set_modified_ns(fingerprint.modified_ns);
    out->set_header_hash(fingerprint.header_hash);
  }
  stage->set_block_tokens(job.block_tokens());
  stage->set_blocks(plan.blocks);
  stage->set_kv_type(job.kv_type());
  stage->set_wire_type(job.wire_type());
  stage->set_context(plan.context);
  stage->set_max_rows(job.max_num_batched_tokens());
  stage->set_max_slices(job.max_num_seqs());
  stage->set_max_open_tokens(plan.max_open_tokens);
  stage->set_in_flight(plan.micro_batches);
  stage->set_isa(isa);
  stage->set_stage_delay_us(job.stage_delay_us());
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                const ModelDescription& model, uint64_t run_id) {
  RETURN_IF_ERROR(CheckOptions(job, model));
  const int stages = static_cast<int>(hellos.size());
  if (job.stages() > 0 && job.stages() != stages) {
    return absl::InvalidArgumentError(absl::StrCat("--pp asks for ", job.stages(), " stages, but this world has ",
                                                   stages,
                                                   "; start as many stage_workers as --pp says, or leave --pp out"));
  }
  ASSIGN_OR_RETURN(const std::vector<LayerRange> split, SplitLayers(job, model, stages));
  ASSIGN_OR_RETURN(const std::string isa, CommonIsa(job, hellos));
  const std::vector<StageCpus> cpus = PlanCpus(hellos, job.threads(), job.cpu_bind() != "none");
  JobPlan plan;
  for (int i = 0; i < stages; ++i) {
    pb::StageAssignment stage;
    stage.set_stage(i);
    stage.set_stages(stages);
    stage.set_first_layer(split[i].begin);
    stage.set_last_layer(split[i].end);
    stage.set_owns_embedding(i == 0);
    stage.set_owns_head(i + 1 == stages);
    stage.set_threads(cpus[i].threads);
    stage.mutable_cpus()->Add(cpus[i].cpus.begin(), cpus[i].cpus.end());
    plan.stages.push_back(std::move(stage));
  }
  RETURN_IF_ERROR(SizePool(job, hellos, model, &plan));
  plan.micro_batches = job.micro_batches() > 0 ? job.micro_batches() : stages;
  plan.max_open_tokens = std::max(plan.context, kMinOpenTokens);
  for (pb::StageAssignment& stage : plan.stages) FillCommon(job, model, run_id, isa, plan, &stage);
  return plan;
}

}  // namespace stagecoach
