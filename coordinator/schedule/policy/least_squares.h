#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_LEAST_SQUARES_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_LEAST_SQUARES_H_

// Least squares with coefficients >= 0, by normal equations: y = sum of coefficient[i] * feature[i]. Not thread-safe.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace stagecoach {

template <size_t N>
struct LeastSquares {
  std::array<std::array<double, N>, N> products{};  // of the features with each other, summed over the observations
  std::array<double, N> with_value{};               // of each feature with the value

  void Add(const std::array<double, N>& features, double value) {
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < N; ++j) products[i][j] += features[i] * features[j];
      with_value[i] += features[i] * value;
    }
  }

  // Scales the weight of all observations.
  void Scale(double part) {
    for (std::array<double, N>& row : products) {
      for (double& product : row) product *= part;
    }
    for (double& value : with_value) value *= part;
  }

  // doubt[i]: the prior that coefficient i is 0, as strong as so many observations with feature 1 and value 0. It
  // decides between features that never differed. All 0 before any observation.
  std::array<double, N> Solve(const std::array<double, N>& doubt) const {
    // Drop the most negative coefficient and fit the others again.
    std::array<bool, N> used;
    used.fill(true);
    while (true) {
      std::array<double, N> solution = SolveFor(used, doubt);
      const auto least = std::min_element(solution.begin(), solution.end());
      if (*least >= 0) return solution;
      used[static_cast<size_t>(least - solution.begin())] = false;
    }
  }

 private:
  static constexpr double kSingular = 1e-9;

  // By Gaussian elimination with pivots; unused and undetermined coefficients are 0.
  std::array<double, N> SolveFor(const std::array<bool, N>& used, const std::array<double, N>& doubt) const {
    std::array<std::array<double, N>, N> m{};
    std::array<double, N> v{};
    for (size_t i = 0; i < N; ++i) {
      if (!used[i]) continue;
      for (size_t j = 0; j < N; ++j) m[i][j] = used[j] ? products[i][j] : 0;
      m[i][i] += doubt[i];
      v[i] = with_value[i];
    }
    for (size_t column = 0; column < N; ++column) {
      size_t pivot = column;
      for (size_t row = column + 1; row < N; ++row) {
        if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
      }
      std::swap(m[column], m[pivot]);
      std::swap(v[column], v[pivot]);
      if (std::abs(m[column][column]) < kSingular) continue;
      for (size_t row = 0; row < N; ++row) {
        if (row == column) continue;
        const double factor = m[row][column] / m[column][column];
        for (size_t i = column; i < N; ++i) m[row][i] -= factor * m[column][i];
        v[row] -= factor * v[column];
      }
    }
    std::array<double, N> solution{};
    for (size_t i = 0; i < N; ++i) solution[i] = std::abs(m[i][i]) < kSingular ? 0 : v[i] / m[i][i];
    return solution;
  }
};

// With exponential forgetting: the weight of an observation halves every `memory` later ones.
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
  std::array<double, N> Solve() const { return sums_.Solve(doubt_); }

 private:
  const double keep_;
  const std::array<double, N> doubt_;
  LeastSquares<N> sums_;
  int64_t seen_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_LEAST_SQUARES_H_
