#ifndef STAGECOACH_TESTS_BENCH_MEASURING_H_
#define STAGECOACH_TESTS_BENCH_MEASURING_H_

#include <time.h>

#include <algorithm>
#include <vector>

namespace stagecoach {

inline double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
inline double WallSeconds() { return SecondsOf(CLOCK_MONOTONIC); }
inline double ThreadSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }

// The upper one of two; 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_BENCH_MEASURING_H_
