#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_DELTA_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_DELTA_H_

// The gated delta rule of one head, written with vector_math.h's vectors. A panel of values is a matrix of its own: its
// rows run one after the other while it stays in the first-level cache, so that S is read from memory and written to it
// once, however many rows there are. Part of vector_rows.h.

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// Panels that are computed together, as many as the registers hold sums of. With kDeltaSums each, their multiply-adds
// are enough to hide the latency of one.
constexpr int kDeltaPanels = kLanes == kTileValues ? 2 : 1;
constexpr int kPanelVectors = kTileValues / kLanes;

// kPanels whole panels over all rows.
template <int kPanels>
class DeltaPanels {
 public:
  explicit DeltaPanels(const DeltaSpan& span) : span_(span), panel_floats_(span.dim * kTileValues) {}

  void Run(int64_t first_value) {
    float* const after = span_.after + first_value * span_.dim;
    const float* from = span_.before == nullptr ? after : span_.before + first_value * span_.dim;
    if (span_.before == nullptr) {
      const Floats zero = Set(0.0f);
      for (int64_t i = 0; i < kPanels * panel_floats_; i += kLanes) Store(after + i, zero);
    }
    for (int64_t row = 0; row < span_.rows; ++row, from = after) {
      Floats step[kVectors];
      Correct(row, first_value, from, step);
      float* const out = span_.out + row * span_.out_stride + first_value;
      if (row + 1 < span_.rows || span_.before == nullptr) {
        Update(row, from, step, after, out, [](int64_t) {});
      } else {
        Update(row, from, step, after, out, [this, first_value](int64_t i) { Fetch(first_value, i); });
      }
    }
  }

 private:
  static constexpr int kVectors = kPanels * kPanelVectors;

  // Vector n of key i's values.
  const float* At(const float* state, int64_t i, int n) const {
    return state + n / kPanelVectors * panel_floats_ + i * kTileValues + n % kPanelVectors * kLanes;
  }
  float* At(float* state, int64_t i, int n) const {
    return const_cast<float*>(At(static_cast<const float*>(state), i, n));
  }

  // add(key, its sum).
  template <typename Add>
  void ForEachKey(const Add& add) const {
    int64_t i = 0;
    for (; i + kDeltaSums <= span_.dim; i += kDeltaSums) {
#pragma GCC unroll 4
      for (int s = 0; s < kDeltaSums; ++s) add(i + s, s);
    }
    if (i == span_.dim) return;
    add(i, 0);  // an even number of keys: two are left
    add(i + 1, 1);
  }

  static void Clear(Floats (&sums)[kDeltaSums][kVectors]) {
    for (auto& sum : sums) {
      for (Floats& x : sum) x = Set(0.0f);
    }
  }
  static Floats Total(const Floats (&sums)[kDeltaSums][kVectors], int n) {
    return (sums[0][n] + sums[2][n]) + (sums[1][n] + sums[3][n]);
  }

  // step = beta * (v - decay * k S)
  void Correct(int64_t row, int64_t first_value, const float* from, Floats* step) const {
    const float* const k = span_.k + row * span_.dim;
    Floats sums[kDeltaSums][kVectors];
    Clear(sums);
    ForEachKey([&](int64_t i, int s) __attribute__((always_inline)) {
      const Floats factor = Set(k[i]);
      for (int n = 0; n < kVectors; ++n) sums[s][n] = Fma(Load(At(from, i, n)), factor, sums[s][n]);
    });
    const Floats minus_decay = Set(-span_.decay[row * span_.gate_stride]);
    const Floats beta = Set(span_.beta[row * span_.gate_stride]);
    const float* const v = span_.v + row * span_.dim + first_value;
    for (int n = 0; n < kVectors; ++n) step[n] = beta * Fma(minus_decay, Total(sums, n), Load(v + n * kLanes));
  }

  // Asks the memory for key i of the panels that are read next: this head's, or what lies behind it. While the
  // multiply- adds of this one take the time the memory would be idle; asking for no more than that took 15 % longer.
  void Fetch(int64_t first_value, int64_t i) const {
    const float* const next = span_.before + (first_value + kPanels * kTileValues) * span_.dim + i * kTileValues;
    for (int panel = 0; panel < kPanels; ++panel) __builtin_prefetch(next + panel * panel_floats_);
  }

  // after = decay * from + k step; out = q after. fetch(i) goes with key i.
  template <typename Fetching>
  void Update(int64_t row, const float* from, const Floats* step, float* after, float* out,
              const Fetching& fetch) const {
    const float* const k = span_.k + row * span_.dim;
    const float* const q = span_.q + row * span_.dim;
    const Floats decay = Set(span_.decay[row * span_.gate_stride]);
    Floats sums[kDeltaSums][kVectors];
    Clear(sums);
    ForEachKey([&](int64_t i, int s) __attribute__((always_inline)) {
      fetch(i);
      const Floats key = Set(k[i]), query = Set(q[i]);
      for (int n = 0; n < kVectors; ++n) {
        const Floats x = Fma(key, step[n], decay * Load(At(from, i, n)));
        Store(At(after, i, n), x);
        sums[s][n] = Fma(x, query, sums[s][n]);
      }
    });
    for (int n = 0; n < kVectors; ++n) Store(out + n * kLanes, Total(sums, n));
  }

  const DeltaSpan& span_;
  const int64_t panel_floats_;
};

void DeltaRule(const DeltaSpan& span) {
  constexpr int64_t kWide = kDeltaPanels * kTileValues;
  int64_t value = 0;
  for (; value + kWide <= span.dim; value += kWide) DeltaPanels<kDeltaPanels>(span).Run(value);
  for (; value + kTileValues <= span.dim; value += kTileValues) DeltaPanels<1>(span).Run(value);
  if (value < span.dim) DeltaPanelScalar(span, value, span.dim - value);
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_DELTA_H_
