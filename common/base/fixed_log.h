#ifndef STAGECOACH_COMMON_BASE_FIXED_LOG_H_
#define STAGECOACH_COMMON_BASE_FIXED_LOG_H_

#include <cmath>
#include <numbers>

namespace stagecoach {

// ln(x) for x > 0 from +, -, * and / alone: the same bits on every machine. By the series of atanh: x = m * 2^e with m
// in [1/sqrt 2, sqrt 2), ln m = 2 (t + t^3/3 + ..), t = (m - 1) / (m + 1). |t| < 0.172, so 13 terms reach below 2^-53.
inline double FixedLn(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double series = 0;
  for (int term = 12; term >= 0; --term) series = series * t2 + 1.0 / (2 * term + 1);
  return 2 * t * series + exponent * std::numbers::ln2;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_FIXED_LOG_H_
