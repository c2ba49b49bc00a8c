#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_H_

// What the *_avx512*.cc units share; included by nothing else. The functions are in an unnamed namespace: each unit
// keeps its own copy.

// g++ 12 finds the deliberately undefined registers of its own header uninitialised.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// With and without the dot instruction of bytes.
MatmulFn IntegerMatmulAvx512, IntegerMatmulAvx512Vnni;

namespace {

inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// What vector_math.h says.
using Floats = __m512;
using Doubles = __m512d;  // half as many
using Ints = __m512i;
using Longs = __m512i;  // half as many
using Mask = __mmask16;
constexpr int kLanes = 16;

// The lanes below `count`.
inline Mask FirstLanes(int64_t count) {
  if (count >= kLanes) return 0xffff;
  return count <= 0 ? 0 : static_cast<Mask>((1u << count) - 1);
}

inline Floats Set(float x) { return _mm512_set1_ps(x); }
inline Floats Load(const void* p) { return _mm512_loadu_ps(p); }
inline void Store(void* p, Floats x) { _mm512_storeu_ps(p, x); }
inline void StoreInts(void* p, Ints x) { _mm512_storeu_si512(p, x); }
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats FmaMinus(Floats a, Floats b, Floats c) { return _mm512_fmsub_ps(a, b, c); }
inline Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats MaxNumber(Floats a, Floats number) { return Max(a, number); }
inline Floats Magnitude(Floats x) { return _mm512_abs_ps(x); }
inline Floats WithSignOf(Floats x, Floats magnitude) { return _mm512_or_ps(magnitude, _mm512_and_ps(x, Set(-0.0f))); }
inline Ints ToInts(Floats x) { return _mm512_cvtps_epi32(x); }
inline Ints Bits(Floats x) { return _mm512_castps_si512(x); }

inline Floats LoadHalves(const uint8_t* p) { return _mm512_cvtph_ps(Load256(p)); }
inline void StoreHalves(uint8_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats LoadBf16(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
}
// In integers: the conversion instruction of AVX-512 BF16 would flush subnormal numbers.
inline void StoreBf16(uint8_t* p, Floats x) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(Bits(x), 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(Bits(x), _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_mask_or_epi32(rounded, nan, Bits(x), _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(quiet, 16)));
}
inline Floats LoadCodes(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load128(p))); }

inline Mask NotBelow(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
inline Mask AtLeast(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline Mask Over(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask Either(Mask a, Mask b) { return a | b; }
inline Mask Without(Mask a, Mask b) { return a & ~b; }
inline bool Any(Mask mask) { return mask != 0; }
inline Floats Select(Mask mask, Floats x, Floats otherwise) { return _mm512_mask_mov_ps(otherwise, mask, x); }
inline float ReduceMax(Floats x) { return _mm512_reduce_max_ps(x); }
inline Floats TimesPowerOfTwo(Floats y, Floats n, Floats /*shifted*/) { return _mm512_scalef_ps(y, n); }

}  // namespace
}  // namespace stagecoach

#include "stage_worker/kernels/vector_math.h"

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_H_
