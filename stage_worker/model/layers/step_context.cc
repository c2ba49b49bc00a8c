#include "stage_worker/model/layers/step_context.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr int64_t kHalfGroup = kActivationGroup / 2;

// What reading a granule of K and V costs, in columns that attend to it.
constexpr int64_t kReadCost = 4;

AlignedBuffer Buffer(bool wanted, int64_t elements, size_t element_bytes) {
  return AlignedBuffer(wanted ? static_cast<size_t>(elements) * element_bytes : 0);
}

// Floats and int32 have the same size.
AlignedBuffer Words(int64_t rows, int64_t cols = 1) { return Buffer(true, rows * cols, sizeof(float)); }

template <typename T>
size_t PlaceOf(const T& value, const std::vector<T>& values) {
  const auto at = std::find(values.begin(), values.end(), value);
  CHECK(at != values.end());
  return static_cast<size_t>(at - values.begin());
}

}  // namespace

Activations RowsFrom(const Activations& input, int64_t cols, int64_t first) {
  const int64_t at = first * cols, group = at / kActivationGroup;
  Activations rows = input;
  rows.x += first * input.x_stride;
  rows.q += at;
  rows.scales += group;
  rows.starts += group;
  rows.half_starts += at / kHalfGroup;
  rows.bf16 += at;
  return rows;
}

MatmulInput::MatmulInput(const InputForms& forms, int64_t max_rows, int64_t max_cols)
    : x_(Buffer(forms.floats, max_rows * max_cols, sizeof(float))),
      q_(Buffer(forms.int8, max_rows * max_cols, sizeof(int8_t))),
      scales_(Buffer(forms.int8, max_rows * (max_cols / kActivationGroup), sizeof(float))),
      starts_(Buffer(forms.int8, max_rows * (max_cols / kActivationGroup), sizeof(int32_t))),
      half_starts_(Buffer(forms.int8, max_rows * (max_cols / kHalfGroup), sizeof(int32_t))),
      bf16_(Buffer(forms.bf16, max_rows * max_cols, sizeof(uint16_t))) {}

void MatmulInput::Set(const Kernels& kernels, const InputForms& forms, int64_t row, int64_t cols, int64_t begin,
                      const float* x, int64_t count) {
  const int64_t at = row * cols + begin;
  if (forms.floats) std::copy_n(x, count, x_.as<float>() + at);
  if (forms.bf16) kernels.round_row(x, count, bf16_.as<uint16_t>() + at);
  if (forms.int8) {
    CHECK(at % kActivationGroup == 0 && count % kActivationGroup == 0);  // the kernel would leave out the rest
    const int64_t group = at / kActivationGroup;
    kernels.quantize_row(x, count, q_.as<int8_t>() + at, scales_.as<float>() + group, starts_.as<int32_t>() + group,
                         half_starts_.as<int32_t>() + at / kHalfGroup);
  }
}

void MatmulInput::Copy(const InputForms& forms, int64_t row, int64_t cols, const Activations& from) {
  if (forms.floats) std::copy_n(from.x, cols, x_.as<float>() + row * cols);
  if (forms.bf16) std::copy_n(from.bf16, cols, bf16_.as<uint16_t>() + row * cols);
  if (forms.int8) {
    const int64_t groups = cols / kActivationGroup;
    std::copy_n(from.q, cols, q_.as<int8_t>() + row * cols);
    std::copy_n(from.scales, groups, scales_.as<float>() + row * groups);
    std::copy_n(from.starts, groups, starts_.as<int32_t>() + row * groups);
    std::copy_n(from.half_starts, 2 * groups, half_starts_.as<int32_t>() + row * 2 * groups);
  }
}

Activations MatmulInput::View(int64_t cols) const {
  Activations view;
  view.x = x_.as<float>();
  view.x_stride = cols;
  view.q = q_.as<int8_t>();
  view.scales = scales_.as<float>();
  view.starts = starts_.as<int32_t>();
  view.half_starts = half_starts_.as<int32_t>();
  view.bf16 = bf16_.as<uint16_t>();
  return view;
}

ExpertWorkerScratch::ExpertWorkerScratch(const ExpertScratchSizes& sizes)
    : routing(Words(sizes.routing_floats())),
      chosen(Words(sizes.few_pairs())),
      weights(Words(sizes.few_pairs())),
      begins(Words(sizes.experts > 0 ? sizes.experts + 1 : 0)),
      active(Words(sizes.experts)),
      rows(Words(sizes.pairs())),
      places(Words(sizes.pairs())),
      gathered(sizes.input_forms, sizes.gather_rows(), sizes.input_width),
      outputs(Words(sizes.outputs())) {}

ExpertScratch::ExpertScratch(const ExpertScratchSizes& sizes)
    : rows(sizes.rows),
      output_floats(sizes.outputs()),
      logits(Words(sizes.rows * sizes.logits_stride)),
      gates(Words(sizes.gates())),
      chosen(Words(sizes.pairs())),
      weights(Words(sizes.pairs())),
      activated(sizes.output_forms, sizes.pairs(), sizes.width) {
  for (int thread = 0; thread < sizes.threads; ++thread) workers.emplace_back(sizes);
}

AttentionScratch::AttentionScratch(const WalkMemory& memory)
    : q(Words(memory.query_floats)),
      state(Words(memory.state_floats)),
      limits(Words(memory.limits)),
      begins(Words(memory.begins)),
      values(Words(memory.value_floats)) {}

AttentionPartials::AttentionPartials(const WalkMemory& memory)
    : states(Words(memory.partial_floats)), finished(new std::atomic<int32_t>[static_cast<size_t>(memory.cuts)]()) {}

StepAngles::StepAngles(int64_t rows, int64_t row_pairs)
    : pairs(row_pairs), cos(Words(rows, row_pairs)), sin(Words(rows, row_pairs)) {}

WorkerScratch::WorkerScratch(const LayerScratchSizes& sizes)
    : row(Words(sizes.input_width)), input(sizes.forms, kFewRows, sizes.input_width), block(Words(2, kBlockFloats)) {}

LatentScratch::LatentScratch(const LatentScratchSizes& sizes, int64_t rows, int threads)
    : sizes(sizes),
      q_a(Words(rows, sizes.q_a_stride)),
      q(Words(rows, sizes.q_stride)),
      row(Words(rows, sizes.row_stride)),
      output(Words(rows, sizes.output_stride)) {
  for (int thread = 0; sizes.row_stride > 0 && thread < threads; ++thread) {
    heads.push_back(
        {MatmulInput(sizes.head_forms, kLatentRows, sizes.head_width), Words(kLatentRows, sizes.head_outputs)});
  }
}

DeltaNetScratch::DeltaNetScratch(const DeltaNetScratchSizes& sizes, int64_t rows)
    : sizes(sizes),
      mixed(Words(rows, sizes.mixed_stride)),
      z(Words(rows, sizes.z_stride)),
      beta(Words(rows, sizes.gate_stride)),
      decay(Words(rows, sizes.gate_stride)),
      heads(Words(rows, sizes.head_floats)) {}

StepScratch::StepScratch(const LayerScratchSizes& sizes)
    : q_stride(sizes.q_stride),
      kv_stride(sizes.kv_stride),
      gate_stride(sizes.gate_stride),
      attended_stride(sizes.attended_stride),
      q(Words(sizes.limits.max_rows, q_stride)),
      k(Words(sizes.limits.max_rows, kv_stride)),
      v(Words(sizes.limits.max_rows, kv_stride)),
      gates(Words(sizes.limits.max_rows, gate_stride)),
      attended(Words(sizes.limits.max_rows, attended_stride)),
      input(sizes.forms, sizes.limits.max_rows, sizes.input_width),
      ffn_input(sizes.ffn_forms, sizes.limits.max_rows, sizes.ffn_width),
      delta(Words(sizes.limits.max_rows, sizes.delta_width)),
      experts(sizes.experts),
      latent(sizes.latent, sizes.limits.max_rows, sizes.limits.threads),
      delta_net(sizes.delta_net, sizes.limits.max_rows),
      partials(sizes.walk_memory()) {
  std::fill_n(delta.as<float>(), sizes.limits.max_rows * sizes.delta_width, 0.0f);
  for (const RopeParameters& rope : sizes.ropes) angles.emplace_back(sizes.limits.max_rows, rope.dims / 2);
  for (int thread = 0; thread < sizes.limits.threads; ++thread) {
    workers.emplace_back(sizes);
    attention.emplace_back(sizes.walk_memory());
  }
}

std::vector<StageLayer> MakeLayers(const ModelDescription& model, int64_t first_layer,
                                   const std::vector<LayerWeights>& weights, const LayerScratchSizes& sizes,
                                   const Kernels& kernels) {
  const LayerSpec* const specs = &model.hyper.layers[static_cast<size_t>(first_layer)];
  const LayerTensors* const tensors = &model.layers[static_cast<size_t>(first_layer)];
  std::vector<StageLayer> layers;
  std::vector<int64_t> pool_layers(static_cast<size_t>(model.hyper.block_groups()));
  int64_t state_layers = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    StageLayer layer = {.spec = specs[i], .weights = weights[i], .forms = InputFormsOf(tensors[i], kernels.bf16_dot)};
    if (specs[i].recurrent()) {
      layer.pool_layer = state_layers++;
    } else {
      const AttentionSpec& attention = specs[i].attention;
      layer.pool_layer = pool_layers[static_cast<size_t>(specs[i].block_group)]++;
      layer.walks = PlaceOf(AttentionSizes::Of(attention, sizes.limits), sizes.walks);
      if (attention.rope.dims > 0) layer.angles = static_cast<int32_t>(PlaceOf(attention.rope, sizes.ropes));
    }
    layers.push_back(layer);
  }
  return layers;
}

WalkPlan::WalkPlan(const AttentionSizes& sizes) : sizes_(sizes) {
  const int64_t walks = (sizes.max_rows / sizes.RowsPerWork() + sizes.max_slices) * sizes.head_groups;
  walks_.reserve(static_cast<size_t>(walks));
  cuts_.reserve(static_cast<size_t>(sizes.MaxCuts()));
  // Of MaxCuts() pieces that all walks would be cut into if these were of one size, each walk has one more at most.
  work_.reserve(static_cast<size_t>(walks + 2 * sizes.MaxCuts()));
}

void WalkPlan::Build(const MicroBatch& batch) {
  walks_.clear();
  work_.clear();
  cuts_.clear();
  partial_columns_ = 0;
  int64_t total_cost = 0;
  int32_t first_row = 0;
  for (const SequenceSlice& slice : batch.slices) {
    for (int32_t i = 0; i < slice.count; i += sizes_.RowsPerWork()) {
      AttentionWork walk;
      walk.first_row = first_row + i;
      walk.rows = std::min(sizes_.RowsPerWork(), slice.count - i);
      const int64_t position = int64_t{slice.start} + i, end = position + walk.rows;
      const int64_t begin = sizes_.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - sizes_.window);
      walk.begin_granule = static_cast<int32_t>(begin / kAttentionGranule);
      walk.end_granule = static_cast<int32_t>((end + kAttentionGranule - 1) / kAttentionGranule);
      for (walk.head_group = 0; walk.head_group < sizes_.head_groups; ++walk.head_group) walks_.push_back(walk);
      total_cost += Cost(walk) * sizes_.head_groups;
    }
    first_row += slice.count;
  }
  for (const AttentionWork& walk : walks_) AddWalk(walk, total_cost);
}

int64_t WalkPlan::Cost(const AttentionWork& walk) const {
  return (walk.end_granule - walk.begin_granule) * (walk.rows * sizes_.group + kReadCost);
}

void WalkPlan::AddWalk(const AttentionWork& walk, int64_t total_cost) {
  const int64_t begin = walk.begin_granule, granules = walk.end_granule - begin;
  const int64_t share = Cost(walk) * sizes_.MaxCuts();  // in pieces, times total_cost
  const int64_t pieces = std::min(granules, (share + total_cost - 1) / total_cost);
  const int64_t columns = walk.rows * sizes_.group;
  const int64_t folded = pieces > 1 ? granules / pieces : granules;
  const int64_t partials = 1 + granules - folded;
  if (pieces <= 1 || partial_columns_ + partials * columns > sizes_.PartialColumns()) {
    work_.push_back(walk);
    return;
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    AttentionWork work = walk;
    work.begin_granule = static_cast<int32_t>(begin + granules * piece / pieces);
    work.end_granule = static_cast<int32_t>(begin + granules * (piece + 1) / pieces);
    work.cut = static_cast<int32_t>(cuts_.size());
    work_.push_back(work);
  }
  cuts_.push_back({.pieces = static_cast<int32_t>(pieces),
                   .folded_end = static_cast<int32_t>(begin + folded),
                   .partials = static_cast<int32_t>(partials),
                   .columns = static_cast<int32_t>(columns),
                   .first_column = partial_columns_});
  partial_columns_ += partials * columns;
}

StepPlan::StepPlan(const LayerScratchSizes& sizes) {
  rows_.reserve(static_cast<size_t>(sizes.limits.max_rows));
  slices_.reserve(static_cast<size_t>(sizes.limits.max_slices));
  walks_.reserve(sizes.walks.size());
  for (const AttentionSizes& walk : sizes.walks) walks_.emplace_back(walk);
}

void StepPlan::Build(const MicroBatch& batch, const SequenceTable& table) {
  rows_.clear();
  slices_.clear();
  for (const SequenceSlice& slice : batch.slices) {
    const SequenceTable::Entry* entry = table.Find(slice.sequence);
    CHECK(entry != nullptr && entry->rows >= int64_t{slice.start} + slice.count);
    slices_.push_back({static_cast<int32_t>(rows_.size()), slice.count, slice.state_read, slice.state_write});
    for (int32_t i = 0; i < slice.count; ++i) {
      const TokenId token = slice.tokens.empty() ? kNoToken : slice.tokens[static_cast<size_t>(i)];
      rows_.push_back({int64_t{slice.start} + i, token, entry->tables.data()});
    }
  }
  for (WalkPlan& walks : walks_) walks.Build(batch);
}

}  // namespace stagecoach
