// exp, log, sin, cos and pow from exactly rounded operations alone, so that every machine gives the same bits. FixedExp
// follows Cephes (expf); the double functions follow fdlibm (e_log.c, e_exp.c, k_sin.c, k_cos.c; Sun Microsystems
// 1993).

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// ln 2 in two parts: the first has so few bits that its product with an exponent is exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;

// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even.
constexpr double kRoundDouble = 6755399441055744.0;

// Natural logarithm of a positive, finite, normal x. x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); with s = f / (2
// + f), log(1 + f) = 2 s + s R(s^2). Error below 1 ulp.
double LogDouble(double x) {
  constexpr double kLg1 = 6.666666666666735130e-01, kLg2 = 3.999999999940941908e-01, kLg3 = 2.857142874366239149e-01,
                   kLg4 = 2.222219843214978396e-01, kLg5 = 1.818357216161805012e-01, kLg6 = 1.531383769920937332e-01,
                   kLg7 = 1.479819860511658591e-01;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t k = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(k) << 52)) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double even = w * std::fma(w, std::fma(w, kLg6, kLg4), kLg2);
  const double odd = z * std::fma(w, std::fma(w, std::fma(w, kLg7, kLg5), kLg3), kLg1);
  const double half_square = 0.5 * f * f;
  const double dk = static_cast<double>(k);
  return dk * kLn2High - ((half_square - (s * (half_square + (odd + even)) + dk * kLn2Low)) - f);
}

// e^x for |x| < 700. x = k ln 2 + r; e^r by the rational approximation of fdlibm.
double ExpDouble(double x) {
  constexpr double kP1 = 1.66666666666666019037e-01, kP2 = -2.77777777770155933842e-03,
                   kP3 = 6.61375632143793436117e-05, kP4 = -1.65339022054652515390e-06,
                   kP5 = 4.13813679705723846039e-08;
  const double k = (x * 1.44269504088896338700 + kRoundDouble) - kRoundDouble;
  const double high = std::fma(k, -kLn2High, x);
  const double low = k * kLn2Low;
  const double r = high - low;
  const double t = r * r;
  const double c = r - t * std::fma(t, std::fma(t, std::fma(t, std::fma(t, kP5, kP4), kP3), kP2), kP1);
  const double y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  return std::ldexp(y, static_cast<int>(k));
}

// sin and cos of |r| <= pi/4.
double SinKernel(double r) {
  constexpr double kS1 = -1.66666666666666324348e-01, kS2 = 8.33333333332248946124e-03,
                   kS3 = -1.98412698298579493134e-04, kS4 = 2.75573137070700676789e-06,
                   kS5 = -2.50507602534068634195e-08, kS6 = 1.58969099521155010221e-10;
  const double z = r * r;
  const double tail = std::fma(z, std::fma(z, std::fma(z, std::fma(z, std::fma(z, kS6, kS5), kS4), kS3), kS2), kS1);
  return std::fma(z * r, tail, r);
}

double CosKernel(double r) {
  constexpr double kC1 = 4.16666666666666019037e-02, kC2 = -1.38888888888741095749e-03,
                   kC3 = 2.48015872894767294178e-05, kC4 = -2.75573143513906633035e-07,
                   kC5 = 2.08757232129817482790e-09, kC6 = -1.13596475577881948265e-11;
  const double z = r * r;
  const double tail = std::fma(z, std::fma(z, std::fma(z, std::fma(z, std::fma(z, kC6, kC5), kC4), kC3), kC2), kC1);
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + z * z * tail);
}

}  // namespace

float FixedExp(float x) {
  if (x != x) return x;
  // Beyond these the result is 0 or infinity by rounding alone.
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = std::fma(x, 1.44269504088896341f, kRoundFloat);
  const float n = shifted - kRoundFloat;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRoundFloat);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  const float y = std::fma(Polynomial(kExpPolynomial, r), r * r, r) + 1.0f;
  // 2^exponent in two factors: either alone is a normal float, the first product is exact, the second rounds once.
  const int32_t first = exponent >> 1;
  const int32_t second = exponent - first;
  return y * std::bit_cast<float>((first + 127) << 23) * std::bit_cast<float>((second + 127) << 23);
}

float FixedSigmoid(float x) { return 1.0f / (1.0f + FixedExp(-x)); }

float FixedSoftplus(float x) {
  if (x != x || x > 30.0f) return x;    // exp(-30) is lost beside 30
  if (x < -104.0f) return FixedExp(x);  // 0
  const double e = ExpDouble(static_cast<double>(x));
  return static_cast<float>(x < -17.0f ? e
                                       : LogDouble(1.0 + e));  // e^2 / 2 is lost beside e; e would lose bits beside 1
}

float FixedTanh(float x) {
  const float magnitude = std::fabs(x);
  if (magnitude < 0.625f) {  // 1 - 2 / (e^2x + 1) would cancel: Cephes' polynomial (tanhf)
    const float z = x * x;
    return std::copysign(std::fma(Polynomial(kTanhPolynomial, z) * z, magnitude, magnitude), x);
  }
  return std::copysign(1.0f - 2.0f / (FixedExp(2.0f * magnitude) + 1.0f), x);
}

float FixedLog(float x) {
  if (x != x || x == std::numeric_limits<float>::infinity()) return x;
  if (x == 0.0f) return -std::numeric_limits<float>::infinity();
  if (x < 0.0f) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(LogDouble(static_cast<double>(x)));
}

void FixedSinCos(double angle, double* sin, double* cos) {
  // angle = k pi/2 + r with pi/2 in two parts; the first product and difference are exact inside the fused operation.
  const double k = (angle * 0.63661977236758134308 + kRoundDouble) - kRoundDouble;
  double r = std::fma(-k, 0x1.921fb54442d18p+0, angle);
  r = std::fma(-k, 0x1.1a62633145c07p-54, r);
  const double s = SinKernel(r);
  const double c = CosKernel(r);
  switch (static_cast<int64_t>(k) & 3) {
    case 0: *sin = s, *cos = c; return;
    case 1: *sin = c, *cos = -s; return;
    case 2: *sin = -s, *cos = -c; return;
    default: *sin = -c, *cos = s; return;
  }
}

double FixedPow(double base, double exponent) { return ExpDouble(exponent * LogDouble(base)); }

}  // namespace stagecoach
