#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_H_

// What the *_avx2.cc units share; included by nothing else. The functions are in an unnamed namespace: each unit keeps
// its own copy.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

MatmulFn IntegerMatmulAvx2, IntegerMatmulAvxVnni;

namespace {

constexpr int64_t kPrefetchBytes = 8192;  // how far ahead of the weights in use memory is asked for

inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// What vector_math.h says.
using Floats = __m256;
using Doubles = __m256d;  // half as many
using Ints = __m256i;
using Longs = __m256i;  // half as many
using Mask = __m256;
constexpr int kLanes = 8;

inline Floats Set(float x) { return _mm256_set1_ps(x); }
inline Floats Load(const void* p) { return _mm256_castsi256_ps(Load256(p)); }
inline void Store(void* p, Floats x) { _mm256_storeu_ps(static_cast<float*>(p), x); }
inline void StoreInts(void* p, Ints x) { _mm256_storeu_si256(static_cast<Ints*>(p), x); }
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats FmaMinus(Floats a, Floats b, Floats c) { return _mm256_fmsub_ps(a, b, c); }
inline Floats Max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats Min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats MaxNumber(Floats a, Floats number) { return Max(a, number); }
inline Floats Magnitude(Floats x) { return _mm256_andnot_ps(Set(-0.0f), x); }
inline Floats WithSignOf(Floats x, Floats magnitude) { return _mm256_or_ps(magnitude, _mm256_and_ps(x, Set(-0.0f))); }
inline Ints ToInts(Floats x) { return _mm256_cvtps_epi32(x); }
inline Ints Bits(Floats x) { return _mm256_castps_si256(x); }

inline Floats LoadHalves(const uint8_t* p) { return _mm256_cvtph_ps(Load128(p)); }
inline void StoreHalves(uint8_t* p, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats LoadBf16(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
}
inline void StoreBf16(uint8_t* p, Floats x) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(Bits(x), 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(Bits(x), _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(Bits(x), _mm256_set1_epi32(0x400000));
  const __m256i high =
      _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, Bits(_mm256_cmp_ps(x, x, _CMP_UNORD_Q))), 16);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}
inline Floats LoadCodes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline Mask NotBelow(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
inline Mask AtLeast(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
inline Mask Over(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask Either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
inline Mask Without(Mask a, Mask b) { return _mm256_andnot_ps(b, a); }
inline bool Any(Mask mask) { return _mm256_movemask_ps(mask) != 0; }
inline Floats Select(Mask mask, Floats x, Floats otherwise) { return _mm256_blendv_ps(otherwise, x, mask); }

inline float ReduceMax(Floats x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline Floats TimesPowerOfTwo(Floats y, Floats /*n*/, Floats shifted) {
  const auto power = [](Ints n) {  // for n in [-126, 127]
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  };
  const Ints exponent = _mm256_sub_epi32(Bits(shifted), Bits(Set(kRoundFloat)));
  const Ints first = _mm256_srai_epi32(exponent, 1);
  return y * power(first) * power(_mm256_sub_epi32(exponent, first));
}

}  // namespace
}  // namespace stagecoach

#include "stage_worker/kernels/vector_math.h"

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_H_
