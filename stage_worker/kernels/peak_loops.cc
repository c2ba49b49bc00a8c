#include <cstring>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 64;

// Hides the lanes from the compiler, which must therefore do the work of a round.
template <typename T>
void Keep(T* lanes) {
  asm volatile("" : : "r"(lanes) : "memory");
}

uint64_t ReadScalar(const uint8_t* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, data + i, sizeof(words));
    for (int j = 0; j < 8; ++j) sums[j] += words[j];
  }
  uint64_t sum = 0;
  for (uint64_t part : sums) sum += part;
  return sum;
}

// Plain loops, as the compiler vectorises them for the baseline.
double Int8Scalar(int64_t rounds) {
  int32_t sums[kLanes] = {};
  int16_t a[kLanes], b[kLanes];
  for (int i = 0; i < kLanes; ++i) a[i] = static_cast<int16_t>(i), b[i] = static_cast<int16_t>(-i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kLanes; ++i) sums[i] += a[i] * b[i];
    for (int32_t& sum : sums) sum &= 0xffff;
    Keep(sums);
    Keep(a);
  }
  return static_cast<double>(rounds) * kLanes * 2;
}

double F32Scalar(int64_t rounds) {
  float sums[kLanes] = {}, a[kLanes];
  for (int i = 0; i < kLanes; ++i) a[i] = static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kLanes; ++i) sums[i] = sums[i] * 0.5f + a[i];
    Keep(sums);
    Keep(a);
  }
  return static_cast<double>(rounds) * kLanes * 2;
}

struct NamedLoops {
  const char* isa;
  PeakLoops loops;
};

using enum InstructionSet;
constexpr NamedLoops kLoops[] = {
    {InstructionSetName(kScalar), {ReadScalar, Int8Scalar, nullptr, F32Scalar}},
#if defined(__x86_64__)
    {InstructionSetName(kAvx2), {PeakReadAvx2, PeakInt8Avx2, nullptr, PeakF32Avx2}},
    {InstructionSetName(kAvx512), {PeakReadAvx512, PeakInt8Avx512, nullptr, PeakF32Avx512}},
    {InstructionSetName(kAvx512Vnni), {PeakReadAvx512, PeakInt8Avx512Vnni, nullptr, PeakF32Avx512}},
    {InstructionSetName(kAvx512Bf16), {PeakReadAvx512, PeakInt8Avx512Vnni, PeakBf16Avx512Bf16, PeakF32Avx512}},
#endif
};

}  // namespace

const PeakLoops& PeakLoopsOf(const Kernels& kernels) {
  for (const NamedLoops& named : kLoops) {
    if (std::strcmp(named.isa, kernels.isa) == 0) return named.loops;
  }
  static constexpr PeakLoops kReadOnly = {ReadScalar, nullptr, nullptr, nullptr};
  return kReadOnly;
}

}  // namespace stagecoach
