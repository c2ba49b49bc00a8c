#include "common/wire/job_proto.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {
namespace {

template <typename Enum, typename Proto>
struct Pair {
  Enum value;
  Proto proto;
};

constexpr Pair<KvType, pb::KvType> kKvTypePairs[] = {{KvType::kF32, pb::KV_TYPE_F32},
                                                     {KvType::kF16, pb::KV_TYPE_F16},
                                                     {KvType::kBF16, pb::KV_TYPE_BF16},
                                                     {KvType::kQ8_0, pb::KV_TYPE_Q8_0}};
constexpr Pair<WireType, pb::WireType> kWireTypePairs[] = {{WireType::kF32, pb::WIRE_TYPE_F32},
                                                           {WireType::kBF16, pb::WIRE_TYPE_BF16}};
constexpr Pair<Policy, pb::Policy> kPolicyPairs[] = {{Policy::kPrefillFirst, pb::POLICY_PREFILL_FIRST},
                                                     {Policy::kInterleaved, pb::POLICY_INTERLEAVED},
                                                     {Policy::kDecodePriority, pb::POLICY_DECODE_PRIORITY},
                                                     {Policy::kThrottled, pb::POLICY_THROTTLED},
                                                     {Policy::kPhases, pb::POLICY_PHASES}};
constexpr Pair<Chunking, pb::Chunking> kChunkingPairs[] = {{Chunking::kConstant, pb::CHUNKING_CONSTANT},
                                                           {Chunking::kEqualTime, pb::CHUNKING_EQUAL_TIME}};
constexpr Pair<InstructionSet, pb::InstructionSet> kInstructionSetPairs[] = {
    {InstructionSet::kScalar, pb::INSTRUCTION_SET_SCALAR},
    {InstructionSet::kAvx2, pb::INSTRUCTION_SET_AVX2},
    {InstructionSet::kAvx512, pb::INSTRUCTION_SET_AVX512},
    {InstructionSet::kAvx512Vnni, pb::INSTRUCTION_SET_AVX512_VNNI},
    {InstructionSet::kAvx512Bf16, pb::INSTRUCTION_SET_AVX512_BF16},
    {InstructionSet::kNeonDotprod, pb::INSTRUCTION_SET_NEON_DOTPROD},
    {InstructionSet::kNeonI8mm, pb::INSTRUCTION_SET_NEON_I8MM}};
constexpr Pair<CpuBind, pb::CpuBind> kCpuBindPairs[] = {{CpuBind::kAuto, pb::CPU_BIND_AUTO},
                                                        {CpuBind::kNone, pb::CPU_BIND_NONE}};
constexpr Pair<WeightSource, pb::WeightSource> kWeightSourcePairs[] = {
    {WeightSource::kFile, pb::WEIGHT_SOURCE_FILE}, {WeightSource::kStream, pb::WEIGHT_SOURCE_STREAM}};

template <typename Enum, typename Proto, size_t kCount>
Proto Encoded(const Pair<Enum, Proto> (&pairs)[kCount], Enum value) {
  for (const Pair<Enum, Proto>& pair : pairs) {
    if (pair.value == value) return pair.proto;
  }
  CHECK(false);
}

template <typename Enum, typename Proto, size_t kCount>
absl::StatusOr<Enum> Decoded(const Pair<Enum, Proto> (&pairs)[kCount], const NamedValue<Enum> (&names)[kCount],
                             const char* field, Proto proto) {
  for (const Pair<Enum, Proto>& pair : pairs) {
    if (pair.proto == proto) return pair.value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("`", field, "` is number ", static_cast<int>(proto), ", expected one of ", NamesIn(names)));
}

}  // namespace

pb::KvType ToProto(KvType type) { return Encoded(kKvTypePairs, type); }
pb::WireType ToProto(WireType type) { return Encoded(kWireTypePairs, type); }
pb::Policy ToProto(Policy policy) { return Encoded(kPolicyPairs, policy); }
pb::Chunking ToProto(Chunking chunking) { return Encoded(kChunkingPairs, chunking); }
pb::InstructionSet ToProto(InstructionSet set) { return Encoded(kInstructionSetPairs, set); }
pb::CpuBind ToProto(CpuBind bind) { return Encoded(kCpuBindPairs, bind); }
pb::WeightSource ToProto(WeightSource source) { return Encoded(kWeightSourcePairs, source); }

absl::StatusOr<KvType> FromProto(pb::KvType type) { return Decoded(kKvTypePairs, kKvTypes, "kv_type", type); }
absl::StatusOr<WireType> FromProto(pb::WireType type) { return Decoded(kWireTypePairs, kWireTypes, "wire_type", type); }
absl::StatusOr<Policy> FromProto(pb::Policy policy) { return Decoded(kPolicyPairs, kPolicies, "policy", policy); }
absl::StatusOr<Chunking> FromProto(pb::Chunking chunking) {
  if (chunking == pb::CHUNKING_UNSPECIFIED) return Chunking::kConstant;
  return Decoded(kChunkingPairs, kChunkings, "chunking", chunking);
}
absl::StatusOr<InstructionSet> FromProto(pb::InstructionSet set) {
  return Decoded(kInstructionSetPairs, kInstructionSets, "isa", set);
}
absl::StatusOr<CpuBind> FromProto(pb::CpuBind bind) { return Decoded(kCpuBindPairs, kCpuBinds, "cpu_bind", bind); }
absl::StatusOr<WeightSource> FromProto(pb::WeightSource source) {
  if (source == pb::WEIGHT_SOURCE_UNSPECIFIED) return WeightSource::kFile;
  return Decoded(kWeightSourcePairs, kWeightSources, "weights", source);
}

pb::EmulatedLink ToProto(const EmulatedLink& link) {
  pb::EmulatedLink out;
  out.set_latency_s(link.latency_s);
  out.set_bytes_per_s(link.bytes_per_s);
  return out;
}
EmulatedLink FromProto(const pb::EmulatedLink& link) {
  return {.latency_s = link.latency_s(), .bytes_per_s = link.bytes_per_s()};
}

const char* InstructionSetName(pb::InstructionSet set) {
  const absl::StatusOr<InstructionSet> known = FromProto(set);
  return known.ok() ? InstructionSetName(*known) : "invalid";
}

FingerprintsProto ToProto(const std::vector<FileFingerprint>& fingerprints) {
  FingerprintsProto out;
  for (const FileFingerprint& fingerprint : fingerprints) {
    pb::FileFingerprint* entry = out.Add();
    entry->set_size_bytes(fingerprint.size_bytes);
    entry->set_modified_ns(fingerprint.modified_ns);
    entry->set_header_hash(fingerprint.header_hash);
    entry->set_sample_hash(fingerprint.sample_hash);
  }
  return out;
}

std::vector<FileFingerprint> FromProto(const FingerprintsProto& fingerprints) {
  std::vector<FileFingerprint> out;
  for (const pb::FileFingerprint& entry : fingerprints) {
    out.push_back({entry.size_bytes(), entry.modified_ns(), entry.header_hash(), entry.sample_hash()});
  }
  return out;
}

}  // namespace stagecoach
