#include "coordinator/plan/stage_memory.h"

#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"

namespace stagecoach {

absl::StatusOr<uint64_t> KvBlockBytes(const ModelDescription& model, const pb::StageAssignment& stage) {
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(stage.kv_type()));
  uint64_t token_bytes = 0;
  for (int64_t layer = stage.first_layer(); layer < stage.last_layer(); ++layer) {
    const AttentionSpec& attention = model.hyper.layers[static_cast<size_t>(layer)].attention;
    ASSIGN_OR_RETURN(const int64_t bytes, KvBytesPerTokenLayer(attention, kv_type));
    token_bytes += static_cast<uint64_t>(bytes);
  }
  return token_bytes * static_cast<uint64_t>(stage.block_tokens());
}

absl::StatusOr<StageMemory> StageMemoryOf(const ModelDescription& model, const pb::StageAssignment& stage,
                                          uint64_t blocks) {
  StageMemory memory;
  memory.weights =
      StageWeightMemory(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
  ASSIGN_OR_RETURN(const uint64_t block, KvBlockBytes(model, stage));
  memory.kv = block * blocks;
  ASSIGN_OR_RETURN(const InstructionSet isa, FromProto(stage.isa()));
  const StepLimits limits = {.max_rows = stage.max_rows(),
                             .max_slices = stage.max_slices(),
                             .context = stage.context(),
                             .threads = stage.threads(),
                             .bf16_dot = HasBf16Dot(isa)};
  memory.scratch = ScratchSizesOf(model, stage.first_layer(), stage.last_layer(), stage.owns_head(), limits).bytes();
  pb::StageAssignment with_pools = stage;
  with_pools.clear_group_blocks();
  for (int32_t group = 0; group < model.hyper.block_groups(); ++group) {
    with_pools.add_group_blocks(static_cast<int32_t>(blocks));
  }
  const FrameLimits frames = LimitsOf(with_pools, model.hyper.hidden, model.hyper.vocab);
  memory.frames = frames.StageFrameBytes(stage.owns_head(), stage.in_flight());
  return memory;
}

}  // namespace stagecoach
