#ifndef STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_
#define STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_

// What is taken for hosts and links that nobody has measured or described: round numbers of servers of the last years,
// on the low side. Good enough to compare plans with each other, not to promise a speed. What they are to each other
// decides how layers are split: prompts are bound by arithmetic and hardly use the output head, decoding is bound by
// reading and pays for the head in every step.

#include <cstdint>
#include <string>

#include "common/job/job_choices.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

inline constexpr double kAssumedReadGbpsOfCore = 10, kAssumedReadGbpsOfHost = 80;  // the lesser of cores' and host's
inline constexpr double kAssumedLinkGbitS = 10, kAssumedLinkLatencyUs = 50;        // between two hosts

// Of the coordinator for a micro-batch: amid the 11 to 43 us that were seen on two cores of a Sapphire Rapids. From a
// frame's arrival until whoever waits for it has it: a guess. simulate_bench.py --calibrate takes both from a run.
inline constexpr double kAssumedTurnUs = 25, kAssumedWakeUs = 50;

// Of a core with the kernels of an instruction set, in 10^9 operations a second; bf16 is 0 without its dot. What
// AVX-512 VNNI has is a round number; the others stand to it as they did in kernel_bench on a Sapphire Rapids (busy
// machine, processor time, two runs, GOP/s with AVX2, AVX-512, VNNI and VNNI with the BF16 dot): prefill of Q8_0 51,
// 62, 267, 243, of Q4_0 82, 96, 178, 186, of Q4_K 84, 86, 144, 184, of Q6_K 59, 70, 112, 112 (in the mean 0.4 and 0.46
// of VNNI); of F32 41, 63, 64, 64, attention 29, 59, 59, 59; of BF16 39, 68, 64, 54. Scalar kernels: the peak of scalar
// code. Arm's sets were not measured, and are taken for VNNI.
struct AssumedRates {
  double int8_gops = 0, bf16_gops = 0, f32_gops = 0;
};
AssumedRates AssumedRatesOfCore(InstructionSet isa);

// A host of which only these are known; its speeds are the numbers above. `isa`: that its stages compute with.
HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes, InstructionSet isa);

LinkFacts AssumedLink();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_
