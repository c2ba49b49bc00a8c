#include "coordinator/cli/sweep/sweep_points.h"

#include <filesystem>

#include "coordinator/cli/sweep/sweep_options.h"
#include "coordinator/plan/host_profile.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

SweepPrediction PredictionOfLoad(const SweepConfig& point, const std::vector<ArrivingRequest>& requests) {
  ClusterOptions options;
  options.stages = 1;
  options.max_num_seqs = 32;
  options.model = "dummy://qwen3-0.6b/q8_0";
  const auto model = OpenModel(options.model).value();
  const auto launch = MakeLaunchOptions(options, *model, {.program = "/coordinator"}).value();
  return PredictPoint(point, requests, options, {}, /*own_probe=*/false, launch, model).value();
}

TEST(PredictPoint, AnOpenLoopOfOneRequestEndsAsSoonAsOneAlone) {
  SweepConfig alone, open;
  alone.stages = open.stages = 1;
  alone.max_num_seqs = open.max_num_seqs = 32;
  alone.concurrency = 1;
  open.arrivals = "poisson:1";
  const std::vector<ArrivingRequest> one = {{.arrival_s = 0.5, .prompt_tokens = 128, .output_tokens = 64}};
  const SweepPrediction expected = PredictionOfLoad(alone, one), found = PredictionOfLoad(open, one);
  EXPECT_GT(found.itl_s, expected.itl_s) << "what a full pipeline carries is still said";
  EXPECT_DOUBLE_EQ(found.output_tokens_per_s, 64 / (expected.ttft_s + 63 * expected.itl_s));
}

struct KnownHostsTest : ::testing::Test {
  KnownHostsTest() {
    options.model = "dummy://qwen3-0.6b/q8_0";
    model = OpenModel(options.model).value();
    for (const char* name : {"n1", "n2.rack", "n3"}) {
      profile.hosts.push_back(AssumedHost(name, 4, uint64_t{64} << 30, InstructionSet::kAvx2));
    }
    profile.hosts[1].speeds[0].int8_gops *= 8;
    profile.default_link = AssumedLink();
    testing::WriteFileOrDie(dir.File("profile"), HostProfileJson(profile));
  }
  LaunchOptions Launch(const std::string& hosts) {
    options.hosts = hosts;
    return MakeLaunchOptions(options, *model, {.program = "/coordinator"}).value();
  }
  absl::StatusOr<SweepPrediction> Predicted(const std::string& hosts, int64_t stages) {
    options.stages = stages;
    SweepConfig point;
    point.stages = stages;
    point.concurrency = 8;
    const LaunchOptions launch = Launch(hosts);
    const std::vector<ArrivingRequest> one = {{.prompt_tokens = 128, .output_tokens = 64}};
    return PredictPoint(point, one, options, {.profile = dir.File("profile")}, /*own_probe=*/false, launch, model);
  }

  const testing::TempDir dir;
  ClusterOptions options;
  std::shared_ptr<const ModelDescription> model;
  HostProfile profile;
};

TEST_F(KnownHostsTest, AHostThatTheProfileLacksHasNoPrediction) {
  EXPECT_THAT(Predicted("n1,n4", 2).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("has no speeds of host 'n4', only of n1, n2.rack")));
  EXPECT_TRUE(Predicted("n3,n1", 2).ok());
}

TEST_F(KnownHostsTest, APredictionIsOfTheHostsThatRunInTheirOrder) {
  const SweepPrediction slow = Predicted("n1,n3", 2).value(), mixed = Predicted("n2,n1", 2).value();
  EXPECT_LT(mixed.ttft_s, slow.ttft_s);
  EXPECT_GE(mixed.prefill_tokens_per_s, slow.prefill_tokens_per_s) << "which the slower stage bounds";
  EXPECT_GT(Predicted("n2", 1)->prefill_tokens_per_s, 4 * Predicted("n3", 1)->prefill_tokens_per_s);
}

TEST_F(KnownHostsTest, AHostThatWasLeftOutIsNoticed) {
  const auto ran = [&](const std::string& hosts, const std::vector<const char*>& names) {
    std::vector<SweepStage> stages;
    for (const char* name : names) stages.push_back({.host = name});
    options.stages = std::ssize(stages);
    return OtherHostsThatRan(Launch(hosts), stages);
  };
  EXPECT_EQ(ran("n1,n2.rack,n3", {"n1", "n2"}), "");
  EXPECT_EQ(ran("n1,n2,n3", {"n2", "n3"}), "n2,n3");
  EXPECT_EQ(ran("n1:2,n2", {"n1", "n1.rack"}), "");
  const std::string others = ran("n1:2,n2:2,n3:2", {"n2", "n2", "n3"});
  EXPECT_EQ(others, "n2:2,n3:2");
  EXPECT_EQ(others, HostsText(Launch("n2:2,n3:2")).value()) << "or a sweep of those hosts would never meet them";
  EXPECT_EQ(ran("n1,n2", {"ip-10-0-0-1", "ip-10-0-0-2"}), "") << "names of their own";
}

TEST_F(KnownHostsTest, WhatNoHostCanRunIsRefusedWhateverItsMemory) {
  EXPECT_TRUE(CheckCanRun(Launch("n1,n2"), profile, *model).ok());
  options.kv_cache_bytes = 1024;
  EXPECT_THAT(CheckCanRun(Launch("n1,n2"), profile, *model).message(), HasSubstr("`kv_cache_bytes` is 1024"));
  options.kv_cache_bytes = uint64_t{1} << 45;
  EXPECT_TRUE(CheckCanRun(Launch("n1,n2"), profile, *model).ok()) << "a host may have so much";
  options.kv_cache_bytes = 0;
  options.isa = InstructionSet::kAvx512Vnni;
  EXPECT_TRUE(CheckCanRun(Launch("n1,n2"), std::nullopt, *model).ok()) << "nothing is known of them";
  EXPECT_THAT(CheckCanRun(Launch("n1,n2"), profile, *model).message(), HasSubstr("stage 0 on n1 has avx2 and not"));
  for (const InstructionSet isa : {InstructionSet::kAvx2, InstructionSet::kNeonI8mm}) {
    const std::vector<InstructionSet> own = CpuInstructionSets();
    options.isa = isa;
    EXPECT_EQ(CheckCanRun(Launch("localhost"), std::nullopt, *model).ok(),
              std::find(own.begin(), own.end(), isa) != own.end());
  }
}

TEST(KeepTrace, NamesATimelineAfterThePointThatRan) {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir.File("traces"));
  SweepConfig meant, ran;
  ran.hosts = "n2,n3";
  const std::string written = dir.File(SweepTraceName(meant));
  EXPECT_EQ(KeepTrace(written, dir.path(), meant, "a point"), "") << "there is none";
  testing::WriteFileOrDie(written, "[]");
  EXPECT_EQ(KeepTrace(written, dir.path(), ran, "a point"), SweepTraceName(ran));
  EXPECT_FALSE(std::filesystem::exists(written)) << "which the point that was meant will have";
  EXPECT_EQ(testing::ReadFileOrDie(dir.File(SweepTraceName(ran))), "[]");
  testing::WriteFileOrDie(written, "");
  std::filesystem::resize_file(written, kMostSweepTraceBytes + 1);  // with a hole
  EXPECT_EQ(KeepTrace(written, dir.path(), meant, "a point"), "");
  EXPECT_FALSE(std::filesystem::exists(written));
}

TEST(EndOfSweep, IsNoSuccessWherePointsThatWereAskedForAreMissing) {
  EXPECT_TRUE(EndOfSweep(4, 0, 0).ok());
  EXPECT_EQ(EndOfSweep(4, 1, 0).message(), "1 of 4 points failed; the same command tries them again");
  EXPECT_EQ(ExitCodeOf(EndOfSweep(4, 0, 1)), ExitCode::kLostStages);
  EXPECT_EQ(EndOfSweep(4, 2, 1).message(),
            "2 of 4 points failed, and 1 of 4 points ran on other hosts than were asked for; the same command tries "
            "them again");
}

TEST(ParsePolicies, TakesListsInTheirOrderAndEachPolicyOnce) {
  const auto parsed = ParsePolicies({"throttled, phases", "throttled,interleaved"}, Policy::kPrefillFirst).value();
  EXPECT_THAT(parsed, ElementsAre(Policy::kThrottled, Policy::kPhases, Policy::kInterleaved));
  EXPECT_THAT(*ParsePolicies({}, Policy::kPrefillFirst), ElementsAre(Policy::kPrefillFirst));
  EXPECT_THAT(*ParsePolicies({"phases,all"}, Policy::kPrefillFirst), SizeIs(std::size(kPolicies)));
}

TEST(ParsePolicies, NamesTheChoicesOfOneThatIsUnknown) {
  for (const char* const list : {"fair", "throttled,", ""}) {
    const auto parsed = ParsePolicies({list}, Policy::kInterleaved);
    ASSERT_FALSE(parsed.ok()) << list;
    EXPECT_THAT(parsed.status().message(), HasSubstr("expected one of prefill-first, interleaved"));
  }
}

SweepPoint PointOf(Policy policy, double rate, double first_s, double gap_s) {
  SweepPoint point;
  point.config.policy = policy;
  point.result.output_tokens_per_s = rate;
  point.result.ttft_s.p50 = point.result.ttft_s.p99 = first_s;
  point.result.itl_s.p50 = gap_s;
  point.result.itl_s.p99 = 2 * gap_s;
  point.result.bubble = 0.25;
  point.result.rows_per_pass = 12;
  return point;
}

TEST(PolicyTable, HasARowForEachPolicyAndStarsTheBestOfAColumn) {
  EXPECT_EQ(PolicyTable({PointOf(Policy::kInterleaved, 120.5, 0.5, 0.02), PointOf(Policy::kThrottled, 150, 0.6, 0.01)}),
            "policy       tokens/s  TTFT p50 ms     p99  ITL p50 ms     p99  bubble %  rows a pass\n"
            "interleaved    120.5        500.0*  500.0*      20.00   40.00       25.0         12.0\n"
            "throttled      150.0*       600.0   600.0       10.00*  20.00*      25.0         12.0\n");
}

TEST(PolicyTable, TakesTheMedianOfRepetitions) {
  const std::string table =
      PolicyTable({PointOf(Policy::kPhases, 100, 1, 0.01), PointOf(Policy::kThrottled, 1, 1, 0.01),
                   PointOf(Policy::kPhases, 300, 1, 0.01), PointOf(Policy::kPhases, 200, 1, 0.01)});
  EXPECT_THAT(table, HasSubstr("phases       200.0*"));
  EXPECT_THAT(table, Not(HasSubstr("300.0")));
}

TEST(PolicyTable, ShowsTheShareOfGoodRequestsWhereThereAreBounds) {
  SweepPoint point = PointOf(Policy::kThrottled, 100, 1, 0.01);
  EXPECT_THAT(PolicyTable({point}), Not(HasSubstr("good %")));
  point.config.slo_ttft_s = 0.5;
  point.result.slo_share = 0.75;
  EXPECT_THAT(PolicyTable({point}), HasSubstr("good %"));
  EXPECT_THAT(PolicyTable({point}), HasSubstr("75.0"));
  EXPECT_EQ(PolicyTable({}), "");
}

TEST(PolicyTables, HaveOneForEachLoadThatSeveralPoliciesMet) {
  std::vector<SweepPoint> points = {PointOf(Policy::kThrottled, 100, 1, 0.01), PointOf(Policy::kPhases, 100, 1, 0.01),
                                    PointOf(Policy::kPhases, 100, 1, 0.01), PointOf(Policy::kThrottled, 100, 1, 0.01)};
  for (SweepPoint& point : points) point.config.prompt = "128", point.config.output = "64", point.config.stages = 2;
  points[2].config.concurrency = 8;
  points[3].config.repetition = 1;
  EXPECT_THAT(PolicyTables(points), HasSubstr("\npp 2, each policy/512, f32, closed, 128 -> 64\npolicy"));
  EXPECT_THAT(PolicyTables(points), Not(HasSubstr("x8"))) << "there is one policy";
  points[1].error = "lost";
  EXPECT_EQ(PolicyTables(points), "");
}

}  // namespace
}  // namespace stagecoach
