#include "common/wire/job_proto.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/step/sampling.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "proto/step.pb.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

// "prefill-first" is called POLICY_PREFILL_FIRST on the wire.
template <typename Enum, size_t kCount>
void ExpectNumbersOfTheSameNames(const NamedValue<Enum> (&table)[kCount],
                                 const google::protobuf::EnumDescriptor* numbers) {
  for (const NamedValue<Enum>& entry : table) {
    const google::protobuf::EnumValueDescriptor* number = numbers->FindValueByNumber(ToProto(entry.value));
    ASSERT_NE(number, nullptr) << entry.name;
    std::string ending = absl::StrCat("_", absl::AsciiStrToUpper(entry.name));
    std::replace(ending.begin(), ending.end(), '-', '_');
    EXPECT_THAT(number->name(), EndsWith(ending));
  }
}

// Every name of the table has a number of its own, every number but 0 has a name, and both ways agree.
template <typename Enum, size_t kCount>
void ExpectOneNumberForEachName(const NamedValue<Enum> (&table)[kCount],
                                const google::protobuf::EnumDescriptor* numbers) {
  ExpectNumbersOfTheSameNames(table, numbers);
  using Proto = decltype(ToProto(Enum{}));
  std::set<int> seen;
  for (const NamedValue<Enum>& entry : table) {
    const Proto proto = ToProto(entry.value);
    EXPECT_TRUE(seen.insert(proto).second) << entry.name;
    ASSERT_TRUE(FromProto(proto).ok()) << entry.name;
    EXPECT_EQ(*FromProto(proto), entry.value) << entry.name;
    EXPECT_EQ(*ParseName(table, "field", entry.name), entry.value);
  }
  EXPECT_EQ(numbers->value_count(), static_cast<int>(kCount) + 1) << numbers->name();
  for (const int number : {-1, 0, static_cast<int>(kCount) + 1}) {
    EXPECT_THAT(FromProto(static_cast<Proto>(number)).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(NamesIn(table))));
  }
}

TEST(JobProto, EveryNameHasANumberAndEveryNumberAName) {
  ExpectOneNumberForEachName(kKvTypes, pb::KvType_descriptor());
  ExpectOneNumberForEachName(kWireTypes, pb::WireType_descriptor());
  ExpectOneNumberForEachName(kInstructionSets, pb::InstructionSet_descriptor());
}

TEST(JobProto, WeightsThatNobodySetAreOfTheFile) {
  ExpectNumbersOfTheSameNames(kWeightSources, pb::WeightSource_descriptor());
  EXPECT_EQ(*FromProto(pb::WEIGHT_SOURCE_UNSPECIFIED), WeightSource::kFile);
}

TEST(JobProto, AnUnknownChoiceIsNamedWithItsField) {
  EXPECT_EQ(FromProto(static_cast<pb::WireType>(9)).status().message(),
            "`wire_type` is number 9, expected one of f32, bf16");
  pb::ConfigureJob job;
  SetJobSettings(JobSettings(), &job);
  job.set_chunking("at-random");
  EXPECT_EQ(JobSettingsOf(job).status().message(), "`chunking` is 'at-random', expected one of constant, equal-time");
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
  EXPECT_EQ(JobSettingsOf(job).value(), sent);
  SetJobSettings(defaults, &job);  // over other ones
  EXPECT_EQ(JobSettingsOf(job).value(), defaults);
}

TEST(JobProto, ASettingOutsideOfItsRangeIsNamed) {
  const auto refusal = [](const std::function<void(pb::ConfigureJob*)>& change) {
    pb::ConfigureJob job;
    SetJobSettings(JobSettings(), &job);
    change(&job);
    return std::string(JobSettingsOf(job).status().message());
  };
  EXPECT_EQ(refusal([](auto* job) { job->set_max_num_seqs(0); }), "`max_num_seqs` is 0, expected 1 to 4096");
  EXPECT_EQ(refusal([](auto* job) { job->set_threads(0); }), "");
  EXPECT_EQ(refusal([](auto* job) { job->set_threads(-1); }), "`threads` is -1, expected 1 to 1024");
  EXPECT_EQ(refusal([](auto* job) { job->set_block_tokens(24); }), "`block_tokens` is 24, expected a multiple of 16");
  EXPECT_EQ(refusal([](auto* job) { job->add_layer_split(-3); }), "`layer_split` is -3, expected 1 to 1024");
  EXPECT_EQ(refusal([](auto* job) { job->set_slo_itl_s(5000); }),
            "`slo_itl_s` is 5000 s, expected 0.0001 to 3600, or 0 for the default");
  EXPECT_EQ(refusal([](auto* job) { job->set_stage_timeout_s(0); }), "`stage_timeout_s` is 0 s, expected 0.1 to 86400");
  EXPECT_EQ(
      refusal([](auto* job) { job->set_isa(static_cast<pb::InstructionSet>(99)); }),
      "`isa` is number 99, expected one of scalar, avx2, avx-vnni, avx512, avx512-vnni, avx512-bf16, neon-dotprod, "
      "neon-i8mm");
  EXPECT_THAT(refusal([](auto* job) { job->mutable_emulated_link()->set_latency_s(-1); }),
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

TEST(HostReport, IsFoundAmongWhatALoginPrints) {
  pb::HostReport report;
  *report.mutable_hello() = MakeHello(pb::Hello::ROLE_STAGE, {InstructionSet::kScalar});
  report.add_left()->set_name("stage_worker");
  const std::string line = EncodeHostReport(report);
  for (const std::string& text : {line, line + "\r\n", "Welcome to host\n" + line + "\nbye\n"}) {
    const pb::HostReport found = FindHostReport(text).value();
    EXPECT_EQ(found.SerializeAsString(), report.SerializeAsString());
  }
  const std::string printed = "Welcome!\n" + line + "\n";
  for (size_t bytes = 0; bytes < printed.size(); ++bytes) EXPECT_FALSE(HoldsHostReport(printed.substr(0, bytes)));
  EXPECT_TRUE(HoldsHostReport(printed));
}

TEST(HostReport, AnythingElseIsNone) {
  EXPECT_EQ(FindHostReport("usage: ...").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindHostReport("").status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"stagecoach-host-report:", "stagecoach-host-report:0", "stagecoach-host-report:zz",
                           "stagecoach-host-report:ffff", "stagecoach-host-report:12021000"}) {
    EXPECT_EQ(FindHostReport(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// A coordinator and three stages, each on a host of its own.
std::vector<pb::Hello> GoodWorld() {
  std::vector<std::string> bytes = {MakeHello(pb::Hello::ROLE_COORDINATOR, {}).SerializeAsString()};
  for (int stage = 0; stage < 3; ++stage) {
    pb::Hello hello = MakeHello(pb::Hello::ROLE_STAGE, {InstructionSet::kScalar, InstructionSet::kAvx2});
    hello.set_host("node" + std::to_string(stage));
    hello.set_rank(99);  // a rank's own word on it does not count
    bytes.push_back(hello.SerializeAsString());
  }
  return ParseHellos(bytes).value();
}

TEST(Handshake, AWorldOfOneVersionWithTheCoordinatorAsRank0CanBeAJob) {
  const std::vector<pb::Hello> hellos = GoodWorld();
  EXPECT_TRUE(CheckWorld(hellos).ok()) << CheckWorld(hellos);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(hellos[rank].rank(), rank);
  EXPECT_EQ(hellos[0].isas_size(), 0);
  ASSERT_EQ(hellos[2].isas_size(), 2);
  EXPECT_EQ(hellos[2].isas(1), pb::INSTRUCTION_SET_AVX2);
  EXPECT_GT(hellos[1].pid(), 0);
  EXPECT_GT(hellos[1].available_memory_bytes(), 0u);
}

TEST(Handshake, AWorldThatCanBeNoJobSaysWhatIsWrongWithWhichRank) {
  const struct {
    std::function<void(std::vector<pb::Hello>*)> change;
    std::string message;
  } cases[] = {
      {[](auto* w) { (*w)[2].set_protocol_version(kProtocolVersion + 1); },
       absl::StrCat("rank 2 on node1 runs version 0.1.0 (protocol ", kProtocolVersion + 1, ")")},
      {[](auto* w) { (*w)[3].set_program_version("9.9"); }, "rank 3 on node2 runs version 9.9"},
      {[](auto* w) { (*w)[1].clear_isas(); }, "rank 1 on node0: its instruction sets: it names none"},
      {[](auto* w) { (*w)[1].set_isas(0, static_cast<pb::InstructionSet>(50)); },
       "rank 1 on node0: its instruction sets: `isa` is number 50"},
      {[](auto* w) { (*w)[3].set_role(pb::Hello::ROLE_COORDINATOR); }, "2 coordinators and 2 stage_workers"},
      {[](auto* w) { (*w)[0].set_role(pb::Hello::ROLE_STAGE); }, "0 coordinators and 4 stage_workers"},
      {[](auto* w) { std::swap((*w)[0], (*w)[1]); }, "rank 0 is a stage_worker"},
      {[](auto* w) { w->resize(1); }, "a coordinator and no stage_worker"},
  };
  for (const auto& one : cases) {
    std::vector<pb::Hello> world = GoodWorld();
    one.change(&world);
    const absl::Status status = CheckWorld(world);
    EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(one.message)))
        << one.message;
    EXPECT_EQ(absl::StrContains(status.message(), "srun with --mpi=pmix"), world.size() == 1) << status;
  }
}

TEST(Handshake, ARankThatSaysAnythingElseIsNamed) {
  EXPECT_THAT(ParseHellos({GoodWorld()[0].SerializeAsString(), "\xff\xff"}).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 1 did not introduce itself")));
}

TEST(SamplingParams, EveryDeclarationHasAFieldOfItsType) {
  VisitSampling([](const SamplingSetting& setting, auto member, auto) {
    const auto* field = pb::SamplingParams::descriptor()->FindFieldByName(setting.name);
    ASSERT_NE(field, nullptr) << setting.name;
    constexpr bool kFloat = std::is_same_v<decltype(member), float SamplingParams::*>;
    EXPECT_EQ(field->cpp_type(), kFloat ? field->CPPTYPE_FLOAT : field->CPPTYPE_INT32) << setting.name;
  });
}

}  // namespace
}  // namespace stagecoach
