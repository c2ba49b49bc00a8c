#include "coordinator/plan/stage_memory.h"

#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"

namespace stagecoach {

absl::StatusOr<std::vector<uint64_t>> KvBlockBytes(const ModelDescription& model, const pb::StageAssignment& stage) {
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(stage.kv_type()));
  std::vector<uint64_t> block_bytes(static_cast<size_t>(model.hyper.block_groups()));
  for (int64_t layer = stage.first_layer(); layer < stage.last_layer(); ++layer) {
    const LayerSpec& spec = model.hyper.layers[static_cast<size_t>(layer)];
    ASSIGN_OR_RETURN(const int64_t bytes, KvBytesPerTokenLayer(spec.attention, kv_type));
    block_bytes[static_cast<size_t>(spec.block_group)] += static_cast<uint64_t>(bytes * stage.block_tokens());
  }
  return block_bytes;
}

absl::StatusOr<StageMemory> StageMemoryOf(const ModelDescription& model, const pb::StageAssignment& stage,
                                          absl::Span<const int32_t> group_blocks) {
  StageMemory memory;
  memory.weights =
      StageWeightMemory(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
  ASSIGN_OR_RETURN(const std::vector<uint64_t> block_bytes, KvBlockBytes(model, stage));
  for (size_t group = 0; group < block_bytes.size(); ++group) {
    memory.kv += block_bytes[group] * static_cast<uint64_t>(group_blocks[group]);
  }
  ASSIGN_OR_RETURN(const InstructionSet isa, FromProto(stage.isa()));
  const StepLimits limits = {.max_rows = stage.max_rows(),
                             .max_slices = stage.max_slices(),
                             .context = stage.context(),
                             .threads = stage.threads(),
                             .bf16_dot = HasBf16Dot(isa)};
  memory.scratch = ScratchSizesOf(model, stage.first_layer(), stage.last_layer(), stage.owns_head(), limits).bytes();
  pb::StageAssignment with_pools = stage;
  with_pools.mutable_group_blocks()->Assign(group_blocks.begin(), group_blocks.end());
  const FrameLimits frames = LimitsOf(with_pools, model.hyper.hidden, model.hyper.vocab);
  memory.frames = frames.StageFrameBytes(stage.owns_head(), stage.in_flight());
  return memory;
}

}  // namespace stagecoach
