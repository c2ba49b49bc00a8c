#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_DENSE_MATH_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_DENSE_MATH_H_

// The arithmetic that every architecture is made of, in double and with libm. Nothing here rounds on purpose.

#include <cstdint>
#include <vector>

namespace stagecoach::testing::reference {

using Vector = std::vector<double>;

struct Matrix {
  int64_t rows = 0, cols = 0;
  Vector values;  // [rows][cols]
};

// A matrix with the bias that is added to its product; an absent bias is empty.
struct Linear {
  Matrix weight;
  Vector bias;
};

double Dot(const double* a, const double* b, int64_t count);
Vector Multiply(const Matrix& matrix, const Vector& x);
Vector Apply(const Linear& linear, const Vector& x);
void AddTo(const Vector& values, Vector* sum);  // `values` may be empty: nothing is added

// x of weight.size() values, divided by its root mean square and multiplied by the weight.
Vector RmsNorm(const double* x, const Vector& weight, double eps);

void SoftmaxInPlace(Vector* logits);
double LogSumExp(const Vector& logits);
double Sigmoid(double x);
double Silu(double x);
double Gelu(double x);  // the approximation with tanh, as gemma's models were trained
// `limit` * tanh(x / limit), or x itself where the limit is 0.
double SoftCap(double x, double limit);

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_DENSE_MATH_H_
