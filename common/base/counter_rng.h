#ifndef STAGECOACH_COMMON_BASE_COUNTER_RNG_H_
#define STAGECOACH_COMMON_BASE_COUNTER_RNG_H_

// Random numbers addressed by (seed, position): no state, so a replayed or re-scheduled token draws the same number.

#include <cstdint>

namespace stagecoach {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words that passes the usual test
// batteries.
inline uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) with 53 random bits.
inline double UniformAt(uint64_t seed, uint64_t position) {
  const uint64_t bits = MixBits(MixBits(seed + 0x9e3779b97f4a7c15ull) ^ MixBits(position * 0x9e3779b97f4a7c15ull + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_COUNTER_RNG_H_
