#include "coordinator/cli/statistics.h"

#include "common/json/json_value.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/front/progress_line.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using ::testing::ContainsRegex;

RunSummary TwoStages() {
  RunSummary summary;
  summary.totals = {.requests = 2,
                    .prompt_tokens = 30,
                    .decode_tokens = 102,
                    .requests_with_tokens = 2,
                    .preemptions = 3,
                    .relaunches = 0,
                    .load_s = 0.5,
                    .seconds = 4,
                    .decode_s = 2,
                    .first_token_s = 0.125};
  summary.ready.emplace();
  summary.ready->set_blocks(64);
  summary.job.emplace();
  summary.job->set_busy_s(2);
  summary.job->set_bubble(0.25);
  summary.job->set_bubble_floor(0.125);
  summary.job->set_micro_batches(40);
  summary.job->set_decode_micro_batches(30);
  summary.job->set_prefill_rows(30);
  summary.job->set_decode_rows(90);
  for (int i = 0; i < 2; ++i) {
    pb::StageSummary* stage = summary.job->add_stages();
    stage->set_stage(i);
    stage->set_host(i == 0 ? "alpha" : "beta-with-a-long-name");
    stage->set_first_layer(4 * i);
    stage->set_last_layer(4 * i + 4);
    stage->set_threads(1);
    stage->set_compute_s(i == 0 ? 1.0 : 1.5);
    stage->set_blocks_used_peak(7);
    stage->set_resident_bytes(uint64_t{42} << 20);
  }
  return summary;
}

TEST(Statistics, SayWhatThePrefixCacheHad) {
  RunSummary summary = TwoStages();
  summary.totals.cached_tokens = 16;
  summary.job->set_prefix_query_tokens(33);
  summary.job->set_prefix_hit_tokens(20);
  EXPECT_THAT(StatisticsText(summary), HasSubstr("30 tokens in 2 requests, 16 of them from the prefix cache\n"));
  const Json json = TimingsJson(summary);
  EXPECT_EQ(json["cached_tokens"], 16);
  EXPECT_EQ(json["prefix_query_tokens"], 33);
  EXPECT_EQ(json["prefix_hit_tokens"], 20);
}

TEST(Statistics, NameTheStagesWhoseWeightsAreNotInHugePages) {
  RunSummary summary = TwoStages();
  pb::StageSummary* second = summary.job->mutable_stages(1);
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("huge pages"))) << "the kernel did not tell";
  second->set_huge_wanted_bytes(uint64_t{8} << 30);
  second->set_huge_bytes(uint64_t{3} << 30);
  EXPECT_THAT(StatisticsText(summary),
              HasSubstr("\nhuge pages   stage 1 on beta-with-a-long-name has 3.0 of 8.0 GiB of its weights in huge "
                        "pages and reads the rest more slowly; `coordinator doctor` says why"));
  EXPECT_EQ(StagesJson(summary)[1]["huge_bytes"], uint64_t{3} << 30);
  second->set_huge_bytes(uint64_t{7900} << 20);
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("huge pages"))) << "nearly all";
  second->set_huge_wanted_bytes(40 << 20);
  second->set_huge_bytes(0);
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("huge pages"))) << "too few to matter";
}

TEST(Statistics, HaveTheDraftBesideTheStages) {
  RunSummary summary = TwoStages();
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("draft")));
  EXPECT_TRUE(DraftJson(summary).is_null());
  pb::StageSummary* draft = summary.job->mutable_draft();
  draft->set_host("gamma");
  draft->set_last_layer(3);
  draft->set_threads(2);
  draft->set_resident_bytes(uint64_t{12} << 20);
  summary.job->set_guesses(21);
  pb::GuesserStatistics* guesses = summary.job->add_guessers();
  guesses->set_name("draft");
  guesses->set_tried(20);
  guesses->set_right(12);
  EXPECT_THAT(StatisticsText(summary), ContainsRegex("\ndraft  gamma +0-2 +2 +any .* 12\\.0\n"));
  const Json json = DraftJson(summary);
  EXPECT_EQ(json["host"], "gamma");
  EXPECT_EQ(json["resident_bytes"], uint64_t{12} << 20);
  EXPECT_EQ(json["guesses"], 20);
  EXPECT_EQ(json["guesses_right"], 12);
}

TEST(Statistics, SayWhatGuessesGaveAndCost) {
  RunSummary summary = TwoStages();
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("guesses")));
  EXPECT_FALSE(TimingsJson(summary).contains("guesses"));
  summary.job->set_guesses(200);
  summary.job->set_guesses_right(150);
  summary.job->set_guesses_void(40);
  summary.job->set_void_s(0.25);
  summary.job->add_guessers()->set_tried(160);
  summary.job->mutable_guessers(0)->set_right(150);
  EXPECT_THAT(StatisticsText(summary), HasSubstr("\nguesses      200 rows sent ahead: 150 right, as many steps saved "
                                                 "(accepted 93.8 %); 40 void, 0.250 s of the stages' time\n"));
  EXPECT_EQ(TimingsJson(summary)["guesses_accepted_share"], 0.9375);
  EXPECT_EQ(TimingsJson(summary)["guesses_right"], 150);
  pb::JobStatistics sum = *summary.job;
  AddStatistics(*summary.job, &sum);
  EXPECT_EQ(sum.guesses(), 400u);
  EXPECT_EQ(sum.guesses_right(), 300u);
  EXPECT_EQ(sum.guesses_void(), 80u);
  EXPECT_DOUBLE_EQ(sum.void_s(), 0.5);
}

TEST(Statistics, ShowWhatEachStageComputedForVoidRowsApart) {
  RunSummary summary = TwoStages();
  EXPECT_FALSE(StagesJson(summary)[0].contains("void_s"));
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("void")));
  summary.job->set_guesses(200);
  summary.job->mutable_stages(0)->set_void_s(0.125);
  summary.job->mutable_stages(1)->set_void_s(0.25);
  const std::string text = StatisticsText(summary);
  EXPECT_THAT(text, ContainsRegex("CPUs +compute s +of it void +send s"));
  EXPECT_THAT(text, ContainsRegex("0 +alpha +0-3 +1 +any +1.000 +0.125 +0.000 +0.000 +50.0 % +7/64 +42.0"))
      << "it is busy meanwhile";
  EXPECT_THAT(text, ContainsRegex("any +1.500 +0.250 +0.000 +0.000 +75.0 %"));
  EXPECT_EQ(StagesJson(summary)[1]["void_s"], 0.25);
  EXPECT_EQ(StagesJson(summary)[1]["utilisation"], 0.75);
  pb::JobStatistics sum = *summary.job;
  AddStatistics(*summary.job, &sum);
  EXPECT_DOUBLE_EQ(sum.stages(1).void_s(), 0.5);
}

TEST(Statistics, NameTheGuessersWhereThereAreSeveral) {
  RunSummary summary = TwoStages();
  summary.job->set_guesses(200);
  const auto add = [&summary](const char* name, uint64_t tried, uint64_t right) {
    pb::GuesserStatistics* guesser = summary.job->add_guessers();
    guesser->set_name(name);
    guesser->set_tried(tried);
    guesser->set_right(right);
  };
  add("suffix", 120, 90);
  EXPECT_THAT(StatisticsText(summary), Not(HasSubstr("suffix"))) << "it is the only one";
  add("prediction", 50, 45);
  EXPECT_THAT(StatisticsText(summary), HasSubstr("\n  suffix     90 of 120 right\n  prediction 45 of 50 right\n"));
  pb::JobStatistics sum = *summary.job;
  sum.mutable_guessers()->RemoveLast();
  AddStatistics(*summary.job, &sum);
  ASSERT_EQ(sum.guessers_size(), 2);
  EXPECT_EQ(sum.guessers(0).tried(), 240u);
  EXPECT_EQ(sum.guessers(0).right(), 180u);
  EXPECT_EQ(sum.guessers(1).tried(), 50u);
}

TEST(Statistics, RatesLeaveOutTheFirstTokensForDecoding) {
  const RunTotals totals = TwoStages().totals;
  EXPECT_DOUBLE_EQ(DecodeRate(totals), 50);
  EXPECT_DOUBLE_EQ(TotalRate(totals), 33);
  EXPECT_EQ(DecodeRate(RunTotals()), 0);
  EXPECT_EQ(TotalRate(RunTotals()), 0);
}

TEST(Statistics, TextNamesEverythingARunIsAskedFor) {
  const std::string text = StatisticsText(TwoStages());
  EXPECT_THAT(text,
              AllOf(HasSubstr("prompt       30 tokens in 2 requests"),
                    HasSubstr("decode       102 tokens in 2.000 s, 50.0 tokens/s"),
                    HasSubstr("first token  after 0.125 s (mean)"), HasSubstr("preemptions  3"),
                    HasSubstr("bubble       25.0 % of the stages' time, floor for this work 12.5 %"),
                    HasSubstr("efficiency   3.0 rows a pass over the weights; where sequences decode, 3.0 of them")));
  EXPECT_THAT(
      text, ContainsRegex(
                "stage +host +layers +threads +CPUs +compute s +send s +wait s +utilisation +KV blocks +resident MiB"));
  EXPECT_THAT(text, ContainsRegex("0 +alpha +0-3 +1 +any +1.000 +0.000 +0.000 +50.0 % +7/64 +42.0"));
  EXPECT_THAT(text, ContainsRegex("1 +beta-with-a-long-name +4-7 +1 +any +1.500 +0.000 +0.000 +75.0 % +7/64 +42.0"));
  EXPECT_THAT(text, Not(HasSubstr("relaunches")));
  EXPECT_THAT(text, Not(HasSubstr("prefix cache")));
}

TEST(Statistics, TableLinesAreEquallyWide) {
  const std::string text = StatisticsText(TwoStages());
  std::vector<size_t> widths;
  size_t begin = text.find("stage  ");
  ASSERT_NE(begin, std::string::npos);
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    widths.push_back(end - begin);
    begin = end + 1;
  }
  ASSERT_EQ(widths.size(), 3u);
  EXPECT_EQ(widths[0], widths[1]);
  EXPECT_EQ(widths[0], widths[2]);
}

TEST(Statistics, OfAJobThatDidNotEndInOrderShowTheStagesWithoutTimes) {
  RunSummary summary = TwoStages();
  *summary.ready->mutable_stages() = summary.job->stages();
  summary.job.reset();
  const std::string text = StatisticsText(summary);
  EXPECT_THAT(text, ContainsRegex("0 +alpha +0-3 +1 +any +- +- +- +- +7/64"));
  EXPECT_THAT(text, Not(HasSubstr("bubble")));
}

TEST(Statistics, JsonHasTimingsAndStages) {
  const RunSummary summary = TwoStages();
  const Json timings = TimingsJson(summary);
  EXPECT_EQ(timings["prompt_tokens"], 30);
  EXPECT_EQ(timings["decode_tokens"], 102);
  EXPECT_EQ(timings["time_to_first_token_s"], 0.125);
  EXPECT_EQ(timings["bubble"], 0.25);
  EXPECT_EQ(timings["bubble_floor"], 0.125);
  EXPECT_EQ(timings["decode_micro_batches"], 30);
  EXPECT_EQ(timings["rows_per_pass"], 3);
  EXPECT_EQ(timings["decode_rows_per_pass"], 3);
  const Json stages = StagesJson(summary);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[1]["host"], "beta-with-a-long-name");
  EXPECT_EQ(stages[1]["first_layer"], 4);
  EXPECT_EQ(stages[1]["utilisation"], 0.75);
  EXPECT_EQ(stages[0]["kv_blocks"], 64);
  EXPECT_EQ(StagesJson(RunSummary()).size(), 0u);
}

TEST(Progress, TextShowsTheBarAndKeepsFractionsInBounds) {
  EXPECT_EQ(ProgressText("loading", 0.5, "1 of 2"), "loading [############............]  50% 1 of 2");
  EXPECT_EQ(ProgressText("x", -1, ""), "x [........................]   0% ");
  EXPECT_EQ(ProgressText("x", 7, ""), "x [########################] 100% ");
}

TEST(Progress, IsShownWhenAskedForAndNeverWithQuiet) {
  Verbosity verbosity;
  verbosity.progress = "always";
  EXPECT_TRUE(verbosity.ShowProgress());
  verbosity.quiet = true;
  EXPECT_FALSE(verbosity.ShowProgress());
  verbosity.quiet = false;
  verbosity.progress = "never";
  EXPECT_FALSE(verbosity.ShowProgress());
}

}  // namespace
}  // namespace stagecoach
