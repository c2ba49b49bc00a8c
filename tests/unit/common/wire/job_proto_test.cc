#include "common/wire/job_proto.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

// Gives every setting a value that is not its default.
struct MakeOther {
  void operator()(const JobSetting&, int64_t& value, IntegerRange range) {
    value = value == range.min ? range.min + 1 : range.min;
  }
  void operator()(const JobSetting&, double& value, NumberRange range) { value = range.min; }
  void operator()(const JobSetting&, std::vector<int64_t>& values, IntegerRange range) { values = {range.min, 7}; }
  void operator()(const JobSetting&, uint64_t& value) { value = ~uint64_t{0} >> 1; }
  void operator()(const JobSetting&, bool& value) { value = !value; }
  void operator()(const JobSetting& setting, std::string& value) { value = setting.name; }
  template <size_t kCount>
  void operator()(const JobSetting&, std::string& value, const char* const (&choices)[kCount]) {
    value = choices[kCount - 1];
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting&, Enum& value, const NamedValue<Enum> (&names)[kCount]) {
    value = value == names[0].value ? names[1].value : names[0].value;
  }
  template <typename Enum, size_t kCount>
  void operator()(const JobSetting&, std::optional<Enum>& value, const NamedValue<Enum> (&names)[kCount]) {
    value = names[0].value;
  }
  void operator()(const JobSetting&, EmulatedLink& link) { link = {.latency_s = 0.002, .bytes_per_s = 5000}; }
};

TEST(JobProto, EverySettingComesBackAsItWasSent) {
  JobSettings sent;
  VisitJobSettings(sent, MakeOther());
  pb::ConfigureJob job;
  SetJobSettings(sent, &job);
  const JobSettings defaults;
  int fields = 0;
  VisitJobSettings(defaults, [&](const JobSetting& setting, auto&&...) {
    const google::protobuf::FieldDescriptor* field = pb::ConfigureJob::descriptor()->FindFieldByName(setting.name);
    ASSERT_NE(field, nullptr) << setting.name;
    if (!field->is_repeated() && field->cpp_type() == field->CPPTYPE_BOOL) return;  // one that is off is not sent
    ++fields;
    EXPECT_TRUE(field->is_repeated() ? job.GetReflection()->FieldSize(job, field) > 0
                                     : job.GetReflection()->HasField(job, field))
        << setting.name;
  });
  EXPECT_GT(fields, 25);
  absl::StatusOr<JobSettings> received = JobSettingsOf(job);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(*received, sent);
  SetJobSettings(defaults, &job);  // over other ones
  received = JobSettingsOf(job);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(*received, defaults);
}

TEST(JobProto, ASettingOutsideOfItsRangeIsNamed) {
  const auto refusal = [](const std::function<void(pb::ConfigureJob*)>& change) {
    pb::ConfigureJob job;
    SetJobSettings(JobSettings(), &job);
    change(&job);
    return std::string(JobSettingsOf(job).status().message());
  };
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_max_num_seqs(0); }),
            "`max_num_seqs` is 0, expected 1 to 4096");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_threads(0); }), "");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_threads(-1); }), "`threads` is -1, expected 1 to 1024");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_block_tokens(24); }),
            "`block_tokens` is 24, expected a multiple of 16");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->add_layer_split(-3); }),
            "`layer_split` is -3, expected 1 to 1024");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_slo_itl_s(5000); }),
            "`slo_itl_s` is 5000 s, expected 0.0001 to 3600, or 0 for the default");
  EXPECT_EQ(refusal([](pb::ConfigureJob* job) { job->set_stage_timeout_s(0); }),
            "`stage_timeout_s` is 0 s, expected 0.1 to 86400");
  EXPECT_EQ(
      refusal([](pb::ConfigureJob* job) { job->set_isa(static_cast<pb::InstructionSet>(99)); }),
      "`isa` is number 99, expected one of scalar, avx2, avx512, avx512-vnni, avx512-bf16, neon-dotprod, neon-i8mm");
  EXPECT_THAT(refusal([](pb::ConfigureJob* job) { job->mutable_emulated_link()->set_latency_s(-1); }),
              HasSubstr("`emulated_link`"));
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
