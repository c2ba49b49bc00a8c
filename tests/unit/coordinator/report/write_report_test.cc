#include "coordinator/report/write_report.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <regex>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/report/page_style.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/sweep_cells.h"
#include "tests/testing/matchers.h"
#include "tests/testing/report/synthetic_sweep.h"
#include "tests/testing/report/xml_check.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

std::vector<SweepCell> CellsOf(const std::vector<SweepPoint>& points) { return SweepCells({{"", "", points}}); }

std::vector<ReportFigure> FiguresOf(const std::vector<SweepPoint>& points) {
  const std::vector<SweepCell> cells = CellsOf(points);
  std::vector<ReportFigure> figures;
  for (const ReportSection& section : ReportSections(PointersTo(cells))) {
    figures.insert(figures.end(), section.figures.begin(), section.figures.end());
  }
  return figures;
}

std::vector<std::string> Ids(const std::vector<ReportFigure>& figures) {
  std::vector<std::string> ids;
  for (const ReportFigure& figure : figures) ids.push_back(figure.id);
  return ids;
}

std::string PageOf(const std::vector<SweepPoint>& points) {
  const std::vector<SweepCell> cells = CellsOf(points);
  return ReportPage(PointersTo(cells), ReportSections(PointersTo(cells)));
}

const ReportFigure& Find(const std::vector<ReportFigure>& figures, const std::string& id) {
  return *std::find_if(figures.begin(), figures.end(), [&](const ReportFigure& figure) { return figure.id == id; });
}

absl::StatusOr<SweepReportFiles> WritePoints(const std::vector<SweepPoint>& points, const std::string& directory) {
  return WriteSweepReport({{"", "", points}}, directory);
}

// Of a directory that is not there yet.
struct WriteReportTest : ::testing::Test {
  const testing::TempDir temporary;
  const std::string directory = temporary.File("report");
};

TEST(ReportFigures, AreWellFormedPicturesWithASentenceEach) {
  const std::vector<ReportFigure> figures = FiguresOf(SyntheticExperiment());
  EXPECT_GT(figures.size(), 12u);
  for (const ReportFigure& figure : figures) {
    SCOPED_TRACE(figure.id);
    for (const std::string& svg : {figure.page_svg, figure.file_svg}) {
      EXPECT_EQ(XmlProblem(svg), "");
      EXPECT_EQ(CoordinateProblem(svg), "");
    }
    EXPECT_THAT(figure.file_svg, HasSubstr("font-weight"));  // the title
    EXPECT_FALSE(figure.sentence.empty());
    EXPECT_FALSE(absl::StrContains(figure.sentence, "nan")) << figure.sentence;
  }
}

TEST(ReportFigures, AreMadeOnlyWhereThereArePoints) {
  EXPECT_THAT(Ids(FiguresOf(SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1, .predicted = false}))),
              ElementsAre("goodput", "itl-percentiles", "ttft-percentiles", "stage-times", "bubble"));
  const std::vector<std::string> scaled =
      Ids(FiguresOf(SyntheticSweep({.stages = {1, 2}, .concurrency = {4}, .repetitions = 1, .predicted = false})));
  EXPECT_THAT(scaled, Contains("strong-throughput"));
  EXPECT_THAT(scaled, Not(Contains("weak-scaling")));
  EXPECT_THAT(scaled, Not(Contains("strong-cores")));
  EXPECT_THAT(Ids(FiguresOf(SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1}))),
              Contains("weak-scaling"));
}

// One machine's cores for all points: more stages have fewer threads each, and no line leads from one to the other.
TEST(ReportFigures, CompareWaysToCutTheSameCores) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2, 4}, .concurrency = {8}, .repetitions = 1});
  for (SweepPoint& point : points) {
    point.config.threads = 0;
    for (SweepStage& stage : point.stages) stage.threads = 4 / point.config.stages;
    point.result.output_tokens_per_s = 10 * static_cast<double>(point.config.stages);
  }
  const std::vector<ReportFigure> figures = FiguresOf(points);
  EXPECT_EQ(Find(figures, "cuts").sentence,
            "Fastest is 4 stages \xC3\x97 1 thread, with 4 times the throughput of 1 stage \xC3\x97 4 threads; "
            "one run tells little.");
  EXPECT_THAT(Ids(figures), Not(Contains("strong-cores")));
  EXPECT_THAT(Ids(FiguresOf(SyntheticSweep({.stages = {1, 2}, .concurrency = {8}}))), Not(Contains("cuts")));
}

TEST(ReportFigures, HaveSentencesThatAreComputed) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {8}, .repetitions = 1});
  points[0].result.output_tokens_per_s = 100;
  points[1].result.output_tokens_per_s = 160;
  points[1].result.bubble = 0.12;
  points[1].result.bubble_floor = 0.09;
  EXPECT_EQ(Find(FiguresOf(points), "strong-throughput").sentence,
            "2 stages give 1.6 times the throughput of 1 stage: 160 against 100 output tokens/s, 80 % of growth in "
            "proportion. The bubble of 2 stages is 12 %, its floor 9.0 %.");
}

// One at a time over stages: without guesses, and with an acceptance; measured, and simulated beside it.
std::vector<SweepPoint> OneUserSweep() {
  std::vector<SweepPoint> points;
  for (const bool simulated : {false, true}) {
    for (const double acceptance : {0.0, 0.7}) {
      for (SweepPoint& point :
           SyntheticSweep({.stages = {1, 2, 4}, .concurrency = {1}, .repetitions = 1, .simulated = simulated})) {
        point.config.acceptance = acceptance;
        point.config.speculate = acceptance > 0 ? Speculate::kAuto : Speculate::kOff;
        const double gain = 1 / (acceptance / static_cast<double>(point.config.stages) + 1 - acceptance);
        point.result.itl_s.mean = 0.1 / gain / (simulated ? 1.25 : 1);
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

TEST(ReportFigures, ShowTheTokensOfOneUserOverStagesMeasuredBesideSimulated) {
  std::vector<SweepPoint> points = OneUserSweep();
  const std::vector<ReportFigure> figures = FiguresOf(points);
  const ReportFigure& figure = Find(figures, "one-user");
  EXPECT_EQ(figure.id, figures.front().id);
  EXPECT_THAT(figure.sentence, HasSubstr("One user of 4 stages has 2.11 times the tokens/s that there are without "
                                         "guesses (guesses (auto), acceptance 0.7): 21.1 against 10. "));
  EXPECT_THAT(figure.sentence, HasSubstr("Simulated, one user of 4 stages has 2.11 times"));
  const auto& chart = std::get<XyChart>(figure.chart);
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(std::count_if(chart.series.begin(), chart.series.end(), [](const ChartSeries& s) { return s.hollow; }), 2);
  for (const ChartSeries& series : chart.series) ASSERT_EQ(series.points.size(), 3u) << series.label;
  EXPECT_EQ(chart.series[0].label, "no guesses");
  EXPECT_DOUBLE_EQ(chart.series[0].points[2].y, 10);
  EXPECT_NEAR(chart.series[1].points[2].y, 10 / (0.7 / 4 + 0.3), 1e-9);
  std::erase_if(points, [](const SweepPoint& point) { return point.config.acceptance > 0; });
  EXPECT_THAT(Ids(FiguresOf(points)), Not(Contains("one-user"))) << "a flat line says nothing";
}

TEST(ReportFigures, ShowTheTimeOfWrongGuessesInTheBubble) {
  std::vector<SweepPoint> points = OneUserSweep();
  for (SweepPoint& point : points) point.result.void_s = point.config.acceptance > 0 ? 0.1 * point.result.busy_s : 0;
  const auto bubble = [&] { return Find(FiguresOf(points), "bubble"); };
  EXPECT_THAT(bubble().sentence, HasSubstr("due to links, wrong guesses and the coordinator"));
  EXPECT_EQ(std::get<RowChart>(bubble().chart).parts.back().label, "wrong guesses");
  EXPECT_THAT(bubble().page_svg, HasSubstr("; wrong guesses 2.5 %"));  // of four stages
  std::erase_if(points, [](const SweepPoint& point) { return point.config.acceptance > 0; });
  EXPECT_THAT(bubble().sentence, HasSubstr("due to links and the coordinator"));
  EXPECT_EQ(std::get<RowChart>(bubble().chart).parts.size(), 3u);
}

// A rate that is too low and a time that is too long are the same error, though one ratio is below 1 and one above it.
TEST(ReportPage, SaysHowFarMeasuredAndPredictedAreApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points[0].prediction->output_tokens_per_s = points[0].result.output_tokens_per_s / 0.8;
  points[0].prediction->itl_s = points[0].result.itl_s.p50 / 1.25;
  EXPECT_THAT(PageOf(points), HasSubstr("Prediction off by</dt><dd><p><b>25 %</b> in the median</p>at "
                                        "worst 25 %, over 2 comparisons"));
  const std::string rate = FigureText(points[0].prediction->output_tokens_per_s);
  EXPECT_THAT(PageOf(points), HasSubstr("1 stage; predicted " + rate + "</dd>"));
  // What was simulated is no measurement.
  points.push_back(points[0]);
  points[1].simulated = true;
  points[1].result.output_tokens_per_s *= 3;
  EXPECT_THAT(PageOf(points), HasSubstr("at worst 25 %, over 2 comparisons"));
  EXPECT_THAT(Find(FiguresOf(points), "prediction-output-rate").sentence,
              HasSubstr("The ratio of measured to predicted is 0.8."));
  points.erase(points.begin());
  EXPECT_THAT(PageOf(points), HasSubstr("Prediction off the simulation by"));
  EXPECT_THAT(Find(FiguresOf(points), "prediction-output-rate").sentence,
              HasSubstr("The ratio of simulated to predicted is 2.4."));
}

TEST(ReportFigures, NameWhatPredictionsRestOn) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4}, .repetitions = 1});
  const auto sentence = [&] { return Find(FiguresOf(points), "prediction-itl").sentence; };
  EXPECT_THAT(sentence(), HasSubstr(" Predicted by the planner's formulas from profile synthetic.json, with measured "
                                    "steps of this model."));
  points[0].prediction->source = "probe";
  points[0].prediction->measured_steps = false;
  EXPECT_THAT(sentence(), HasSubstr("from a probe before the sweep, without measured steps of this model; profile "));
  points[1].prediction->source = "assumed";
  EXPECT_THAT(sentence(), HasSubstr("assumed hosts, nothing measured"));
  EXPECT_THAT(PageOf(points), HasSubstr("by the planner&#39;s formulas from a probe before the sweep"));
}

TEST(ReportFigures, NameWhatSimulatedPointsRestOn) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4}, .repetitions = 1});
  const char* const simulated = "Simulated: the real scheduler, with times from cluster hosts.json.";
  for (const ReportFigure& figure : FiguresOf(points)) {
    EXPECT_THAT(figure.sentence, Not(HasSubstr("Simulated"))) << figure.id;
  }
  points[1].simulated = true;
  points[1].prediction->source = "cluster hosts.json";
  for (const char* id : {"stage-times", "itl-percentiles", "prediction-itl"}) {
    EXPECT_THAT(Find(FiguresOf(points), id).sentence, HasSubstr(simulated)) << id;
  }
}

TEST(ReportFigures, ShowTheChoiceThatMattersMostFirst) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2},
                                                   .concurrency = {8},
                                                   .policies = {Policy::kDecodePriority, Policy::kPrefillFirst},
                                                   .chunks = {64, 256},
                                                   .repetitions = 1});
  const auto choices = [&](double by_policy, double by_chunk) {
    for (SweepPoint& point : points) {
      point.result.output_tokens_per_s = 100 * (point.config.policy == Policy::kDecodePriority ? by_policy : 1) *
                                         (point.config.prefill_chunk == 64 ? by_chunk : 1);
    }
    return Ids(ReportSections(PointersTo(CellsOf(points))).back().figures);
  };
  EXPECT_THAT(choices(1.1, 1.5), ElementsAre("chunks", "policies"));
  EXPECT_THAT(choices(1.5, 1.1), ElementsAre("policies", "chunks"));
}

TEST(ReportFigures, CallNothingFasterThanItsRepetitionsShow) {
  std::vector<SweepPoint> points =
      SyntheticSweep({.stages = {1}, .concurrency = {4}, .chunks = {64, 256}, .repetitions = 2});
  const auto sentence = [&](const std::vector<double>& rates) {
    for (size_t i = 0; i < rates.size(); ++i) points[i].result.output_tokens_per_s = rates[i];
    return Find(FiguresOf(points), "chunks").sentence;
  };
  EXPECT_EQ(sentence({30, 32, 19, 21}), "Fastest is chunk 64, with 1.55 times the throughput of chunk 256.");
  EXPECT_EQ(
      sentence({18, 24, 19, 21}),
      "Fastest is chunk 64, with 1.05 times the throughput of chunk 256; their repetitions scatter by more than that.");
  EXPECT_EQ(sentence({20, 20, 20, 20}), "All have the same throughput.");
}

TEST(ReportFigures, DrawRequestsAtOnceAndRequestsASecondApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {2, 4, 8, 16}, .repetitions = 1});
  for (size_t i : {0, 1}) {
    points[i].config.arrivals = i == 0 ? "poisson:0.5" : "poisson:2";
    points[i].config.concurrency = 0;
  }
  const ReportFigure figure = Find(FiguresOf(points), "throughput-itl-p50");
  EXPECT_THAT(figure.page_svg, HasSubstr("requests a second"));
  EXPECT_THAT(figure.sentence, HasSubstr("from 8 at once to 16 at once"));
}

TEST(ReportFigures, SayWhatWasSimulatedOrEmulated) {
  for (const ReportFigure& figure :
       FiguresOf(SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1, .simulated = true}))) {
    EXPECT_THAT(figure.file_svg, HasSubstr("Simulated: nothing ran.")) << figure.id;
    EXPECT_THAT(figure.page_svg, HasSubstr("Simulated: nothing ran.")) << figure.id;
  }
  for (const ReportFigure& figure : FiguresOf(
           SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1, .link_latency_s = 0.002}))) {
    EXPECT_THAT(figure.file_svg, HasSubstr("With emulated links (2 ms).")) << figure.id;
  }
  for (const ReportFigure& figure : FiguresOf(SyntheticSweep({.repetitions = 1}))) {
    EXPECT_THAT(figure.file_svg, Not(HasSubstr("imulated"))) << figure.id;
  }
}

TEST(ReportPage, NeedsNothingButItself) {
  std::string page = PageOf(SyntheticExperiment());
  const std::string script = absl::StrCat("<script>", kPageScript, "</script>");
  ASSERT_THAT(page, HasSubstr(script));
  page.erase(page.find(script), script.size());
  for (const char* loaded : {"<script", "src=", "@import", "<iframe", "<object", "<img", "javascript:", "onload"}) {
    EXPECT_THAT(page, Not(HasSubstr(loaded)));
  }
  // The name of SVG is no address that anyone looks up; a link leads to a place on the page.
  std::string rest = page;
  for (size_t at; (at = rest.find("http://www.w3.org/2000/svg")) != std::string::npos;) rest.erase(at, 26);
  EXPECT_THAT(rest, Not(HasSubstr("://")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  const std::regex links("href=\"([^\"]*)\"");
  for (std::sregex_iterator link(page.begin(), page.end(), links), end; link != end; ++link) {
    EXPECT_TRUE((*link)[1].str() == "data:," || (*link)[1].str()[0] == '#') << (*link)[1];
  }
}

// A browser runs the one script whose hash the policy has.
TEST(ReportPage, NamesTheHashOfItsScriptInItsPolicy) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("script"), kPageScript);
  testing::Subprocess hash("/bin/sh", {"-c", "sha256sum <" + directory.File("script") + " | cut -c-64 | tr a-f A-F"});
  ASSERT_EQ(hash.Wait(30).exit_code, 0);
  std::string bytes;
  for (const char* digits = hash.out().c_str(); digits[0] > ' '; digits += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits, 2), nullptr, 16)));
  }
  EXPECT_EQ(absl::Base64Escape(bytes), kPageScriptHash);
  EXPECT_THAT(PageOf(SyntheticSweep({.stages = {1}, .concurrency = {4}})),
              HasSubstr(absl::StrCat("script-src 'sha256-", kPageScriptHash, "'\">")));
}

TEST(ReportPage, EscapesWhatUsersCanName) {
  std::vector<SweepPoint> points = SyntheticExperiment();
  const std::string attack = "<script>alert(1)</script>\"'><img onerror=x>";
  for (size_t i = 0; i < points.size(); ++i) {
    SweepPoint& point = points[i];
    point.config.model = attack + std::to_string(i % 2);
    point.config.hosts = point.config.arrivals = point.config.prompt = attack + std::to_string(i % 3);
    point.config.program_version = point.config.machine = point.config.launch = attack + std::to_string(i % 2);
    point.config.header_hash = point.config.cluster = point.config.world = attack + std::to_string(i % 3);
    point.origin = {attack, attack, attack, 1, 1, attack, attack};
    if (!point.ok()) point.error = attack;
    point.trace = attack;
    for (SweepStage& stage : point.stages) stage.host = stage.isa = stage.cpus = stage.processor = attack;
    if (point.prediction.has_value()) point.prediction->source = attack;
  }
  const std::string page = PageOf(points);
  EXPECT_EQ(page.find("<script"), page.rfind("<script"));  // the page's own
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  for (const ReportFigure& figure : FiguresOf(points)) {
    EXPECT_EQ(XmlProblem(figure.file_svg), "") << figure.id;
    EXPECT_TRUE(std::regex_match(figure.id, std::regex("[a-z0-9-]+"))) << figure.id;
  }
}

// What few readers ask for is folded up, and no picture is lost by it.
TEST(ReportPage, FoldsUpAllButTheFirstFiguresOfASection) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  const std::vector<SweepCell> cells = CellsOf(points);
  const std::string page = PageOf(points);
  for (const ReportSection& section : ReportSections(PointersTo(cells))) {
    size_t at = page.find("<h2 id=\"" + section.id + "\">");
    ASSERT_NE(at, std::string::npos) << section.id;
    const size_t end = page.find("</section>", at), fold = std::min(end, page.find("<details>", at));
    for (size_t i = 0; i < section.figures.size(); ++i) {
      at = page.find("<figure id=\"" + section.figures[i].id + "\">", at);
      EXPECT_LT(at, end) << section.figures[i].id;
      EXPECT_EQ(at < fold, i < 2) << section.figures[i].id;
    }
  }
}

TEST(ReportPage, BeginsWithTheAnswers) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {1, 8}, .repetitions = 1});
  for (SweepPoint& point : points) {
    const bool loaded = point.config.concurrency == 8;
    point.result.output_tokens_per_s = loaded ? 40.0 * static_cast<double>(point.config.stages) : 10;
    point.result.itl_s.p50 = loaded ? 0.1 : 0.025 * static_cast<double>(point.config.stages);
    point.result.ttft_s.p50 = loaded ? 2 : 0.5 / static_cast<double>(point.config.stages);
    point.result.bubble = 0.12;
    point.result.bubble_floor = 0.09;
    point.prediction.reset();
  }
  const std::string page = PageOf(points), top = page.substr(0, page.find("<h2"));
  EXPECT_THAT(top, HasSubstr("<b>80</b> output tokens/s</p>2 stages, 8 at once</dd>"));
  EXPECT_THAT(top, HasSubstr("<b>88 %</b> its stages computed</p>12 % waiting with work in the pipeline; this work "
                             "leaves no less than 9.0 %</dd>"));
  EXPECT_THAT(top, HasSubstr("<b>25</b> ms between tokens</p>1 stage, 1 at once</dd>"));
  EXPECT_THAT(top, HasSubstr("<b>250</b> ms to the first token</p>2 stages, 1 at once</dd>"));
  EXPECT_THAT(top, Not(HasSubstr("Prediction off")));
}

TEST(ReportPage, SaysBeforeTheFiguresWhatFailed) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  const std::string page = PageOf(points), top = page.substr(0, page.find("<h2 id=\"scaling\""));
  EXPECT_THAT(top, HasSubstr("2 of " + std::to_string(points.size()) + " runs failed; no figure shows them."));
  EXPECT_THAT(top, HasSubstr("1 of 3 runs"));
  EXPECT_THAT(top, HasSubstr("the job was lost: stage 1"));
  std::vector<SweepPoint> disturbed = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 3});
  EXPECT_THAT(PageOf(disturbed), Not(HasSubstr("What failed")));
  disturbed[1].result.relaunches = 1;
  EXPECT_THAT(PageOf(disturbed), HasSubstr("In 1 run requests failed or the job was launched again"));
}

TEST(ReportPage, ShowsFailuresCommandsAndTheMachine) {
  const std::string page = PageOf(SyntheticExperiment());
  EXPECT_THAT(page, HasSubstr("the job was lost: stage 1 on synthetic-1 sent no heartbeat"));
  EXPECT_THAT(page, HasSubstr("coordinator sweep -m /models/synthetic-0.6b-q8_0.gguf"));
  EXPECT_THAT(page, HasSubstr("Synthetic CPU"));
}

TEST(ReportTables, HaveEveryHostWithWhatItIsAndWhetherItRan) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {3}, .concurrency = {4}, .repetitions = 1});
  points.push_back(points[0]);
  points[0].stages[0].host = points[0].origin.host;  // of which an older record's stages say nothing
  for (size_t s : {1, 2}) {
    points[0].stages[s].processor = "Xeon";
    points[0].stages[s].cores = 16;
    points[0].stages[s].memory_bytes = uint64_t{64} << 30;
    points[0].stages[s].isa = "avx2";
  }
  points[1].simulated = true;
  for (SweepStage& stage : points[1].stages) stage.host = "simulated-0";
  const std::vector<SweepCell> cells = CellsOf(points);
  EXPECT_THAT(HostTable(PointersTo(cells)).rows,
              UnorderedElementsAre(
                  ElementsAre("synthetic-host", "measured", points[0].origin.processor, "avx512-vnni", "1", "8", "-"),
                  ElementsAre("synthetic-1, synthetic-2", "measured", "Xeon", "avx2", "2", "16", "64 GiB"),
                  ElementsAre("simulated-0", "simulated", "-", "avx512-vnni", "1", "-", "-")));
  EXPECT_THAT(HostsSentence(PointersTo(cells)),
              AllOf(HasSubstr("mixed: 3 hosts: "), HasSubstr("2 \xC3\x97 Xeon, 16 cores, avx2, 64 GiB")));
}

TEST(ReportPage, IsThereWhenAllPointsFailed) {
  std::vector<SweepPoint> points(2);
  points[0].error = "no memory";
  points[1].error = "no host";
  points[1].config.stages = 2;
  EXPECT_THAT(FiguresOf(points), IsEmpty());
  EXPECT_THAT(PageOf(points), HasSubstr("no memory"));
}

TEST(ReportPage, TakesNumbersThatNobodyCanHaveMeasured) {
  for (double value : {0.0, -1.0, 1e300, std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {1, 4}, .repetitions = 2});
    for (size_t i = 0; i < points.size(); i += 2) {
      SweepResult& result = points[i].result;
      result.output_tokens_per_s = result.bubble = result.bubble_floor = result.rows_per_pass = value;
      result.itl_s = result.ttft_s = {1, value, value, value, value, value, value};
      result.goodput_tokens_per_s = result.slo_share = value;
      for (SweepStage& stage : points[i].stages) stage.compute_s = stage.send_s = stage.wait_s = value;
      points[i].prediction->output_tokens_per_s = points[i].prediction->itl_s = value;
      points[i].config.stages += static_cast<int64_t>(i % 3);
    }
    for (const ReportFigure& figure : FiguresOf(points)) {
      EXPECT_EQ(XmlProblem(figure.file_svg), "") << figure.id;
      EXPECT_EQ(CoordinateProblem(figure.file_svg), "") << figure.id << " " << value;
    }
    EXPECT_FALSE(PageOf(points).empty());
  }
}

TEST(PointsCsv, HasALineForEachPointAndAsManyCellsInEach) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4}, .repetitions = 2});
  points[1].config.model = "a \"quoted\", name";
  points[2].prediction.reset();
  const std::string csv = PointsCsv({{"", "", points}});
  const std::vector<std::string> lines = absl::StrSplit(csv, "\r\n");
  ASSERT_EQ(lines.size(), points.size() + 2);  // the names, and nothing behind the last
  const auto cells = [](const std::string& line) {
    bool quoted = false;
    int64_t count = 1;
    for (char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) ++count;
    }
    return count;
  };
  for (size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_EQ(cells(lines[i]), cells(lines[0])) << i;
  EXPECT_THAT(lines[2], HasSubstr("\"a \"\"quoted\"\", name\""));
}

TEST(PointsCsv, NamesFieldsByTheirPathAndKeepsEveryDigit) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {4}, .repetitions = 1});
  points[0].result.wall_s = 12345.678901234567;
  points[0].stages[0].compute_s = 0.25;
  points[0].stages[1].compute_s = 0.5;
  const std::vector<std::string> lines = absl::StrSplit(PointsCsv({{"", "", points}}), "\r\n");
  const std::vector<std::string> names = absl::StrSplit(lines[0], ','), cells = absl::StrSplit(lines[1], ',');
  const auto cell = [&](const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    return at == names.end() ? "no column " + name : cells[static_cast<size_t>(at - names.begin())];
  };
  EXPECT_EQ(cell("config.stages"), "2");
  EXPECT_EQ(cell("simulated"), "false");
  EXPECT_EQ(std::stod(cell("result.wall_s")), points[0].result.wall_s);
  EXPECT_EQ(std::stod(cell("result.ttft_s.p99")), points[0].result.ttft_s.p99);
  EXPECT_EQ(cell("stages.compute_s"), "0.75");
  EXPECT_EQ(cell("prediction.source"), "\"profile synthetic.json\"");
}

TEST_F(WriteReportTest, WritesThePageTheTableAndThePictures) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  const SweepReportFiles files = WritePoints(points, directory).value();
  EXPECT_EQ(testing::ReadFileOrDie(files.page), PageOf(points));
  EXPECT_EQ(testing::ReadFileOrDie(files.table), PointsCsv({{"", "", points}}));
  EXPECT_EQ(files.figures.size(), FiguresOf(points).size() + 1);  // and the verdict's
  for (const std::string& figure : files.figures) EXPECT_EQ(XmlProblem(testing::ReadFileOrDie(figure)), "");
}

TEST(WriteSweepReport, GivesTheSameBytesForTheSamePoints) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  EXPECT_EQ(PageOf(points), PageOf(SyntheticExperiment()));
}

TEST_F(WriteReportTest, DeletesPicturesOfAnEarlierReport) {
  const auto first = WritePoints(SyntheticSweep({.stages = {1, 2}, .repetitions = 1}), directory).value();
  const auto second =
      WritePoints(SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1}), directory).value();
  size_t pictures = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory + "/figures")) ++pictures;
  EXPECT_EQ(pictures, second.figures.size());
  EXPECT_LT(second.figures.size(), first.figures.size());
}

// With another directory for its report, a user may name one that has pictures and even a page of its own.
TEST_F(WriteReportTest, DeletesNoPicturesOfOthers) {
  std::filesystem::create_directories(directory + "/figures");
  const std::string logo = directory + "/figures/logo.svg", plot = directory + "/figures/goodput-prefill.svg";
  testing::WriteFileOrDie(logo, "<svg/>");
  testing::WriteFileOrDie(plot, "<svg/>");
  testing::WriteFileOrDie(directory + "/report.html", "<title>My thesis</title>\n<figure id=\"goodput-prefill\">\n");
  const std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  for (int times : {1, 2}) {
    ASSERT_TRUE(WritePoints(points, directory).ok());
    EXPECT_TRUE(std::filesystem::exists(logo)) << times;
    EXPECT_TRUE(std::filesystem::exists(plot)) << times;
  }
}

TEST(ReportPage, SaysHowManyPointsAreOfWhichVersion) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4}, .repetitions = 2});
  EXPECT_THAT(PageOf(points), Not(HasSubstr("several versions")));
  points[0].config.program_version = "0.0.9";
  EXPECT_THAT(PageOf(points),
              HasSubstr("Points of several versions of the program, kept apart: 1 of 0.0.9, 3 of 0.1.0."));
}

TEST_F(WriteReportTest, SaysWhatItCannotDo) {
  EXPECT_EQ(WriteSweepReport({}, directory).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(WritePoints(SyntheticSweep({.stages = {1}, .concurrency = {4}}), "/proc/none").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/proc/none")));
}

TEST_F(WriteReportTest, LeavesNoHalfOfAFileThatItCannotReplace) {
  std::filesystem::create_directories(directory + "/points.csv/full");
  EXPECT_THAT(WritePoints(SyntheticSweep({.stages = {1}, .concurrency = {4}}), directory).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("points.csv': Is a directory")));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
  }
}

}  // namespace
}  // namespace stagecoach
