#ifndef STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_

// Least squares over the results of late (least_squares.h): the weight of an observation halves every `memory` ones.
// Pure; not thread-safe.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "coordinator/schedule/least_squares.h"

namespace stagecoach {

template <size_t N>
class ForgetfulFit {
 public:
  // doubt: see LeastSquares::Solve. Features are to be scaled so that they are about 1.
  ForgetfulFit(double memory, const std::array<double, N>& doubt) : keep_(std::exp2(-1 / memory)), doubt_(doubt) {}

  void Add(const std::array<double, N>& features, double value) {
    sums_.Scale(keep_);
    sums_.Add(features, value);
    ++seen_;
  }

  int64_t seen() const { return seen_; }

  // None negative; all 0 before any observation.
  std::array<double, N> Solve() const { return sums_.Solve(doubt_); }

 private:
  const double keep_;
  const std::array<double, N> doubt_;
  LeastSquares<N> sums_;
  int64_t seen_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_
