#include "coordinator/cli/sweep/sweep_points.h"

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

SweepPrediction PredictionOfLoad(const SweepConfig& point, const std::vector<ArrivingRequest>& requests) {
  ClusterOptions options;
  options.stages = 1;
  options.max_num_seqs = 32;
  options.model = "dummy://qwen3-0.6b/q8_0";
  const auto model = OpenModel(options.model).value();
  const auto launch = MakeLaunchOptions(options, model->hyper, {.program = "/coordinator"}).value();
  return PredictPoint(point, requests, options, {}, launch, model).value();
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
