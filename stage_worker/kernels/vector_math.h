#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_MATH_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_MATH_H_

// Functions of a vector of floats, for every instruction set; part of avx2.h, avx512.h and neon.h, which define:
//   Floats, Doubles, Ints, Mask       kLanes floats; half as many doubles; as many 32-bit integers; which lanes
//   Set, Load, Store, StoreInts       one value in all lanes; lanes of any address
//   Fma, FmaMinus                     a * b + c, a * b - c
//   Max, Min                          where one is a NaN, a NaN or the second
//   MaxNumber                         where the first is a NaN, the second
//   Magnitude, WithSignOf, ToInts     |x|; a magnitude with the sign of x; rounded to the nearest even
//   NotBelow, AtLeast                 !(a < b), a >= b
//   Either, Any, Select, ReduceMax    of masks and lanes
//   TimesPowerOfTwo                   y * 2^n, rounded once, for n and n + kRoundFloat

#include <cstdint>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

template <int kCount>
inline Floats Polynomial(const float (&coefficients)[kCount], Floats x) {
  Floats y = Set(coefficients[0]);
#pragma GCC unroll 8
  for (int i = 1; i < kCount; ++i) y = Fma(y, x, Set(coefficients[i]));
  return y;
}

// FixedExp.
inline Floats Exp(Floats x) {
  x = Min(Set(89.0f), Max(Set(-104.0f), x));  // the constants come first: a NaN stays one
  const Floats shifted = Fma(x, Set(1.44269504088896341f), Set(kRoundFloat)), n = shifted - Set(kRoundFloat);
  const Floats r = Fma(n, Set(2.12194440e-4f), Fma(n, Set(-0.693359375f), x));
  const Floats y = Fma(Polynomial(kExpPolynomial, r), r * r, r) + Set(1.0f);
  return TimesPowerOfTwo(y, n, shifted);
}

// x / (1 + exp(-y)).
inline Floats TimesSigmoid(Floats x, Floats y) { return x / (Set(1.0f) + Exp(-y)); }

// cap * FixedTanh(x / cap). Large arguments are rare: a vector without any skips their formula, which changes no bits.
inline Floats SoftCap(Floats x, Floats cap) {
  x = x / cap;
  const Floats magnitude = Magnitude(x), z = magnitude * magnitude;
  Floats y = Fma(Polynomial(kTanhPolynomial, z) * z, magnitude, magnitude);
  const Mask large = NotBelow(magnitude, Set(0.625f));  // a NaN, too
  if (Any(large)) y = Select(large, Set(1.0f) - Set(2.0f) / (Exp(magnitude + magnitude) + Set(1.0f)), y);
  return cap * WithSignOf(x, y);
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_MATH_H_
