#ifndef STAGECOACH_COMMON_JOB_JOB_CHOICES_H_
#define STAGECOACH_COMMON_JOB_JOB_CHOICES_H_

// What a job can be set to beside numbers: enums, each with its one table of names, which are those of the options. On
// the wire: proto/job.proto, by common/wire/job_proto.h. Parsing an unknown name is kInvalidArgument and names
// the field and the choices; a value outside of the enum has the name "invalid".

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/value_range.h"
#include "common/job/kv_type.h"

namespace stagecoach {

inline constexpr NamedValue<KvType> kKvTypes[] = {
    {KvType::kF32, "f32"}, {KvType::kF16, "f16"}, {KvType::kBF16, "bf16"}, {KvType::kQ8_0, "q8_0"}};
constexpr const char* KvTypeName(KvType type) { return NameOf(kKvTypes, type); }
inline absl::StatusOr<KvType> ParseKvType(absl::string_view name) { return ParseName(kKvTypes, "kv_type", name); }

// How hidden states travel between stages.
enum class WireType { kF32, kBF16 };
inline constexpr NamedValue<WireType> kWireTypes[] = {{WireType::kF32, "f32"}, {WireType::kBF16, "bf16"}};
constexpr const char* WireTypeName(WireType type) { return NameOf(kWireTypes, type); }
constexpr size_t WireTypeBytes(WireType type) { return type == WireType::kF32 ? 4 : 2; }  // of one value

// What a micro-batch is made of; each is a file of coordinator/schedule/policy.
enum class Policy {
  kPrefillFirst,    // throughput: chunks of prompts alone, while there are any
  kInterleaved,     // decode rows, then chunks, under one budget of rows
  kDecodePriority,  // latency: at most kPrefillQuantum rows of prompts beside decode rows
  kThrottled,       // service: as many rows of prompts as load and room suggest (schedule/policy/throttled.h)
  kPhases,          // offline: all prompts that fit, then decoding, in turns (schedule/policy/phases.h)
};
inline constexpr NamedValue<Policy> kPolicies[] = {{Policy::kPrefillFirst, "prefill-first"},
                                                   {Policy::kInterleaved, "interleaved"},
                                                   {Policy::kDecodePriority, "decode-priority"},
                                                   {Policy::kThrottled, "throttled"},
                                                   {Policy::kPhases, "phases"}};
constexpr const char* PolicyName(Policy policy) { return NameOf(kPolicies, policy); }
inline absl::StatusOr<Policy> ParsePolicy(absl::string_view name) { return ParseName(kPolicies, "policy", name); }
inline constexpr int32_t kPrefillQuantum = 32;
inline constexpr int32_t kThrottledLeastRows = 16;  // that prompts get under kThrottled, whatever they cost

// How large the chunks of a prompt are.
enum class Chunking {
  kConstant,   // `prefill_chunk` rows
  kEqualTime,  // rows that take as long as the first chunk (schedule/chunk_planner.h)
};
inline constexpr NamedValue<Chunking> kChunkings[] = {{Chunking::kConstant, "constant"},
                                                      {Chunking::kEqualTime, "equal-time"}};
inline constexpr int32_t kEqualTimeLeastRows = 64;  // unless `prefill_chunk` is less

// What the kernels of a stage are compiled for.
enum class InstructionSet { kScalar, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kNeonDotprod, kNeonI8mm };
inline constexpr NamedValue<InstructionSet> kInstructionSets[] = {{InstructionSet::kScalar, "scalar"},
                                                                  {InstructionSet::kAvx2, "avx2"},
                                                                  {InstructionSet::kAvxVnni, "avx-vnni"},
                                                                  {InstructionSet::kAvx512, "avx512"},
                                                                  {InstructionSet::kAvx512Vnni, "avx512-vnni"},
                                                                  {InstructionSet::kAvx512Bf16, "avx512-bf16"},
                                                                  {InstructionSet::kNeonDotprod, "neon-dotprod"},
                                                                  {InstructionSet::kNeonI8mm, "neon-i8mm"}};
constexpr const char* InstructionSetName(InstructionSet set) { return NameOf(kInstructionSets, set); }
inline absl::StatusOr<InstructionSet> ParseInstructionSet(absl::string_view name) {
  return ParseName(kInstructionSets, "isa", name);
}

// The instruction sets that this machine can run, its operating system included; kScalar first, the best last. Never
// empty. Thread-safe.
std::vector<InstructionSet> CpuInstructionSets();

// Whether the kernels of this instruction set multiply BF16 matrices by bfloat16 activations. That is the bit class of
// a job: all sets without the dot give the same bits, and so do all with it.
constexpr bool HasBf16Dot(InstructionSet isa) { return isa == InstructionSet::kAvx512Bf16; }

// Who guesses tokens ahead (coordinator/guess). How many are sent, if any, the stages' times decide.
enum class Speculate { kOff, kAuto, kSuffix, kDraft };
inline constexpr NamedValue<Speculate> kSpeculations[] = {
    {Speculate::kOff, "off"}, {Speculate::kAuto, "auto"}, {Speculate::kSuffix, "suffix"}, {Speculate::kDraft, "draft"}};

// Whether compute threads are bound to CPUs; coordinator/plan/job_plan.h says when.
enum class CpuBind { kAuto, kNone };
inline constexpr NamedValue<CpuBind> kCpuBinds[] = {{CpuBind::kAuto, "auto"}, {CpuBind::kNone, "none"}};

// Where a stage gets its weights from: the model's files, at the same path on every host, or the coordinator, which
// alone has them.
enum class WeightSource { kFile, kStream };
inline constexpr NamedValue<WeightSource> kWeightSources[] = {{WeightSource::kFile, "file"},
                                                              {WeightSource::kStream, "stream"}};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_JOB_CHOICES_H_
