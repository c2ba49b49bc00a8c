#include "stage_worker/model/delta_net/delta_net.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "stage_worker/model/layers/projection.h"

namespace stagecoach {
namespace {

// Of rows before a sequence's first.
constexpr float kNoInput[kMaxHeadDim] = {};

// One thread in one layer.
class DeltaNetRun {
 public:
  DeltaNetRun(const StageLayer& layer, const StepContext& step, const Worker& worker)
      : layer_(layer),
        spec_(layer.spec.delta_net),
        w_(layer.weights.delta_net),
        step_(step),
        worker_(worker),
        scratch_(step.scratch.delta_net),
        rows_(step.plan.row_count()),
        dim_(spec_.head_dim),
        taps_(spec_.conv_kernel) {}

  Activations Run(const Activations& input) {
    const DeltaNetScratchSizes& sizes = scratch_.sizes;
    ProjectPanels(StepPart::kDeltaNetIn, w_.qkv, {}, input, step_, worker_, scratch_.mixed, sizes.mixed_stride);
    ProjectPanels(StepPart::kDeltaNetIn, w_.z, {}, input, step_, worker_, scratch_.z, sizes.z_stride);
    ProjectPanels(StepPart::kDeltaNetIn, w_.beta, {}, input, step_, worker_, scratch_.beta, sizes.gate_stride);
    ProjectPanels(StepPart::kDeltaNetIn, w_.alpha, {}, input, step_, worker_, scratch_.decay, sizes.gate_stride);
    worker_.Barrier();
    worker_.Enter(StepPart::kConvolution);
    FindGates();
    for (const StepSlice& slice : step_.plan.slices()) Convolve(slice, worker_.Share(mixed_heads()));
    worker_.Barrier();
    worker_.Enter(StepPart::kDeltaRule);
    UpdateStates();
    worker_.Barrier();
    return PrepareInput(layer_.forms.output, spec_.value_width(), step_, worker_,
                        [this](int64_t row) { return static_cast<const float*>(OutputRow(row)); });
  }

 private:
  int64_t mixed_heads() const { return 2 * spec_.key_heads + spec_.value_heads; }  // of q, of k, of v

  const float* MixedRow(int64_t row) const { return scratch_.mixed.as<float>() + row * scratch_.sizes.mixed_stride; }
  float* HeadRow(int64_t mixed_head, int64_t row) const {
    return scratch_.heads.as<float>() + (mixed_head * rows_ + row) * dim_;
  }
  float* OutputRow(int64_t row) const {
    return step_.scratch.attended.as<float>() + row * step_.scratch.attended_stride;
  }
  // nullptr: zeros.
  float* StateIn(SlotId slot) const { return slot == kNoSlot ? nullptr : step_.states->State(slot, layer_.pool_layer); }
  float* InputsIn(SlotId slot) const {
    float* const state = StateIn(slot);
    return state == nullptr ? nullptr : state + spec_.value_heads * dim_ * dim_;
  }

  // beta = sigmoid(b), decay = e^g.
  void FindGates() const {
    const Gang::Part part = worker_.Share(rows_ * spec_.value_heads);
    for (int64_t i = part.begin; i < part.end; ++i) {
      const int64_t head = i % spec_.value_heads, at = i / spec_.value_heads * scratch_.sizes.gate_stride + head;
      float& beta = scratch_.beta.as<float>()[at];
      float& decay = scratch_.decay.as<float>()[at];
      beta = FixedSigmoid(beta);
      const auto h = static_cast<size_t>(head);
      decay = FixedExp(FixedSoftplus(decay + w_.dt[h]) * w_.decay[h]);
    }
  }

  // u of the slice's row, which is one of `before` if it is negative.
  const float* MixedOf(const StepSlice& slice, const float* before, int64_t row) const {
    if (row >= 0) return MixedRow(slice.first_row + row);
    return before == nullptr ? nullptr : before + (taps_ - 1 + row) * spec_.conv_width();
  }

  // The heads of q, k and v in `heads` of a slice's rows; then their inputs that the next rows need.
  void Convolve(const StepSlice& slice, Gang::Part heads) const {
    const float* const before = InputsIn(slice.state_read);
    for (int64_t row = 0; row < slice.rows; ++row) {
      const float* inputs[kMaxConvKernel];
      for (int64_t t = 0; t < taps_; ++t) inputs[t] = MixedOf(slice, before, row - (taps_ - 1) + t);
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        ConvolveHead(inputs, head, HeadRow(head, slice.first_row + row));
      }
    }
    const int64_t first = heads.begin * dim_, count = heads.end * dim_ - first;
    float* const after = InputsIn(slice.state_write);
    for (int64_t t = 0; t + 1 < taps_; ++t) {  // in place: the oldest first
      const float* const in = MixedOf(slice, before, slice.rows - (taps_ - 1) + t);
      float* const out = after + t * spec_.conv_width() + first;
      in == nullptr ? std::fill_n(out, count, 0.0f) : std::copy_n(in + first, count, out);
    }
  }

  void ConvolveHead(const float* const* inputs, int64_t head, float* out) const {
    const int64_t first = head * dim_;
    const float* x[kMaxConvKernel];
    for (int64_t t = 0; t < taps_; ++t) x[t] = inputs[t] == nullptr ? kNoInput : inputs[t] + first;
    const Kernels& kernels = step_.kernels;
    kernels.conv_silu(x, w_.conv.data() + first, spec_.conv_width(), static_cast<int>(taps_), dim_, out);
    if (head >= 2 * spec_.key_heads) return;
    const float scale = head < spec_.key_heads ? static_cast<float>(1 / std::sqrt(static_cast<double>(dim_))) : 1.0f;
    kernels.l2_norm(out, dim_, layer_.spec.norm_eps, scale, out);
  }

  void UpdateStates() const {
    const std::vector<StepSlice>& slices = step_.plan.slices();
    const int64_t heads = spec_.value_heads;
    // One at a time: a head of a prompt's slice takes as long as hundreds of a decoding one's.
    worker_.Divide(static_cast<int64_t>(slices.size()) * heads, {.most = 1}, [&](WorkRun run) {
      UpdateHead(slices[static_cast<size_t>(run.items.begin / heads)], run.items.begin % heads);
    });
  }

  // The delta rule of a head, its norm and its gates.
  void UpdateHead(const StepSlice& slice, int64_t head) const {
    const int64_t key_head = spec_.key_head_of(head), row = slice.first_row, matrix = head * dim_ * dim_;
    const int64_t gates = row * scratch_.sizes.gate_stride + head;
    const float* const before = StateIn(slice.state_read);
    DeltaSpan span;
    span.dim = dim_;
    span.rows = slice.rows;
    span.q = HeadRow(key_head, row);
    span.k = HeadRow(spec_.key_heads + key_head, row);
    span.v = HeadRow(2 * spec_.key_heads + head, row);
    span.decay = scratch_.decay.as<float>() + gates;
    span.beta = scratch_.beta.as<float>() + gates;
    span.gate_stride = scratch_.sizes.gate_stride;
    span.before = before == nullptr ? nullptr : before + matrix;
    span.after = StateIn(slice.state_write) + matrix;
    span.out = OutputRow(row) + head * dim_;
    span.out_stride = step_.scratch.attended_stride;
    const Kernels& kernels = step_.kernels;
    kernels.delta_rule(span);
    worker_.Reads(static_cast<size_t>(dim_ * dim_) * sizeof(float) * (span.before == nullptr ? 1 : 2));
    for (int64_t i = 0; i < slice.rows; ++i) {
      float* const out = span.out + i * span.out_stride;
      const float* const z = scratch_.z.as<float>() + (row + i) * scratch_.sizes.z_stride + head * dim_;
      kernels.rms_norm(out, w_.norm.data(), dim_, layer_.spec.norm_eps, out);
      kernels.swiglu(z, out, dim_, out);
    }
  }

  const StageLayer& layer_;
  const DeltaNetSpec& spec_;
  const DeltaNetWeights& w_;
  const StepContext& step_;
  const Worker& worker_;
  const DeltaNetScratch& scratch_;
  const int64_t rows_;  // of the step
  const int64_t dim_;
  const int64_t taps_;
};

}  // namespace

Activations MixRows(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  return DeltaNetRun(layer, step, worker).Run(input);
}

}  // namespace stagecoach
