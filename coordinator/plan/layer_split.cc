#include "coordinator/plan/layer_split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/model/footprint.h"
#include "common/model/part_work.h"
#include "coordinator/plan/pool_plan.h"
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

// As if the stage had layers [begin, end).
absl::StatusOr<StageMemory> MemoryWith(pb::StageAssignment stage, int64_t begin, int64_t end,
                                       const ModelDescription& model, absl::Span<const int32_t> group_blocks) {
  stage.set_first_layer(begin);
  stage.set_last_layer(end);
  return StageMemoryOf(model, stage, group_blocks);
}

absl::StatusOr<PartitionMemory> MemoryOf(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                         const ModelDescription& model,
                                         const std::vector<pb::StageAssignment>& stages) {
  const int64_t layers = model.hyper.layer_count();
  const PoolSizes pools(job, model.hyper);
  PartitionMemory memory;
  memory.hosts = HostsOf(hellos);
  for (int64_t layer = 0; layer < layers; ++layer) {
    pb::StageAssignment alone = stages.front();
    alone.set_first_layer(layer);
    alone.set_last_layer(layer + 1);
    ASSIGN_OR_RETURN(const std::vector<uint64_t> block, KvBlockBytes(model, alone));
    memory.layer_bytes.push_back(StageWeightMemory(model, layer, layer + 1, false, false) +
                                 (job.kv_cache_bytes() > 0 ? 0 : LeastPoolBytes(job, pools, block)));
  }
  // Tensors that every stage has are in each of these.
  const uint64_t layer = StageWeightMemory(model, 0, 1, false, false);
  const uint64_t with_embedding = StageWeightMemory(model, 0, 1, true, false);
  const uint64_t with_head = StageWeightMemory(model, 0, 1, false, true);
  memory.embedding_bytes = with_embedding - layer;
  memory.head_bytes = with_head - layer;
  memory.tied_bytes = with_embedding + with_head - layer - StageWeightMemory(model, 0, 1, true, true);
  const int64_t typical = (layers + static_cast<int64_t>(stages.size()) - 1) / static_cast<int64_t>(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    pb::StageAssignment usual = stages[i];
    usual.set_first_layer(0);
    usual.set_last_layer(typical);
    ASSIGN_OR_RETURN(const std::vector<uint64_t> block, KvBlockBytes(model, usual));
    const uint64_t blocks = std::min(MostBlocks(job, stages[i].context()),
                                     std::max<uint64_t>(1, pools.Fitting(hellos[i].available_memory_bytes(), block)));
    ASSIGN_OR_RETURN(const StageMemory all, MemoryWith(stages[i], 0, layers, model, pools.Blocks(blocks)));
    memory.stage_bytes.push_back(all.buffers() + std::min<uint64_t>(job.kv_cache_bytes(), kMostGivenBytes));
  }
  return memory;
}

}  // namespace

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
    for (const PartWork& layer : parts.layers) input.layer_cost.push_back(layer.BytesTouched(rows));
    input.head_cost = parts.head.BytesTouched(rows);
  }
  input.stages = static_cast<int>(stages.size());
  input.memory = {};
  // First without memory: what is wrong with the rest is then not hidden behind it.
  ASSIGN_OR_RETURN(split.layers, PartitionLayers(input));
  ASSIGN_OR_RETURN(input.memory, MemoryOf(job, hellos, model, stages));
  absl::StatusOr<std::vector<LayerRange>> within = PartitionLayers(input);
  if (within.ok()) {
    split.layers = *std::move(within);
  } else if (input.memory.hosts.size() > 1 && job.kv_cache_bytes() == 0) {
    split.lack = within.status();  // otherwise the sizing of the pools says it better: it knows the fields
  }
  return split;
}

}  // namespace stagecoach
