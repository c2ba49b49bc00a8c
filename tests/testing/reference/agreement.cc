#include "tests/testing/reference/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/counter_rng.h"

namespace stagecoach::testing {

template <typename T>
LogitDifference Compare(const std::vector<std::vector<double>>& a, const std::vector<std::vector<T>>& b) {
  LogitDifference difference;
  const LogitDifference infinite = {.worst = std::numeric_limits<double>::infinity()};
  if (a.size() != b.size()) return infinite;
  for (size_t p = 0; p < a.size(); ++p) {
    if (a[p].size() != b[p].size()) return infinite;
    for (size_t t = 0; t < a[p].size(); ++t) {
      const double distance = std::fabs(a[p][t] - static_cast<double>(b[p][t]));
      if (distance <= difference.worst) continue;
      const bool number = !std::isnan(distance);
      difference = {.worst = number ? distance : infinite.worst, .position = p, .token = static_cast<TokenId>(t)};
      if (!number) return difference;
    }
  }
  return difference;
}

template LogitDifference Compare(const std::vector<std::vector<double>>&, const std::vector<std::vector<double>>&);
template LogitDifference Compare(const std::vector<std::vector<double>>&, const std::vector<std::vector<float>>&);

double LogitSpread(const std::vector<std::vector<double>>& logits) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& row : logits) {
    for (const double logit : row) low = std::min(low, logit), high = std::max(high, logit);
  }
  return high - low;
}

std::vector<TokenId> SampleTokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const double part = UniformAt(MixBits(seed), static_cast<uint64_t>(i));
    tokens.push_back(static_cast<TokenId>(part * static_cast<double>(vocab - 1)));
  }
  return tokens;
}

}  // namespace stagecoach::testing
