#include "common/wire/job_proto.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

// Every name of the table has a number of its own, every number but 0 has a name, and both ways agree.
template <typename Enum, size_t kCount>
void ExpectOneNumberForEachName(const NamedValue<Enum> (&table)[kCount],
                                const google::protobuf::EnumDescriptor* numbers) {
  using Proto = decltype(ToProto(Enum{}));
  std::set<int> seen;
  for (const NamedValue<Enum>& entry : table) {
    const Proto proto = ToProto(entry.value);
    EXPECT_NE(numbers->FindValueByNumber(proto), nullptr) << entry.name;
    EXPECT_TRUE(seen.insert(proto).second) << entry.name;
    ASSERT_TRUE(FromProto(proto).ok()) << entry.name;
    EXPECT_EQ(*FromProto(proto), entry.value) << entry.name;
    EXPECT_EQ(*ParseName(table, "field", entry.name), entry.value);
  }
  EXPECT_EQ(numbers->value_count(), static_cast<int>(kCount) + 1) << numbers->name();
  for (const int number : {-1, 0, static_cast<int>(kCount) + 1}) {
    const absl::Status refused = FromProto(static_cast<Proto>(number)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(NamesIn(table)));
  }
}

TEST(JobProto, EveryNameHasANumberAndEveryNumberAName) {
  ExpectOneNumberForEachName(kKvTypes, pb::KvType_descriptor());
  ExpectOneNumberForEachName(kWireTypes, pb::WireType_descriptor());
  ExpectOneNumberForEachName(kPolicies, pb::Policy_descriptor());
  ExpectOneNumberForEachName(kInstructionSets, pb::InstructionSet_descriptor());
  ExpectOneNumberForEachName(kCpuBinds, pb::CpuBind_descriptor());
}

TEST(JobProto, AChunkingThatNobodySetIsConstant) {
  for (const auto& [chunking, name] : kChunkings) EXPECT_EQ(*FromProto(ToProto(chunking)), chunking) << name;
  EXPECT_EQ(*FromProto(pb::CHUNKING_UNSPECIFIED), Chunking::kConstant);
}

TEST(JobProto, AnUnknownNumberIsNamedWithItsField) {
  EXPECT_EQ(FromProto(static_cast<pb::WireType>(9)).status().message(),
            "`wire_type` is number 9, expected one of f32, bf16");
  EXPECT_EQ(FromProto(pb::POLICY_UNSPECIFIED).status().message(),
            "`policy` is number 0, expected one of prefill-first, interleaved, decode-priority, throttled, phases");
  EXPECT_EQ(FromProto(static_cast<pb::Chunking>(9)).status().message(),
            "`chunking` is number 9, expected one of constant, equal-time");
}

TEST(JobProto, FingerprintsComeBackAsTheyWere) {
  const std::vector<FileFingerprint> files = {{1, -2, ~0ull}, {~0ull, 5, 6}};
  EXPECT_EQ(FromProto(ToProto(files)), files);
}

TEST(JobChoices, AnUnknownNameIsNamedWithItsField) {
  EXPECT_EQ(ParseName(kKvTypes, "kv_type", "F16").status().message(),
            "`kv_type` is 'F16', expected one of f32, f16, bf16, q8_0");
}

}  // namespace
}  // namespace stagecoach
