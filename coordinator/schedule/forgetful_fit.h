#ifndef STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_

// Least squares over the results of late: the coefficients of y = sum of coefficient[i] * feature[i], none of them
// negative, from observations whose weight halves every `memory` ones. Pure; not thread-safe.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace stagecoach {

template <size_t N>
class ForgetfulFit {
 public:
  // doubt[i]: how strongly coefficient i is taken for 0 before the observations tell, as much as this many of them with
  // feature 1 and value 0. It decides what explains a value where the features never differed, and is nothing beside
  // observations whose features did. Features are to be scaled so that they are about 1.
  ForgetfulFit(double memory, const std::array<double, N>& doubt) : keep_(std::exp2(-1 / memory)), doubt_(doubt) {}

  void Add(const std::array<double, N>& features, double value) {
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < N; ++j) products_[i][j] = products_[i][j] * keep_ + features[i] * features[j];
      with_value_[i] = with_value_[i] * keep_ + features[i] * value;
    }
    ++seen_;
  }

  int seen() const { return seen_; }

  // All 0 before any observation.
  std::array<double, N> Solve() const {
    // The most negative coefficient is left out, and the others take what it explained.
    std::array<bool, N> used;
    used.fill(true);
    while (true) {
      std::array<double, N> solution = SolveFor(used);
      const auto least = std::min_element(solution.begin(), solution.end());
      if (*least >= 0) return solution;
      used[static_cast<size_t>(least - solution.begin())] = false;
    }
  }

 private:
  using Matrix = std::array<std::array<double, N>, N>;

  // By Gaussian elimination with pivots; what is not used, and directions that nothing tells about, give 0.
  std::array<double, N> SolveFor(const std::array<bool, N>& used) const {
    Matrix m{};
    std::array<double, N> v{};
    for (size_t i = 0; i < N; ++i) {
      if (!used[i]) continue;
      for (size_t j = 0; j < N; ++j) m[i][j] = used[j] ? products_[i][j] : 0;
      m[i][i] += doubt_[i];
      v[i] = with_value_[i];
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

  static constexpr double kSingular = 1e-9;

  const double keep_;
  const std::array<double, N> doubt_;
  Matrix products_{};  // of the features with each other
  std::array<double, N> with_value_{};
  int seen_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_FORGETFUL_FIT_H_
