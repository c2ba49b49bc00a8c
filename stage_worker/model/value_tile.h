#ifndef STAGECOACH_STAGE_WORKER_MODEL_VALUE_TILE_H_
#define STAGECOACH_STAGE_WORKER_MODEL_VALUE_TILE_H_

#include <cstdint>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// Lays out the V tile [16 positions][value_dim] whose values are the first value_dim dimensions of a K tile
// [key_dim][16 positions], as they are stored (KvTileBytes says how). Q8_0: both widths are multiples of kKvGroup.
void LayOutValues(KvType type, const uint8_t* k_tile, int64_t key_dim, int64_t value_dim, uint8_t* v_tile);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_VALUE_TILE_H_
