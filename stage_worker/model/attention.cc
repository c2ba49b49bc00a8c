#include "stage_worker/model/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

constexpr int64_t kColumnsPerWork =
    64;  // enough to reuse K and V from the first-level cache, little enough to share out

const uint8_t* const* FindTiles(const KvPool& pool, int64_t layer, int64_t kv_head, const BlockId* blocks,
                                int64_t start, int positions, AttentionScratch* scratch) {
  const int32_t block_tokens = pool.shape().block_tokens;
  for (int t = 0; t * kTilePositions < positions; ++t) {
    const int64_t position = start + t * kTilePositions;
    const BlockId block = blocks[position / block_tokens];
    const int32_t tile = static_cast<int32_t>(position % block_tokens / kTilePositions);
    scratch->k_tiles[t] = pool.KTile(layer, block, kv_head, tile);
    scratch->v_tiles[t] = pool.VTile(layer, block, kv_head, tile);
  }
  return scratch->k_tiles;
}

// Columns are (row, query head of the group), scaled queries side by side.
void GatherQueries(const AttentionWork& work, int64_t group, const StepContext& step, AttentionScratch* scratch) {
  const int64_t head_dim = step.hyper.head_dim;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  float* out = scratch->q.as<float>();
  for (int32_t row = 0; row < work.rows; ++row) {
    const float* q =
        step.scratch.q.as<float>() + (work.first_row + row) * step.scratch.q_stride + work.kv_head * group * head_dim;
    for (int64_t i = 0; i < group * head_dim; ++i) *out++ = q[i] * scale;
  }
}

void StartSoftmax(int64_t columns, int64_t head_dim, AttentionScratch* scratch) {
  std::fill_n(scratch->max.begin(), columns, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch->sum.begin(), columns, 0.0f);
  std::fill_n(scratch->acc.as<float>(), columns * head_dim, 0.0f);
}

void ScatterResults(const AttentionWork& work, int64_t group, const StepContext& step,
                    const AttentionScratch& scratch) {
  const int64_t head_dim = step.hyper.head_dim;
  for (int32_t row = 0; row < work.rows; ++row) {
    float* out = step.scratch.attended.as<float>() + (work.first_row + row) * step.scratch.q_stride +
                 work.kv_head * group * head_dim;
    for (int64_t head = 0; head < group; ++head) {
      const int64_t column = row * group + head;
      const float* acc = scratch.acc.as<float>() + column * head_dim;
      for (int64_t d = 0; d < head_dim; ++d)
        out[head * head_dim + d] = acc[d] / scratch.sum[static_cast<size_t>(column)];
    }
  }
}

void RunAttentionWork(const AttentionWork& work, int64_t layer, const StepContext& step, AttentionScratch* scratch) {
  const int64_t group = step.hyper.heads / step.hyper.kv_heads;
  const int64_t columns = work.rows * group;
  const StepRow& first = step.plan.rows()[static_cast<size_t>(work.first_row)];
  const int64_t end = first.position + work.rows;  // positions that the last row sees
  GatherQueries(work, group, step, scratch);
  StartSoftmax(columns, step.hyper.head_dim, scratch);
  // Granules lie at fixed absolute positions, so that a row's sum is the same in any chunk.
  for (int64_t start = 0; start < end; start += kAttentionGranule) {
    AttentionSpan span;
    span.type = step.pool.shape().type;
    span.head_dim = static_cast<int>(step.hyper.head_dim);
    span.positions = static_cast<int>(std::min<int64_t>(kAttentionGranule, end - start));
    span.k_tiles = FindTiles(step.pool, layer, work.kv_head, first.blocks, start, span.positions, scratch);
    span.v_tiles = scratch->v_tiles;
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t visible = first.position + column / group + 1 - start;
      scratch->limits[static_cast<size_t>(column)] =
          static_cast<int32_t>(std::clamp<int64_t>(visible, 0, span.positions));
    }
    step.kernels.attend(span, scratch->q.as<float>(), step.hyper.head_dim, scratch->limits.data(),
                        static_cast<int>(columns),
                        {scratch->max.data(), scratch->sum.data(), scratch->acc.as<float>()});
  }
  ScatterResults(work, group, step, *scratch);
}

}  // namespace

int32_t AttentionRowsPerWork(int64_t group) {
  return static_cast<int32_t>(std::max<int64_t>(1, kColumnsPerWork / group));
}

void Attend(int64_t layer, const StepContext& step, const Worker& worker) {
  AttentionScratch* scratch = &step.scratch.attention[static_cast<size_t>(worker.thread)];
  const std::vector<AttentionWork>& work = step.plan.attention();
  const int64_t count = static_cast<int64_t>(work.size());
  // From the end, where the longest walks of a prefill chunk are; who takes what does not change a result.
  for (int64_t taken; (taken = step.scratch.next_attention_work.fetch_add(1, std::memory_order_relaxed)) < count;) {
    RunAttentionWork(work[static_cast<size_t>(count - 1 - taken)], layer, step, scratch);
  }
}

}  // namespace stagecoach
