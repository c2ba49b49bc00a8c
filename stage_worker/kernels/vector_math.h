#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_MATH_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_MATH_H_

// Functions of a vector of floats, for every instruction set; part of avx2.h, avx512.h and neon.h, which define:
//   Floats, Ints, Mask                kLanes floats or 32-bit integers; which lanes
//   Doubles, Longs                    half as many doubles or 64-bit integers
//   Set, Load, Store, StoreInts       one value in all lanes; lanes of any address
//   Fma, FmaMinus                     a * b + c, a * b - c
//   Max, Min                          where one is a NaN, a NaN or the second
//   MaxNumber                         where the first is a NaN, the second
//   Magnitude, WithSignOf             |x|; a magnitude with the sign of x
//   ToInts, Bits                      rounded to the nearest even; the same bits
//   LoadHalves, LoadBf16, LoadCodes   kLanes F16, BF16 or int8 values
//   StoreHalves, StoreBf16            rounded to the nearest even; every NaN becomes a quiet one
//   NotBelow, AtLeast, Over           !(a < b), a >= b, a > b
//   Either, Without, Any              of masks: a or b, a but not b, whether there is a lane in it
//   Select, ReduceMax                 by lane; of all lanes
//   TimesPowerOfTwo                   y * 2^n, rounded once, for n and n + kRoundFloat

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// The first `count` lanes; the memory of the others is not touched.
inline Floats LoadFirstFloats(const float* p, int count) {
  float all[kLanes] = {};
  std::memcpy(all, p, count * sizeof(float));
  return Load(all);
}

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
