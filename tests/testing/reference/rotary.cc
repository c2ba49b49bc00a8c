#include "tests/testing/reference/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "common/base/check.h"

namespace stagecoach::testing::reference {
namespace {

// Divisors of the pairs' speeds: Llama 3.1's single table, or the short and the long one of Phi's long-context models.
Vector Divisors(const FileReader& file, int64_t context) {
  if (!file.Is("llama") && !file.Is("phi3")) return {};
  if (file.HasTensor("rope_freqs.weight")) return file.ReadVector("rope_freqs.weight");
  const int64_t original = file.Int("rope.scaling.original_context_length", file.Int("context_length"));
  return file.ReadVector(context > original ? "rope_factors_long.weight" : "rope_factors_short.weight");
}

// Gemma 3's windowed layers have a base of their own and are never stretched; Olmo 3's are not stretched either.
double Base(const FileReader& file, bool windowed) {
  const double base = file.Float("rope.freq_base", 10000);
  return windowed ? file.Float("rope.freq_base_swa", file.Is("gemma3") ? 10000 : base) : base;
}

}  // namespace

Rotary::Rotary(const FileReader& file, int64_t dims, bool windowed, int64_t context)
    : neighbours_(file.Is("llama") || file.Is("granite") || file.Is("smollm3") || file.Is("deepseek2")) {
  const double base = Base(file, windowed);
  const Vector divisors = Divisors(file, context);
  for (int64_t i = 0; i < dims / 2; ++i) {
    speeds_.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
    if (!divisors.empty()) speeds_.back() /= divisors.at(static_cast<size_t>(i));
  }
  if (dims > 0 && !(windowed && (file.Is("gemma3") || file.Is("olmo2")))) Stretch(file, base, windowed);
}

void Rotary::Stretch(const FileReader& file, double base, bool windowed) {
  const std::string type = file.String("rope.scaling.type", "linear");
  double factor = file.Float("rope.scaling.factor", file.Float("rope.scale_linear", 0));
  if (factor == 0) factor = 1;
  magnitude_ = file.Float("rope.scaling.attn_factor", 1);
  if (type == "none") return;
  if (type != "yarn") {
    for (double& speed : speeds_) speed /= factor;
    return;
  }
  // YaRN: pairs that turn often within the original context keep their speed, those that never complete a turn are
  // slowed by the whole factor, a ramp lies between.
  CHECK(!windowed || file.Is("gpt-oss"));
  const double dims = 2 * static_cast<double>(speeds_.size());
  const double original =
      static_cast<double>(file.Int("rope.scaling.original_context_length", file.Int("context_length")));
  const auto pair_that_turns = [&](double times) {
    return dims * std::log(original / (times * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double first = std::max(0.0, std::floor(pair_that_turns(file.Float("rope.scaling.yarn_beta_fast", 32))));
  const double last = std::min(dims - 1, std::ceil(pair_that_turns(file.Float("rope.scaling.yarn_beta_slow", 1))));
  const double ext = file.Float("rope.scaling.yarn_ext_factor", 1);
  for (size_t i = 0; i < speeds_.size(); ++i) {
    const double keep =
        ext * (1 - std::clamp((static_cast<double>(i) - first) / std::max(0.001, last - first), 0.0, 1.0));
    speeds_[i] = speeds_[i] * keep + speeds_[i] / factor * (1 - keep);
  }
  // DeepSeek's models put this into the scale of the scores instead.
  if (!file.Is("deepseek2")) magnitude_ *= 1 + 0.1 * std::log(factor);
}

void Rotary::Rotate(double* head, int64_t position) const {
  const size_t pairs = speeds_.size();
  for (size_t i = 0; i < pairs; ++i) {
    double& a = head[neighbours_ ? 2 * i : i];
    double& b = head[neighbours_ ? 2 * i + 1 : i + pairs];
    const double angle = static_cast<double>(position) * speeds_[i];
    const double c = magnitude_ * std::cos(angle), s = magnitude_ * std::sin(angle);
    const double x = a, y = b;
    a = x * c - y * s;
    b = x * s + y * c;
  }
}

}  // namespace stagecoach::testing::reference
