#include "coordinator/report/verdict.h"

#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/write_report.h"
#include "tests/testing/matchers.h"
#include "tests/testing/report/synthetic_sweep.h"

namespace stagecoach {
namespace {

using Points = std::vector<SweepPoint>;

// One and `stages` stages with these throughputs, all of whose time is computing unless a test says otherwise.
Points TwoShapes(int64_t stages, double one, double many, int64_t concurrency = 8) {
  Points points = SyntheticSweep({.stages = {1, stages}, .concurrency = {concurrency}, .repetitions = 1});
  for (size_t i : {0, 1}) {
    SweepResult& result = points[i].result;
    result.output_tokens_per_s = i == 0 ? one : many;
    result.bubble = result.bubble_floor = 0;
    result.output_tokens = 1000;
    for (SweepStage& stage : points[i].stages) {
      stage.compute_s = 10 / static_cast<double>(points[i].stages.size());
      stage.wait_s = 0;
    }
  }
  return points;
}

// Kept with its cells, which it points into.
struct Judged {
  explicit Judged(const Points& of) : points(of), cells(SweepCells({{"", "", points}})) {
    verdict = VerdictOf(PointersTo(cells));
  }
  const Points points;
  const std::vector<SweepCell> cells;
  Verdict verdict;
};

std::string PageOfSeries(const std::vector<SweepSeries>& series) {
  const std::vector<SweepCell> cells = SweepCells(series);
  return ReportPage(PointersTo(cells), ReportSections(PointersTo(cells)));
}

TEST(Verdict, SaysThatThePipelinePaysAndByHowMuch) {
  const Judged judged(TwoShapes(2, 10000, 18640));
  EXPECT_EQ(judged.verdict.outcome, Outcome::kPays);
  EXPECT_EQ(judged.verdict.sentence,
            "The pipeline pays: 2 stages \xC3\x97 1 thread give 1.86 times the throughput of the best single host "
            "(18,640 against 10,000 output tokens/s, 8 at once), 93 % of what 2 such hosts could give.");
  EXPECT_EQ(judged.verdict.because, "It does because its stages compute 100 % of the time.");
}

TEST(Verdict, SaysThatThePipelineDoesNotPayAndWhy) {
  Points points = TwoShapes(4, 100, 60);
  points[1].result.bubble = 0.5;
  points[1].result.bubble_floor = 0.05;
  const Judged judged(points);
  EXPECT_EQ(judged.verdict.outcome, Outcome::kDoesNotPay);
  EXPECT_THAT(judged.verdict.sentence, HasSubstr("The pipeline does not pay here: 4 stages"));
  EXPECT_EQ(
      judged.verdict.because,
      "It does not because links and the coordinator keep the stages waiting 45 % of their time beyond what the work "
      "itself does.");
  EXPECT_EQ(Judged(TwoShapes(2, 100, 103)).verdict.outcome, Outcome::kNoDifference);
}

TEST(Verdict, NamesTheLineThatItSpeaksOf) {
  Points points = TwoShapes(2, 100, 180);
  for (SweepPoint point : TwoShapes(2, 50, 90)) {
    point.config.prompt = "4096";
    points.push_back(point);
  }
  EXPECT_THAT(Judged(points).verdict.sentence, HasSubstr("(180 against 100 output tokens/s, 8 at once, prompt 128)"));
}

// What a single stage on two of sixteen cores does is not what the host can.
TEST(Verdict, CallsNoPartOfAHostTheHost) {
  Points points = TwoShapes(2, 100, 180);
  for (SweepPoint& point : points) {
    for (SweepStage& stage : point.stages) stage.cores = 16;
  }
  const Judged part(points);
  EXPECT_EQ(part.verdict.sentence,
            "The pipeline pays: 2 stages \xC3\x97 1 thread give 1.8 times the throughput of one stage of 1 thread (180 "
            "against 100 output tokens/s, 8 at once), 90 % of what 2 such stages could give. The single stage ran on 1 "
            "of its host's 16 cores: the host alone was not measured.");
  EXPECT_EQ(std::get<XyChart>(part.verdict.figure->chart).guides[0].label, "ideal: as many such stages");
  points[1].stages[1].host = points[0].stages[0].host;
  points[1].result.bubble = 0.1;
  const Judged one_host(points);
  EXPECT_EQ(one_host.verdict.sentence,
            "The pipeline pays: 2 stages \xC3\x97 1 thread give 1.8 times the throughput of one stage of 1 thread (180 "
            "against 100 output tokens/s, 8 at once). The single stage ran on 1 of its host's 16 cores: the host alone "
            "was not measured.");
  EXPECT_EQ(one_host.verdict.because,
            "It gives no more because links and the coordinator keep the stages waiting 10 % of their time beyond what "
            "the work itself does.");
  EXPECT_EQ(std::get<XyChart>(one_host.verdict.figure->chart).guides[0].label, "in proportion to the single stage");
  EXPECT_EQ(Baselines(PointersTo(one_host.cells)).name(), "the fastest single stage");
}

// Medians that are far apart are not the same throughput because a repetition went astray.
TEST(Verdict, SaysWhereRepetitionsScatterByMoreThanTheDifference) {
  Points points = TwoShapes(2, 10, 110);
  points.push_back(points[1]);
  points[2].config.repetition = 1;
  points[2].result.output_tokens_per_s = 5;
  points.push_back(points[1]);
  points[3].config.repetition = 2;
  const Judged judged(points);
  EXPECT_EQ(judged.verdict.outcome, Outcome::kNoDifference);
  EXPECT_EQ(
      judged.verdict.sentence,
      "It is not clear whether the pipeline pays: 2 stages \xC3\x97 1 thread and one stage of 1 thread differ less "
      "than the repetitions scatter (110 against 10 output tokens/s, 8 at once).");
  EXPECT_EQ(judged.verdict.because, "");
  EXPECT_THAT(Judged(TwoShapes(2, 100, 103)).verdict.sentence,
              HasSubstr("give about the same throughput (103 against"));
}

TEST(Verdict, GivesNoReasonForGrowthThatFallsShortOfNothing) {
  Points points = TwoShapes(4, 100, 150);
  points[0].config.stages = 2;
  points[0].stages.push_back(points[0].stages[0]);
  for (SweepPoint& point : points) point.result.bubble = 0.3;
  const Judged slow(points);
  EXPECT_THAT(slow.verdict.sentence, HasSubstr("75 % of growth in proportion"));
  EXPECT_THAT(slow.verdict.because, StartsWith("It falls short of proportion because links"));
  points[1].result.output_tokens_per_s = 250;
  const Judged fast(points);
  EXPECT_THAT(fast.verdict.sentence, HasSubstr("125 % of growth in proportion"));
  EXPECT_EQ(fast.verdict.because, "");
}

// A curve beside the measured one is of the same world, or is not there; two simulated worlds are two curves.
TEST(Verdict, DrawsNoCurveOfAnotherWorldBesideTheMeasuredOne) {
  const auto series_of = [](void (*change)(SweepPoint*, size_t)) {
    Points points = TwoShapes(2, 100, 180);
    for (size_t i : {0, 1, 2, 3}) {
      SweepPoint point = TwoShapes(2, 90, 170)[i % 2];
      point.simulated = true;
      point.config.cluster = i < 2 ? "cluster near.json" : "cluster far.json";
      point.config.requests = 100;
      change(&point, i);
      points.push_back(point);
    }
    std::vector<std::string> names;
    const Judged judged(points);
    for (const ChartSeries& one : std::get<XyChart>(judged.verdict.figure->chart).series) names.push_back(one.label);
    return names;
  };
  EXPECT_THAT(series_of([](SweepPoint*, size_t) {}),
              ElementsAre("measured", "simulated, cluster near.json", "simulated, cluster far.json", "predicted"));
  EXPECT_THAT(series_of([](SweepPoint* point, size_t i) {
                if (i >= 2) point->config.emulated_link.latency_s = 0.002;
              }),
              ElementsAre("measured", "simulated", "predicted"));
  for (auto* change : std::initializer_list<void (*)(SweepPoint*, size_t)>{
           [](SweepPoint*point, size_t) { point->config.emulated_link.latency_s = 0.002; },
           [](SweepPoint*point, size_t) { point->config.wire_type = WireType::kBF16; },
           [](SweepPoint*point, size_t) { point->config.kv_type = KvType::kQ8_0; },
           [](SweepPoint*point, size_t) { point->config.world = "wake 50 us"; },
           [](SweepPoint*point, size_t) { point->config.program_version = "0.0.9"; }}) {
    EXPECT_THAT(series_of(change), ElementsAre("measured", "predicted"));
  }
}

// What it is compared with is the fastest single host, whatever its threads, not the slowest or the first.
TEST(Verdict, ComparesWithTheBestSingleHost) {
  Points points = TwoShapes(2, 30, 45.6);
  points.push_back(points[0]);
  points.back().config.threads = 2;
  points.back().result.output_tokens_per_s = 46.5;
  const Judged judged(points);
  EXPECT_EQ(judged.verdict.outcome, Outcome::kNoDifference);
  EXPECT_EQ(judged.verdict.baseline->threads, 2);
}

// A single stage pays a link to the coordinator that a pipeline pays once: the ideal is what it does while it computes.
TEST(Verdict, TakesTheIdealFromAHostThatPaysNoLink) {
  Points points = TwoShapes(2, 50, 90);
  points[0].result.bubble = 0.5;
  const Judged judged(points);
  EXPECT_EQ(RateWhileComputing(*judged.verdict.baseline), 100);
  EXPECT_THAT(judged.verdict.sentence, HasSubstr("45 % of what 2 such hosts could give"));
  const XyChart& chart = std::get<XyChart>(judged.verdict.figure->chart);
  EXPECT_EQ(chart.guides[0].points.back().y, 200);
}

TEST(Verdict, NamesEachCauseOfABubble) {
  Points points = TwoShapes(2, 100, 110, 1);
  points[1].result.bubble = points[1].result.bubble_floor = 0.5;
  EXPECT_THAT(Judged(points).verdict.because,
              HasSubstr("because 1 at once is too few for 2 stages: even without links the "
                        "stages would have had nothing to do 50 % of their time"));
  points[1].stages[0].compute_s = 30, points[1].stages[1].compute_s = 10;
  points[1].result.bubble = points[1].result.bubble_floor = 0.34;
  points[0].result.output_tokens = 250;  // as long for a token
  EXPECT_THAT(Judged(points).verdict.because,
              HasSubstr("because the stages are uneven: stage 0 on synthetic-0 has the most to compute, "
                        "which costs the others"));
  points = TwoShapes(2, 100, 90, 8);
  points[0].result.rows_per_pass = 8, points[1].result.rows_per_pass = 4;
  for (SweepStage& stage : points[1].stages) stage.compute_s *= 2;
  EXPECT_THAT(Judged(points).verdict.because,
              HasSubstr("together compute 2 times as long for a token as the single "
                        "stage: each pass over the weights serves 4 rows instead of 8"));
}

TEST(Verdict, SplitsTheMeasuredBubbleIntoItsCauses) {
  Points points = TwoShapes(2, 100, 110);
  points[1].stages[0].compute_s = 10, points[1].stages[1].compute_s = 8;
  points[1].result.bubble = 0.4;
  points[1].result.bubble_floor = 0.25;
  const Judged judged(points);
  const BubbleShares causes = *CausesOf(judged.cells[1]);
  EXPECT_NEAR(causes.uneven, 0.1, 1e-12);
  EXPECT_NEAR(causes.few, 0.15, 1e-12);
  EXPECT_NEAR(causes.links, 0.15, 1e-12);
  EXPECT_EQ(causes.voids, 0);
}

TEST(Verdict, NamesWrongGuessesApartFromLinks) {
  Points points = TwoShapes(2, 100, 110);
  points[1].result.bubble = 0.4, points[1].result.bubble_floor = 0.05;
  points[1].result.busy_s = 10, points[1].result.void_s = 6;  // of both stages' 20
  const Judged judged(points);
  const BubbleShares causes = *CausesOf(judged.cells[1]);
  EXPECT_NEAR(causes.voids, 0.3, 1e-12);
  EXPECT_NEAR(causes.links, 0.05, 1e-12);
  EXPECT_THAT(judged.verdict.because, HasSubstr("because guesses that proved wrong took 30 % of the stages' time"));
}

TEST(Verdict, CallsNothingMeasuredThatWasSimulated) {
  Points points = TwoShapes(2, 100, 180);
  for (SweepPoint& point : points) point.simulated = true;
  const Judged simulated(points);
  EXPECT_THAT(simulated.verdict.sentence, StartsWith("By simulation, the pipeline pays"));
  EXPECT_EQ(std::get<XyChart>(simulated.verdict.figure->chart).series[0].label, "simulated");
  // The facts of its predictions may be measured; nothing else was.
  for (SweepPoint& point : points) {
    point.origin.processor = "";
    point.prediction->source = "assumed";
  }
  const std::string page = PageOfSeries({{"", "", points}});
  const std::string text = absl::StrReplaceAll(page.substr(page.find("<body>")), {{"nothing measured", ""}});
  EXPECT_THAT(text, Not(HasSubstr("easured"))) << text.substr(text.find("easured") - 200, 400);
  // Beside what was measured it has a line of its own.
  Points both = TwoShapes(2, 100, 170);
  both.insert(both.end(), points.begin(), points.end());
  const Judged judged(both);
  EXPECT_THAT(judged.verdict.sentence, HasSubstr("170 against 100"));
  const XyChart& chart = std::get<XyChart>(judged.verdict.figure->chart);
  ASSERT_EQ(chart.series.size(), 3u);
  EXPECT_EQ(chart.series[0].label, "measured");
  EXPECT_EQ(chart.series[1].label, "simulated");
  EXPECT_TRUE(chart.series[1].hollow);
  EXPECT_EQ(chart.series[2].label, "predicted");
}

// Throughput is then what arrives, whatever the number of stages.
TEST(Verdict, DoesNotTakeAnOpenLoadForScaling) {
  Points points = TwoShapes(2, 100, 101);
  Points more = TwoShapes(2, 100, 101);
  for (SweepPoint& point : more) point.simulated = true;
  points.insert(points.end(), more.begin(), more.end());
  for (SweepPoint& point : points) {
    point.config.arrivals = "poisson:2";
    point.config.concurrency = point.simulated ? 8 : 0;  // which a simulation may bound
    point.result.requests = 20;  // at 1.6 a second up to the last token, for all of which nothing is lost
    point.result.wall_s = 12.5;
  }
  const Judged judged(points);
  EXPECT_EQ(judged.verdict.outcome, Outcome::kOpen);
  EXPECT_THAT(judged.verdict.sentence, HasSubstr("finish 100 % of the requests; in the median"));
  const std::vector<ReportSection> sections = ReportSections(PointersTo(judged.cells));
  std::vector<std::string> ids;
  for (const ReportSection& section : sections) {
    for (const ReportFigure& figure : section.figures) ids.push_back(figure.id);
  }
  EXPECT_THAT(ids, Contains("open-loads"));
  EXPECT_THAT(ids, Not(Contains("strong-throughput")));
  EXPECT_THAT(ids, Not(Contains("pareto")));
  EXPECT_THAT(sections[0].figures[0].sentence, StartsWith("All of what is offered is served."));
  for (SweepPoint& point : points) point.result.failed = 1, point.result.unfinished = 4;
  const Judged worse(points);
  EXPECT_THAT(worse.verdict.sentence, HasSubstr("finish 80 % of the requests"));
  EXPECT_THAT(LatencyFigures(PointersTo(worse.cells))[0].sentence, HasSubstr("80 % of what is offered"));
}

// Of two directories it is the latency that shows a difference.
TEST(Verdict, ComparesOpenLoadsByTheirLatency) {
  Points before = TwoShapes(2, 100, 101), after = TwoShapes(2, 100, 101);
  for (Points* points : {&before, &after}) {
    for (SweepPoint& point : *points) {
      point.config.arrivals = "poisson:2";
      point.config.concurrency = 0;
      point.result.latency_s.p50 = points == &before ? 4 : 5;
    }
  }
  const std::vector<SweepCell> cells = SweepCells({{"before", "", before}, {"after", "", after}});
  EXPECT_EQ(
      VerdictOf(PointersTo(cells)).sentence,
      "Against before, after changes the median time of a whole answer under open loads by +25 % in the median of "
      "2 configurations (+25 % to +25 %).");
}

TEST(Verdict, SaysWhatIsNotKnown) {
  const Points one = SyntheticSweep({.stages = {4}, .concurrency = {8}, .repetitions = 1});
  EXPECT_THAT(Judged(one).verdict.sentence, HasSubstr("Whether more stages pay is not known"));
  const Points several = SyntheticSweep({.stages = {2, 4}, .concurrency = {8}, .repetitions = 1});
  EXPECT_THAT(Judged(several).verdict.sentence, HasSubstr("no single host was measured"));
  Points failed = one;
  failed[0].error = "no memory";
  EXPECT_EQ(Judged(failed).verdict.sentence, "Nothing ran to its end, so there is no answer.");
}

TEST(Verdict, TellsWhatACoreHourYields) {
  Points points = TwoShapes(2, 100, 180);
  EXPECT_EQ(Judged(points).verdict.cost, "");
  points[0].result.tokens_per_core_hour = 45000;
  points[1].result.tokens_per_core_hour = 40500;
  EXPECT_EQ(Judged(points).verdict.cost,
            "A core-hour yields 40,500 output tokens, against 45,000 with 1 stage \xC3\x97 1 thread.");
  EXPECT_THAT(PageOfSeries({{"", "", points}}), HasSubstr("<b>45,000</b> tokens per core-hour"));
}

TEST(ReportFigures, FindTheConfigurationsThatNoOtherBeatsInBoth) {
  Points points = SyntheticSweep({.stages = {1}, .concurrency = {1, 2, 4, 8}, .repetitions = 1});
  const double rates[] = {10, 30, 20, 40}, gaps_s[] = {0.01, 0.02, 0.03, 0.04};
  for (size_t i = 0; i < 4; ++i) {
    points[i].result.output_tokens_per_s = rates[i];
    points[i].result.itl_s.p50 = gaps_s[i];
  }
  const std::vector<SweepCell> cells = SweepCells({{"", "", points}});
  const ReportFigure figure = LatencyFigures(PointersTo(cells))[0];
  EXPECT_EQ(figure.id, "pareto");
  EXPECT_THAT(figure.sentence, StartsWith("3 of 4 configurations, measured, are beaten by no other in both. The front "
                                          "goes from 1 at once to 8 at once."));
  const XyChart& chart = std::get<XyChart>(figure.chart);
  EXPECT_EQ(chart.series[0].points.size(), 3u);
  EXPECT_EQ(chart.series[1].points[0].x, 20);
}

TEST(ReportTables, CompareSeriesWithTheFirstOne) {
  const Points before = TwoShapes(2, 100, 180);
  Points after = TwoShapes(2, 100, 198);
  after[1].trace = "traces/0123456789abcdef.json";
  const std::vector<SweepSeries> series = {{"before", "..", before}, {"after", "../../af#t?e%r \xC3\xA9", after}};
  const std::vector<SweepCell> cells = SweepCells(series);
  ASSERT_EQ(cells.size(), 4u);
  const ReportTable table = ComparisonTable(PointersTo(cells));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.header, Contains("in before"));
  EXPECT_THAT(table.rows[1], AllOf(Contains("after, 2 stages"), Contains("+10 %"), Contains("one run each")));
  EXPECT_THAT(table.rows[0], Contains("\xC2\xB1"
                                      "0 %"));
  EXPECT_THAT(PageOfSeries(series),
              AllOf(HasSubstr("Against before"), HasSubstr("Directories compared"),
                    HasSubstr("<a href=\"../../af%23t%3Fe%25r%20%C3%A9/traces/0123456789abcdef.json\">open</a>")));
  EXPECT_THAT(PointsCsv(series), AllOf(StartsWith("series,"), HasSubstr("\r\n\"after\",")));
  // One alone has its best single host for a baseline.
  EXPECT_THAT(ComparisonTable(PointersTo(SweepCells({{"", "", before}}))).rows, IsEmpty());
  const std::vector<SweepCell> alone = SweepCells({{"", "", before}});
  EXPECT_THAT(ResultTable(PointersTo(alone)).rows[1], Contains("1.8\xC3\x97"));
}

TEST(ReportTables, LinkToNothingButTracesOfTheSweep) {
  for (const char* name : {"../../../../etc/passwd", "traces/../0123456789abcd.json", "traces/0123456789abcde.json",
                           "traces/0123456789abcdeg.json", "/traces/0123456789abcdef.json", "javascript:alert(1)"}) {
    Points points = TwoShapes(2, 100, 180);
    points[1].trace = name;
    const std::vector<SweepCell> cells = SweepCells({{"", "", points}});
    EXPECT_FALSE(ResultTable(PointersTo(cells)).links_last) << name;
  }
}

TEST(ReportTables, HaveTheCausesOfABubbleAsPredictedAndAsTheyCameOut) {
  Points points = TwoShapes(2, 100, 180);
  points[1].result.bubble = 0.3, points[1].result.bubble_floor = 0.2;
  points[1].prediction->bubble_hop = 0.07;
  const std::vector<SweepCell> cells = SweepCells({{"", "", points}});
  const std::vector<std::vector<std::string>> rows = PredictionTable(PointersTo(cells)).rows;
  EXPECT_THAT(rows[rows.size() - 3], AllOf(Contains("\xE2\x80\x93 too few requests"), Contains("20 %")));
  EXPECT_THAT(rows.back(), AllOf(Contains("\xE2\x80\x93 links and coordinator"), Contains("7.0 %"), Contains("10 %")));
  points[1].result.busy_s = 10, points[1].result.void_s = 1;  // of both stages' 20
  const std::vector<SweepCell> guessing = SweepCells({{"", "", points}});
  EXPECT_THAT(PredictionTable(PointersTo(guessing)).rows.back(),
              AllOf(Contains("\xE2\x80\x93 wrong guesses"), Contains("5.0 %")));
}

TEST(ReportJson, HasTheVerdictAndTheNumbersOfEveryFigure) {
  const Points points = TwoShapes(2, 100, 180);
  const std::vector<SweepCell> cells = SweepCells({{"", "", points}});
  const Json json = ReportJson(PointersTo(cells), ReportSections(PointersTo(cells)));
  EXPECT_EQ(json["verdict"]["outcome"], "pays");
  EXPECT_EQ(json["verdict"]["best"]["tokens_per_s"], 180);
  EXPECT_EQ(json["verdict"]["baseline"]["stages"], 1);
  EXPECT_EQ(json["figures"][0]["id"], "verdict");
  EXPECT_EQ(json["figures"][0]["series"][0]["points"][1]["y"], 180);
  size_t rows = 0;
  for (const Json& figure : json["figures"]) rows += figure.contains("rows") ? figure["rows"].size() : 0;
  EXPECT_GT(rows, 3u);
}

TEST(FigureText, IsWrittenAsPeopleReadIt) {
  EXPECT_EQ(FigureText(18640), "18,640");
  EXPECT_EQ(FigureText(1234567.8), "1,234,568");
  EXPECT_EQ(FigureText(-1000), "-1,000");
  EXPECT_EQ(FigureText(999.4), "999");
  EXPECT_EQ(FigureText(999.6), "1,000");
  EXPECT_EQ(FigureText(9.999), "10");
  EXPECT_EQ(FigureText(12.34), "12.3");
  EXPECT_EQ(FigureText(0.0000123), "0.0000123");
  EXPECT_EQ(FigureText(0), "0");
  EXPECT_EQ(ChangeText(1.62), "+62 %");
  EXPECT_EQ(ChangeText(0.969),
            "\xE2\x88\x92"
            "3.1 %");
}

TEST(XyChart, SaysThatAnAxisIsLogarithmic) {
  XyChart chart;
  chart.x.label = "stages";
  chart.y.label = "tokens/s";
  EXPECT_THAT(DrawXyChart(chart, false), Not(HasSubstr("log scale")));
  chart.y.kind = ScaleKind::kLog;
  EXPECT_THAT(DrawXyChart(chart, false), HasSubstr("tokens/s (log scale)"));
  RowChart rows;
  rows.axis = {.label = "ms", .kind = ScaleKind::kLog};
  EXPECT_THAT(DrawRowChart(rows, false), HasSubstr("ms (log scale)"));
}

}  // namespace
}  // namespace stagecoach
