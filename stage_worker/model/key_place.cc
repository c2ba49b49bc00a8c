#include "stage_worker/model/key_place.h"

#include "stage_worker/kv/kv_pool.h"

namespace stagecoach {

void Rotate(const StageLayer& layer, int64_t row, const StepContext& step, float* x) {
  if (layer.angles < 0) return;
  const RopeParameters& rope = layer.spec.attention.rope;
  const StepAngles& angles = step.scratch.angles[static_cast<size_t>(layer.angles)];
  step.kernels.rope(x, angles.cos.as<float>() + row * angles.pairs, angles.sin.as<float>() + row * angles.pairs,
                    static_cast<int>(rope.dims), rope.pairs == RopePairs::kHalves);
}

namespace {

struct KvPlace {
  BlockId block;
  int32_t tile;
  int lane;
};

KvPlace PlaceOf(const LayerSpec& layer, int64_t row, const StepContext& step) {
  const StepRow& at = step.plan.rows()[static_cast<size_t>(row)];
  const int32_t block_tokens = step.PoolOf(layer).shape().block_tokens;
  const int32_t offset = static_cast<int32_t>(at.position % block_tokens);
  return {at.tables[layer.block_group][at.position / block_tokens], offset / kTilePositions, offset % kTilePositions};
}

}  // namespace

void StoreK(const StageLayer& layer, int64_t kv_head, int64_t row, const StepContext& step, const float* head) {
  const KvPlace place = PlaceOf(layer.spec, row, step);
  KvPool& pool = step.PoolOf(layer.spec);
  step.kernels.store_k(pool.shape().type, head, static_cast<int>(layer.spec.attention.key_dim()), place.lane,
                       pool.KTile(layer.pool_layer, place.block, kv_head, place.tile));
}

void StoreV(const StageLayer& layer, int64_t kv_head, int64_t row, const StepContext& step, const float* head) {
  const KvPlace place = PlaceOf(layer.spec, row, step);
  KvPool& pool = step.PoolOf(layer.spec);
  step.kernels.store_v(pool.shape().type, head, static_cast<int>(layer.spec.attention.head_dim), place.lane,
                       pool.VTile(layer.pool_layer, place.block, kv_head, place.tile));
}

}  // namespace stagecoach
