#ifndef STAGECOACH_STAGE_WORKER_KERNELS_PEAK_LOOPS_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_PEAK_LOOPS_H_

// What an instruction set can do at best, as loops to be timed: reading memory, and multiply-adds on registers alone.
// They bound the kernels of the same set: a share of a peak is a share of what these reach. Thread-safe.

#include <cstddef>
#include <cstdint>

namespace stagecoach {

struct Kernels;

struct PeakLoops {
  // Adds up `bytes` bytes, a multiple of 256, from a 64-byte aligned address, as fast as one thread can read them.
  uint64_t (*read)(const uint8_t* data, size_t bytes);

  // Each runs `rounds` rounds of independent multiply-adds and returns how many operations that were; a multiply-add of
  // one element is two. int8: products of bytes added to 32-bit sums, in as many instructions as the set needs for it.
  // nullptr where these kernels have no such instruction, or where nobody has written the loop (Arm).
  double (*int8_dot)(int64_t rounds);
  double (*bf16_dot)(int64_t rounds);
  double (*f32_fma)(int64_t rounds);
};

// The loops that bound these kernels. Sets without loops of their own get a plain one that reads.
const PeakLoops& PeakLoopsOf(const Kernels& kernels);

// The loops of the units.
uint64_t PeakReadAvx2(const uint8_t* data, size_t bytes);
double PeakInt8Avx2(int64_t rounds);
double PeakF32Avx2(int64_t rounds);
uint64_t PeakReadAvx512(const uint8_t* data, size_t bytes);
double PeakInt8Avx512(int64_t rounds);
double PeakF32Avx512(int64_t rounds);
double PeakInt8Avx512Vnni(int64_t rounds);
double PeakBf16Avx512Bf16(int64_t rounds);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_PEAK_LOOPS_H_
