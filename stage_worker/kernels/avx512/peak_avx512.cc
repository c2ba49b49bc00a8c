// The peaks of AVX-512 F and BW.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/peak_read.h"

namespace stagecoach {
namespace {

// Independent sums: more than latency times instructions a cycle. The empty asm keeps them from being found equal.
constexpr int kChains = 12;

class Sums {
 public:
  void Add(const uint8_t* at) {
    for (int j = 0; j < 4; ++j) sums_[j] = _mm512_add_epi64(sums_[j], _mm512_load_si512(at + 64 * j));
  }
  uint64_t Total() const {
    const __m512i all = _mm512_add_epi64(_mm512_add_epi64(sums_[0], sums_[1]), _mm512_add_epi64(sums_[2], sums_[3]));
    alignas(64) uint64_t lanes[8];
    _mm512_store_si512(lanes, all);
    uint64_t sum = 0;
    for (uint64_t lane : lanes) sum += lane;
    return sum;
  }

 private:
  __m512i sums_[4] = {};
};

}  // namespace

uint64_t PeakReadAvx512(const uint8_t* data, size_t bytes, const ReadPattern& pattern) {
  return ReadInPattern<Sums>(data, bytes, pattern);
}

// Products of bytes to 16-bit pairs, eight of these to one, to 32-bit fours, to the sums: codes of up to four bits
// allow it, and no format needs fewer instructions. The empty asm at the inputs keeps the products within the loop.
double PeakInt8Avx512(int64_t rounds) {
  constexpr int kSums = 4, kSteps = 8;
  __m512i sums[kSums] = {};
  const __m512i weights = _mm512_set1_epi8(3), ones = _mm512_set1_epi16(1);
  __m512i inputs = _mm512_set1_epi8(-2);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 4
    for (__m512i& sum : sums) {
      __m512i pairs = _mm512_maddubs_epi16(weights, inputs);
#pragma GCC unroll 8
      for (int step = 1; step < kSteps; ++step) {
        asm volatile("" : "+v"(inputs));
        pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(weights, inputs));
      }
      asm volatile("" : "+v"(inputs));
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, ones));
      asm volatile("" : "+v"(sum));
    }
  }
  return static_cast<double>(rounds) * kSums * kSteps * 128;
}

double PeakF32Avx512(int64_t rounds) {
  __m512 sums[kChains] = {};
  const __m512 a = _mm512_set1_ps(1.0001f), b = _mm512_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, b, a);
      asm volatile("" : "+v"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 32;
}

}  // namespace stagecoach
