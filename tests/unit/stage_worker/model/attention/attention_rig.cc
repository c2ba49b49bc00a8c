#include "tests/unit/stage_worker/model/attention/attention_rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/attention/attention.h"

namespace stagecoach::testing {
namespace {

constexpr int32_t kRigBlockTokens = 32, kRigBlocks = 512;
constexpr int64_t kRigHidden = 64;

LayerSpec LayerOf(const AttentionSpec& attention) {
  LayerSpec spec;
  spec.attention = attention;
  spec.ffn.width = 64;
  return spec;
}

LayerScratchSizes SizesOf(const AttentionSpec& spec, int threads) {
  LayerScratchSizes sizes;
  sizes.limits = {.max_rows = 128, .max_slices = 16, .context = 8192, .threads = threads};
  sizes.q_stride = spec.heads * spec.key_dim() + 16;
  sizes.kv_stride = spec.kv_heads * spec.key_dim();
  sizes.attended_stride = spec.heads * spec.cached_value_dim() + 32;
  sizes.input_width = spec.heads * spec.key_dim();
  sizes.ffn_width = kRigHidden;
  sizes.walks = {AttentionSizes::Of(spec, sizes.limits)};
  return sizes;
}

std::vector<KvPool> PoolFor(const AttentionSpec& spec, KvType type) {
  KvPoolShape shape = {1, kRigBlocks, kRigBlockTokens, spec.kv_heads, spec.key_dim(), type};
  shape.values = !spec.latent();
  std::vector<KvPool> pools;
  pools.push_back(KvPool::Create(shape).value());
  return pools;
}

// With `rows` those of the step, else what is in the cache before.
MicroBatch BatchOf(const std::vector<CachedSlice>& slices, bool rows) {
  MicroBatch batch;
  BlockId next_block = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    SequenceSlice slice{
        .sequence = i + 1, .start = rows ? slices[i].start : 0, .count = rows ? slices[i].rows : slices[i].start};
    if (!rows) batch.open.push_back({.sequence = slice.sequence, .prompt = {1}});
    const auto blocks_of = [](int32_t count) { return (count + kRigBlockTokens - 1) / kRigBlockTokens; };
    const int32_t cached = blocks_of(slices[i].start), all = blocks_of(slices[i].start + slices[i].rows);
    slice.new_blocks.resize(1);
    for (int32_t b = rows ? cached : 0; b < (rows ? all : cached); ++b) {
      slice.new_blocks[0].push_back(((next_block + b) * 37 + 5) % kRigBlocks);
    }
    next_block += all;
    batch.slices.push_back(slice);
  }
  return batch;
}

float RandomAt(uint64_t stream, int64_t index) {
  return static_cast<float>(2 * UniformAt(stream, static_cast<uint64_t>(index)) - 1);
}

}  // namespace

std::string Name(const std::vector<CachedSlice>& slices) {
  std::string name;
  for (const CachedSlice& slice : slices) absl::StrAppend(&name, slice.rows, " rows at ", slice.start, "; ");
  return name;
}

AttentionRig::AttentionRig(const AttentionSpec& spec, const std::vector<CachedSlice>& slices, int threads, KvType type,
                           const std::vector<float>& sinks)
    : spec_(LayerOf(spec)),
      slices_(slices),
      layer_{.spec = spec_, .weights = weights_},
      kernels_(*SelectKernels("auto").value()),
      sizes_(SizesOf(spec, threads)),
      pools_(PoolFor(spec, type)),
      table_(kRigBlockTokens, {kRigBlocks}, sizes_.limits.context),
      plan_(sizes_),
      scratch_(sizes_),
      gang_(threads, {}) {
  weights_.sinks = sinks;
  EXPECT_TRUE(table_.Apply(BatchOf(slices, false)).ok());
  const MicroBatch batch = BatchOf(slices, true);
  EXPECT_TRUE(table_.Apply(batch).ok());
  plan_.Build(batch, table_);
  float* q = scratch_.q.as<float>();
  const int64_t width = spec.heads * spec.key_dim();
  for (size_t i = 0; i < slices.size(); ++i) {
    Fill(i + 1, slices[i].start + slices[i].rows);
    for (int32_t row = 0; row < slices[i].rows; ++row, q += scratch_.q_stride) {
      for (int64_t at = 0; at < width; ++at) q[at] = Query(i + 1, slices[i].start + row, at);
    }
  }
}

float AttentionRig::Query(SequenceId sequence, int64_t position, int64_t index) const {
  return 3 * RandomAt(900 + sequence, position * 100000 + index);
}

std::vector<float> AttentionRig::Key(SequenceId sequence, int64_t position, int64_t kv_head) const {
  std::vector<float> key(static_cast<size_t>(spec_.attention.key_dim()));
  for (size_t d = 0; d < key.size(); ++d) {
    key[d] = RandomAt(sequence, (position * 64 + kv_head) * 1024 + static_cast<int64_t>(d));
  }
  return key;
}

std::vector<float> AttentionRig::Value(SequenceId sequence, int64_t position, int64_t kv_head) const {
  std::vector<float> value = Key(sequence, position, kv_head);
  value.erase(value.begin() + spec_.attention.cached_value_dim(), value.end());
  if (spec_.attention.latent()) return value;
  for (float& v : value) v = -2 * v * v;
  return value;
}

int64_t AttentionRig::FirstVisible(int64_t position) const {
  if (spec_.attention.kind == AttentionKind::kFull) return 0;
  return std::max<int64_t>(0, position + 1 - spec_.attention.window);
}

void AttentionRig::Fill(SequenceId sequence, int32_t positions) {
  const SequenceTable::Entry& entry = *table_.Find(sequence);
  KvPool& pool = pools_[0];
  for (int32_t p = 0; p < positions; ++p) {
    const BlockId block = entry.tables[0][static_cast<size_t>(p / kRigBlockTokens)];
    const int32_t tile = p % kRigBlockTokens / kTilePositions, lane = p % kTilePositions;
    for (int64_t head = 0; head < spec_.attention.kv_heads; ++head) {
      const std::vector<float> key = Key(sequence, p, head), value = Value(sequence, p, head);
      kernels_.store_k(pool.shape().type, key.data(), static_cast<int>(key.size()), lane,
                       pool.KTile(0, block, head, tile));
      if (!pool.shape().values) continue;
      kernels_.store_v(pool.shape().type, value.data(), static_cast<int>(value.size()), lane,
                       pool.VTile(0, block, head, tile));
    }
  }
}

void AttentionRig::ReleaseBlocksBeforeTheWindow() {
  for (size_t i = 0; i < slices_.size(); ++i) {
    BlockLists& tables = const_cast<BlockLists&>(table_.Find(i + 1)->tables);
    const int64_t released = FirstVisible(slices_[i].start) / kRigBlockTokens;
    std::fill_n(tables[0].begin(), released, 1 << 30);
  }
}

std::vector<uint32_t> AttentionRig::Run(int layers) {
  const StepContext step = {kRigHidden, kernels_, plan_, pools_, scratch_};
  std::fill_n(scratch_.attended.as<float>(), plan_.row_count() * scratch_.attended_stride, -1.0f);
  for (int i = 0; i < layers; ++i) {
    gang_.Run([&](int thread) { Attend(layer_, step, {gang_, thread}); });
  }
  std::vector<uint32_t> bits(static_cast<size_t>(plan_.row_count() * scratch_.attended_stride));
  std::memcpy(bits.data(), scratch_.attended.data(), bits.size() * sizeof(float));
  return bits;
}

std::vector<std::vector<float>> AttentionRig::Rows(int layers) {
  Run(layers);
  std::vector<std::vector<float>> rows;
  for (int64_t row = 0; row < plan_.row_count(); ++row) {
    const float* at = scratch_.attended.as<float>() + row * scratch_.attended_stride;
    rows.emplace_back(at, at + spec_.attention.heads * spec_.attention.cached_value_dim());
  }
  return rows;
}

std::vector<std::vector<double>> AttentionRig::NaiveRows() const {
  const AttentionSpec& spec = spec_.attention;
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < slices_.size(); ++i) {
    for (int64_t p = slices_[i].start; p < slices_[i].start + slices_[i].rows; ++p) {
      std::vector<double>& out = rows.emplace_back();
      for (int64_t head = 0; head < spec.heads; ++head) {
        const double sink = spec.sinks ? static_cast<double>(weights_.sinks[static_cast<size_t>(head)]) : 0;
        double sum = spec.sinks ? std::exp(sink) : 0;  // scores here are far from where exp overflows
        std::vector<double> acc(static_cast<size_t>(spec.cached_value_dim()));
        for (int64_t j = FirstVisible(p); j <= p; ++j) {
          const std::vector<float> key = Key(i + 1, j, head / spec.group());
          const std::vector<float> value = Value(i + 1, j, head / spec.group());
          double score = 0;
          for (size_t d = 0; d < key.size(); ++d) {
            score += static_cast<double>(Query(i + 1, p, head * spec.key_dim() + static_cast<int64_t>(d))) *
                     static_cast<double>(key[d]);
          }
          score *= spec.score_scale;
          if (spec.score_cap > 0) score = spec.score_cap * std::tanh(score / spec.score_cap);
          sum += std::exp(score);
          for (size_t d = 0; d < acc.size(); ++d) acc[d] += std::exp(score) * static_cast<double>(value[d]);
        }
        for (const double value : acc) out.push_back(value / sum);
      }
    }
  }
  return rows;
}

}  // namespace stagecoach::testing
