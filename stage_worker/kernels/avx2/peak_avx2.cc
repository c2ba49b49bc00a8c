// The peaks of AVX2 with FMA.

#include <immintrin.h>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/peak_read.h"

namespace stagecoach {
namespace {

// Independent sums: more than latency times instructions a cycle. The empty asm keeps them from being found equal.
constexpr int kChains = 10;

class Sums {
 public:
  void Add(const uint8_t* at) {
    for (int j = 0; j < 8; ++j) {
      sums_[j] = _mm256_add_epi64(sums_[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * j)));
    }
  }
  uint64_t Total() const {
    __m256i all = sums_[0];
    for (int j = 1; j < 8; ++j) all = _mm256_add_epi64(all, sums_[j]);
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }

 private:
  __m256i sums_[8] = {};
};

}  // namespace

uint64_t PeakReadAvx2(const uint8_t* data, size_t bytes, const ReadPattern& pattern) {
  return ReadInPattern<Sums>(data, bytes, pattern);
}

// Products of bytes to 16-bit pairs, eight of these to one, to 32-bit fours, to the sums: codes of up to four bits
// allow it, and no format needs fewer instructions. The empty asm at the inputs keeps the products within the loop.
double PeakInt8Avx2(int64_t rounds) {
  constexpr int kSums = 4, kSteps = 8;
  __m256i sums[kSums] = {};
  const __m256i weights = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i inputs = _mm256_set1_epi8(-2);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 4
    for (__m256i& sum : sums) {
      __m256i pairs = _mm256_maddubs_epi16(weights, inputs);
#pragma GCC unroll 8
      for (int step = 1; step < kSteps; ++step) {
        asm volatile("" : "+x"(inputs));
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weights, inputs));
      }
      asm volatile("" : "+x"(inputs));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      asm volatile("" : "+x"(sum));
    }
  }
  return static_cast<double>(rounds) * kSums * kSteps * 64;
}

double PeakF32Avx2(int64_t rounds) {
  __m256 sums[kChains] = {};
  const __m256 a = _mm256_set1_ps(1.0001f), b = _mm256_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 10
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, b, a);
      asm volatile("" : "+x"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 16;
}

}  // namespace stagecoach
