#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/attention/attention.h"

namespace stagecoach {
namespace {

// How much of each pair's frequency YaRN leaves unscaled: 1 for the fast pairs, 0 for the slow ones, a ramp between.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeParameters& rope) {
    const double last = static_cast<double>(rope.dims - 1);
    low_ = std::max(0.0, std::floor(PairOfRotations(rope, rope.beta_fast)));
    high_ = std::min(last, std::ceil(PairOfRotations(rope, rope.beta_slow)));
  }

  double At(int64_t pair) const {
    return 1 - std::clamp((static_cast<double>(pair) - low_) / std::max(0.001, high_ - low_), 0.0, 1.0);
  }

 private:
  // The (real) pair index that makes `rotations` turns within the original context.
  static double PairOfRotations(const RopeParameters& rope, double rotations) {
    const double wavelengths = static_cast<double>(rope.original_context) / (rotations * 2 * std::numbers::pi);
    return static_cast<double>(rope.dims) * FixedLn(wavelengths) / (2 * FixedLn(rope.freq_base));
  }

  double low_, high_;
};

}  // namespace

RopeTable::RopeTable(const RopeParameters& rope, const std::vector<float>& rope_freqs)
    : frequencies_(static_cast<size_t>(rope.dims / 2)) {
  const bool divided = rope.factors && !rope_freqs.empty();
  CHECK(!divided || rope_freqs.size() == frequencies_.size());
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    frequencies_[i] = FixedPow(rope.freq_base, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims));
    if (divided) frequencies_[i] /= static_cast<double>(rope_freqs[i]);
  }
  magnitude_ = rope.attn_factor;
  if (rope.scaling == RopeScaling::kLinear) {
    for (double& frequency : frequencies_) frequency /= rope.factor;
  } else if (rope.scaling == RopeScaling::kYarn) {
    const YarnRamp ramp(rope);
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double unscaled = ramp.At(static_cast<int64_t>(i)) * rope.ext_factor;
      frequencies_[i] = frequencies_[i] / rope.factor * (1 - unscaled) + frequencies_[i] * unscaled;
    }
    if (rope.log_magnitude) magnitude_ *= 1 + 0.1 * FixedLn(rope.factor);
  }
}

void RopeTable::Angles(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    double s, c;
    FixedSinCos(static_cast<double>(position) * frequencies_[i], &s, &c);
    cos[i] = static_cast<float>(c * magnitude_);
    sin[i] = static_cast<float>(s * magnitude_);
  }
}

}  // namespace stagecoach
