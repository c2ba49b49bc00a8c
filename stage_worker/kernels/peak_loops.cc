#include <cstring>
#include <iterator>
#include <numeric>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/peak_read.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 64;

// Hides the lanes from the compiler, which must therefore do the work of a round.
template <typename T>
void Keep(T* lanes) {
  asm volatile("" : : "r"(lanes) : "memory");
}

// Vectors of the baseline.
class Sums {
 public:
  void Add(const uint8_t* at) {
    for (size_t i = 0; i < kPeakStep; i += sizeof(sums_)) {
      uint64_t words[std::size(sums_)];
      std::memcpy(words, at + i, sizeof(words));
      for (size_t j = 0; j < std::size(sums_); ++j) sums_[j] += words[j];
    }
  }
  uint64_t Total() const { return std::accumulate(std::begin(sums_), std::end(sums_), uint64_t{0}); }

 private:
  uint64_t sums_[8] = {};
};

uint64_t ReadScalar(const uint8_t* data, size_t bytes, const ReadPattern& pattern) {
  return ReadInPattern<Sums>(data, bytes, pattern);
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
    {InstructionSetName(kAvxVnni), {PeakReadAvx2, PeakInt8AvxVnni, nullptr, PeakF32Avx2}},
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
