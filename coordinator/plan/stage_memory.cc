#include "coordinator/plan/stage_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/model/footprint.h"
#include "common/step/step.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMostBlocks = JobLimits::kGroupBlocks.range.max;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;
// With a prefix cache: windows that it can keep beside those in use, for each sequence that can run.
constexpr int64_t kKeptWindows = 4;

// Of a group with a window, that all sequences together can use.
uint64_t MostUsed(const pb::ConfigureJob& job, int64_t window, int32_t most_guesses) {
  const int64_t chunk = std::max(1, std::min(job.prefill_chunk(), job.max_num_batched_tokens()));
  int64_t blocks = MostBlocksSeen(std::max<int64_t>(chunk, 1 + most_guesses), window, job.block_tokens());
  if (job.prefix_caching()) blocks += kKeptWindows * MostBlocksSeen(1, window, job.block_tokens());
  return std::min(kMostBlocks, static_cast<uint64_t>(job.max_num_seqs()) * static_cast<uint64_t>(blocks));
}

// The pools' share of what weights and buffers leave.
constexpr uint64_t kPoolDivisor = 2;
// Where an earlier job accepted requests, as much of the rest as these need, but for this part of it.
constexpr uint64_t kSpareDivisor = 8;

// Of the tokens that a relaunch must have room for.
uint64_t NeededBlocks(const pb::ConfigureJob& job) {
  const auto block_tokens = static_cast<uint64_t>(job.block_tokens());
  const auto tokens = static_cast<uint64_t>(job.min_kv_tokens());
  return std::min(tokens / block_tokens + (tokens % block_tokens == 0 ? 0 : 1), kMostBlocks);
}

// What the stages of one host need of its memory, in bytes.
struct HostNeeds {
  std::vector<int32_t> stages;
  uint64_t available = std::numeric_limits<uint64_t>::max();
  uint64_t weights = 0;
  uint64_t buffers = 0;
  PoolUnits pools;  // of all stages together

  uint64_t fixed() const { return weights + buffers; }
};

std::string NameOf(const std::string& host, const HostNeeds& needs) {
  if (needs.stages.size() == 1) return StageName(needs.stages[0], host);
  return absl::StrCat("stages ", absl::StrJoin(needs.stages, ", "), " on ", host);
}

std::string FixedOf(const HostNeeds& needs) {
  return absl::StrCat("weights (", needs.weights, " bytes) and buffers (about ", needs.buffers, " bytes)");
}

// "one block of 32 tokens needs", of the least that pools can hold. `whose`: " of stage 0", or nothing.
std::string LeastText(const pb::ConfigureJob& job, const PoolSizes& sizes, const PoolUnits& pools,
                      const std::string& whose) {
  const std::string block = absl::StrCat("one block of ", job.block_tokens(), " tokens", whose);
  if (pools.state == 0) return absl::StrCat(block, " needs");
  const int64_t guesses = sizes.most_guesses(), snapshots = sizes.Slots(1) - guesses - job.max_num_seqs();
  return absl::StrCat(
      block, " and the recurrent states of ", CountOf(job.max_num_seqs(), "sequence"), " (`max_num_seqs`)",
      guesses > 0 ? absl::StrCat(" and of ", CountOf(guesses, "guessed row"), " (`speculate`)") : "",
      snapshots > 0 ? absl::StrCat(" and of ", snapshots, " snapshots (`prefix_caching`)") : "", " need");
}

// Blocks of each pool without a window on this host.
absl::StatusOr<uint64_t> BlocksOn(const std::string& host, const HostNeeds& needs, const pb::ConfigureJob& job,
                                  const PoolSizes& sizes) {
  const uint64_t stages = needs.stages.size(), given = job.kv_cache_bytes();
  if (needs.fixed() > needs.available) {
    const char* lower = needs.buffers > needs.weights ? "lower `max_num_batched_tokens`, " : "";
    return absl::ResourceExhaustedError(absl::StrCat(
        NameOf(host, needs), ": ", FixedOf(needs), " need ", needs.fixed(), " bytes of memory, but ", needs.available,
        " are available; ", lower, "use more hosts, hosts with more memory or a smaller model file"));
  }
  const uint64_t rest = needs.available - needs.fixed();
  if (given > rest / stages) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "`kv_cache_bytes` is ", given, " bytes a stage, but ", FixedOf(needs), " of ", NameOf(host, needs), " leave ",
        rest, " of the ", needs.available, " bytes of memory available there; give at most ", rest / stages));
  }
  if (given > 0) return kMostBlocks;  // each stage has its own
  const uint64_t needed = sizes.Bytes(NeededBlocks(job), needs.pools), one = sizes.Bytes(1, needs.pools);
  const uint64_t pools = std::max(rest / kPoolDivisor, std::min(needed, rest - rest / kSpareDivisor));
  if (pools < one) {
    return absl::ResourceExhaustedError(absl::StrCat(
        NameOf(host, needs), ": ", FixedOf(needs), " leave ", rest, " of ", needs.available,
        " bytes of available memory, and half of that is for the KV cache; ", LeastText(job, sizes, needs.pools, ""),
        " ", one, " bytes. ", needs.pools.state > 0 ? "Lower `max_num_seqs`, set" : "Set",
        " `kv_cache_bytes` to what each stage may take of it, or use "
        "more hosts or hosts with more memory"));
  }
  return sizes.Fitting(pools, needs.pools);
}

absl::Status CheckGiven(const pb::ConfigureJob& job, const std::string& stage, const PoolSizes& sizes,
                        const PoolUnits& pools) {
  const uint64_t one = sizes.Bytes(1, pools);
  if (job.kv_cache_bytes() == 0 || job.kv_cache_bytes() >= one) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "`kv_cache_bytes` is ", job.kv_cache_bytes(), ", but ", LeastText(job, sizes, pools, absl::StrCat(" of ", stage)),
      " ", one, " bytes; give at least that", pools.state > 0 ? ", or lower `max_num_seqs`" : ""));
}

}  // namespace

absl::StatusOr<PoolUnits> PoolUnitsOf(const ModelDescription& model, const pb::StageAssignment& stage) {
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(stage.kv_type()));
  PoolUnits units;
  units.blocks.resize(static_cast<size_t>(model.hyper.block_groups()));
  for (int64_t layer = stage.first_layer(); layer < stage.last_layer(); ++layer) {
    const LayerSpec& spec = model.hyper.layers[static_cast<size_t>(layer)];
    if (spec.recurrent()) continue;
    ASSIGN_OR_RETURN(const int64_t bytes, KvBytesPerTokenLayer(spec.attention, kv_type));
    units.blocks[static_cast<size_t>(spec.block_group)] += static_cast<uint64_t>(bytes * stage.block_tokens());
  }
  units.state = static_cast<uint64_t>(StateBytes(model.hyper, stage.first_layer(), stage.last_layer()));
  return units;
}

absl::StatusOr<StageMemory> StageMemoryOf(const ModelDescription& model, const pb::StageAssignment& stage,
                                          absl::Span<const int32_t> group_blocks, int32_t state_slots) {
  StageMemory memory;
  memory.weights =
      StageWeightMemory(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
  ASSIGN_OR_RETURN(const PoolUnits units, PoolUnitsOf(model, stage));
  memory.kv = memory.states = units.state * static_cast<uint64_t>(state_slots);
  for (size_t group = 0; group < units.blocks.size(); ++group) {
    memory.kv += units.blocks[group] * static_cast<uint64_t>(group_blocks[group]);
  }
  ASSIGN_OR_RETURN(const InstructionSet isa, FromProto(stage.isa()));
  const StepLimits limits = {.max_rows = stage.max_rows(),
                             .max_slices = stage.max_slices(),
                             .context = stage.context(),
                             .threads = stage.threads(),
                             .bf16_dot = HasBf16Dot(isa)};
  const StageScratchSizes scratch =
      ScratchSizesOf(model, stage.first_layer(), stage.last_layer(), stage.owns_head(), limits);
  memory.scratch = scratch.bytes();
  memory.grammars = scratch.head.has_value() ? scratch.head->grammar_bytes() : 0;
  pb::StageAssignment with_pools = stage;
  with_pools.mutable_group_blocks()->Assign(group_blocks.begin(), group_blocks.end());
  with_pools.set_state_slots(state_slots);
  const FrameLimits frames = LimitsOf(with_pools, model.hyper.hidden, model.hyper.vocab);
  memory.frames = frames.StageFrameBytes(stage.owns_head(), stage.in_flight());
  return memory;
}

std::vector<int64_t> ReleaseWindows(const HyperParameters& hyper) {
  std::vector<int64_t> windows = hyper.group_windows();
  if (std::count(windows.begin(), windows.end(), 0) == 0) windows.front() = 0;
  if (std::count(windows.begin(), windows.end(), 0) == static_cast<int64_t>(windows.size())) windows.clear();
  return windows;
}

PoolSizes::PoolSizes(const pb::ConfigureJob& job, const HyperParameters& hyper, int32_t most_guesses)
    : sequences_(job.max_num_seqs()), most_guesses_(most_guesses), snapshots_(job.prefix_caching()) {
  const std::vector<int64_t> windows = ReleaseWindows(hyper);
  for (int32_t group = 0; group < hyper.block_groups(); ++group) {
    const int64_t window = WindowOf(windows, static_cast<size_t>(group));
    most_.push_back(window > 0 ? MostUsed(job, window, most_guesses) : kMostBlocks);
  }
  if (!hyper.recurrent()) return;
  int64_t block_bytes = 0;
  const KvType kv_type = FromProto(job.kv_type()).value_or(KvType::kF16);  // one that is none is refused elsewhere
  for (const LayerSpec& layer : hyper.layers) {
    if (layer.recurrent()) continue;
    block_bytes += KvBytesPerTokenLayer(layer.attention, kv_type).value_or(0) * job.block_tokens();
  }
  block_bytes = std::max<int64_t>(block_bytes, 1);
  const int64_t state_blocks = (StateBytes(hyper, 0, hyper.layer_count()) + block_bytes - 1) / block_bytes;
  state_blocks_ = static_cast<int32_t>(std::clamp<int64_t>(state_blocks, 1, JobLimits::kStateBlocks.range.max));
}

std::vector<int32_t> PoolSizes::Blocks(uint64_t blocks) const {
  std::vector<int32_t> group_blocks;
  for (const uint64_t most : most_) group_blocks.push_back(static_cast<int32_t>(std::min(blocks, most)));
  return group_blocks;
}

int32_t PoolSizes::Slots(uint64_t blocks) const {
  if (state_blocks_ == 0) return 0;
  int64_t slots = sequences_ + most_guesses_;
  if (snapshots_) {
    const auto as_large = static_cast<int64_t>(std::min(blocks, kMostBlocks)) / state_blocks_;
    slots += std::max(as_large, kLeastSnapshots);
  }
  return static_cast<int32_t>(std::min(slots, JobLimits::kStateSlots.range.max));
}

uint64_t PoolSizes::Bytes(uint64_t blocks, const PoolUnits& units) const {
  uint64_t sum = 0;
  const auto add = [&sum](uint64_t count, uint64_t each) {
    uint64_t bytes = 0;
    const bool overflow = __builtin_mul_overflow(count, each, &bytes);
    sum = overflow || bytes > kMostBytes - sum ? kMostBytes : sum + bytes;
  };
  for (size_t group = 0; group < most_.size(); ++group) add(std::min(blocks, most_[group]), units.blocks[group]);
  add(static_cast<uint64_t>(Slots(blocks)), units.state);
  return sum;
}

uint64_t PoolSizes::Fitting(uint64_t bytes, const PoolUnits& units) const {
  uint64_t fits = 0, beyond = kMostBlocks + 1;
  while (beyond - fits > 1) {
    const uint64_t blocks = fits + (beyond - fits) / 2;
    (Bytes(blocks, units) <= std::min(bytes, kMostBytes - 1) ? fits : beyond) = blocks;
  }
  return fits;
}

uint64_t LeastPoolBytes(const pb::ConfigureJob& job, const PoolSizes& pools, const PoolUnits& units) {
  constexpr uint64_t kMost = uint64_t{1} << 50;
  const uint64_t one = std::min(kPoolDivisor * pools.Bytes(1, units), kMost), blocks = NeededBlocks(job);
  if (blocks == 0) return one;
  const uint64_t needed = pools.Bytes(blocks, units);
  if (needed > kMost / 4) return kMost;
  return std::min(std::max(one, needed + needed / (kSpareDivisor - 1) + 1), kMost);
}

uint64_t MostBlocks(const pb::ConfigureJob& job, int64_t context) {
  const int64_t blocks_a_sequence = (context + job.block_tokens() - 1) / job.block_tokens();
  return std::min(kMostBlocks, static_cast<uint64_t>(job.max_num_seqs()) * static_cast<uint64_t>(blocks_a_sequence));
}

absl::StatusOr<int32_t> PlanBlocks(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                   const ModelDescription& model, const std::vector<pb::StageAssignment>& stages,
                                   int64_t wanted_context) {
  // Given bytes are taken as they are; a default never asks for more than the sequences could use.
  const PoolSizes pools(job, model.hyper, stages.front().most_guesses());
  uint64_t blocks = kMostBlocks;
  if (job.kv_cache_bytes() == 0) blocks = MostBlocks(job, wanted_context);
  std::map<std::string, HostNeeds> hosts;
  for (size_t i = 0; i < stages.size(); ++i) {
    const pb::StageAssignment& stage = stages[i];
    HostNeeds& needs = hosts[hellos[i].host()];
    needs.stages.push_back(stage.stage());
    needs.available = std::min<uint64_t>(needs.available, hellos[i].available_memory_bytes());
    ASSIGN_OR_RETURN(const PoolUnits units, PoolUnitsOf(model, stage));
    needs.pools.blocks.resize(units.blocks.size());
    for (size_t group = 0; group < units.blocks.size(); ++group) needs.pools.blocks[group] += units.blocks[group];
    needs.pools.state += units.state;
    RETURN_IF_ERROR(CheckGiven(job, StageName(stage.stage(), hellos[i].host()), pools, units));
    if (job.kv_cache_bytes() > 0) blocks = std::min(blocks, pools.Fitting(job.kv_cache_bytes(), units));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    HostNeeds& needs = hosts[hellos[i].host()];
    // Frames grow with the number of blocks.
    const uint64_t most = std::min(blocks, pools.Fitting(needs.available, needs.pools));
    ASSIGN_OR_RETURN(const StageMemory memory, StageMemoryOf(model, stages[i], pools.Blocks(most), pools.Slots(most)));
    needs.weights += memory.weights;
    needs.buffers += memory.buffers();
  }
  for (const auto& [host, needs] : hosts) {
    ASSIGN_OR_RETURN(const uint64_t fitting, BlocksOn(host, needs, job, pools));
    blocks = std::min(blocks, fitting);
  }
  return static_cast<int32_t>(blocks);
}

}  // namespace stagecoach
