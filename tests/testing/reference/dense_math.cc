#include "tests/testing/reference/dense_math.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"

namespace stagecoach::testing::reference {

// Four sums, so that the compiler may keep them in one register: the tests run hundreds of positions.
double Dot(const double* a, const double* b, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int64_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  }
  double sum = sums[0] + sums[1] + sums[2] + sums[3];
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

Vector Multiply(const Matrix& matrix, const Vector& x) {
  CHECK_EQ(matrix.cols, static_cast<int64_t>(x.size()));
  Vector out(static_cast<size_t>(matrix.rows));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    out[static_cast<size_t>(r)] = Dot(matrix.values.data() + r * matrix.cols, x.data(), matrix.cols);
  }
  return out;
}

Vector Apply(const Linear& linear, const Vector& x) {
  Vector out = Multiply(linear.weight, x);
  AddTo(linear.bias, &out);
  return out;
}

void AddTo(const Vector& values, Vector* sum) {
  if (values.empty()) return;
  CHECK_EQ(values.size(), sum->size());
  for (size_t i = 0; i < values.size(); ++i) (*sum)[i] += values[i];
}

Vector RmsNorm(const double* x, const Vector& weight, double eps) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
  Vector out(weight.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * factor * weight[i];
  return out;
}

void SoftmaxInPlace(Vector* logits) {
  const double max = *std::max_element(logits->begin(), logits->end());
  double sum = 0;
  for (double& logit : *logits) sum += logit = std::exp(logit - max);
  for (double& logit : *logits) logit /= sum;
}

double LogSumExp(const Vector& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Silu(double x) { return x * Sigmoid(x); }

double Gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }

double SoftCap(double x, double limit) { return limit == 0 ? x : limit * std::tanh(x / limit); }

}  // namespace stagecoach::testing::reference
