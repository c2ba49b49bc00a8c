#include "coordinator/report/write_report.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/sweep_cells.h"
#include "tests/testing/matchers.h"
#include "tests/testing/report/synthetic_sweep.h"
#include "tests/testing/report/xml_check.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

std::vector<ReportFigure> FiguresOf(const std::vector<SweepPoint>& points) {
  const std::vector<SweepCell> cells = SweepCells(points);
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
  const std::vector<SweepCell> cells = SweepCells(points);
  return ReportPage(PointersTo(cells), ReportSections(PointersTo(cells)));
}

const ReportFigure& Find(const std::vector<ReportFigure>& figures, const std::string& id) {
  return *std::find_if(figures.begin(), figures.end(), [&](const ReportFigure& figure) { return figure.id == id; });
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
            "2 stages give 1.6 times the throughput of 1 stage: 160 against 100 output tokens/s, 80 % of ideal. The "
            "bubble of "
            "2 stages is 12 %, its floor 9.0 %.");
}

// A rate that is too low and a time that is too long are the same error, though one ratio is below 1 and one above it.
TEST(ReportPage, SaysHowFarMeasuredAndPredictedAreApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points[0].prediction->output_tokens_per_s = points[0].result.output_tokens_per_s / 0.8;
  points[0].prediction->itl_s = points[0].result.itl_s.p50 / 1.25;
  EXPECT_THAT(PageOf(points), HasSubstr("Prediction off by</dt><dd><p><b>25 %</b> in the median</p>at "
                                        "most 25 %, over 2 comparisons"));
  const std::string rate = FigureText(points[0].prediction->output_tokens_per_s);
  EXPECT_THAT(PageOf(points), HasSubstr("1 stage; predicted " + rate + "</dd>"));
  // What was simulated is no measurement.
  points.push_back(points[0]);
  points[1].simulated = true;
  points[1].result.output_tokens_per_s *= 3;
  EXPECT_THAT(PageOf(points), HasSubstr("at most 25 %, over 2 comparisons"));
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
    return Ids(ReportSections(PointersTo(SweepCells(points))).back().figures);
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
  const std::string page = PageOf(SyntheticExperiment());
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

TEST(ReportPage, EscapesWhatUsersCanName) {
  std::vector<SweepPoint> points = SyntheticExperiment();
  const std::string attack = "<script>alert(1)</script>\"'><img onerror=x>";
  for (size_t i = 0; i < points.size(); ++i) {
    SweepPoint& point = points[i];
    point.config.model = attack + std::to_string(i % 2);
    point.config.hosts = point.config.arrivals = point.config.prompt = attack + std::to_string(i % 3);
    point.origin = {attack, attack, attack, attack, 1, 1, 1, attack, attack, attack};
    if (!point.ok()) point.error = attack;
    for (SweepStage& stage : point.stages) stage.host = stage.isa = stage.cpus = attack;
    if (point.prediction.has_value()) point.prediction->source = attack;
  }
  const std::string page = PageOf(points);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
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
  const std::vector<SweepCell> cells = SweepCells(points);
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
  EXPECT_THAT(top, HasSubstr("<b>88 %</b> its stages computed</p>12 % waiting with work in the pipeline; no less than "
                             "9.0 % was possible</dd>"));
  EXPECT_THAT(top, HasSubstr("<b>25</b> ms between tokens</p>1 stage, 1 at once</dd>"));
  EXPECT_THAT(top, HasSubstr("<b>250</b> ms to the first token</p>2 stages, 1 at once</dd>"));
  EXPECT_THAT(top, Not(HasSubstr("Prediction off")));
}

TEST(ReportPage, SaysBeforeTheFiguresWhatFailed) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  const std::string page = PageOf(points), top = page.substr(0, page.find("<figure"));
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

TEST(ReportTables, NameTheMachinesThatRanAndNotThoseThatWereSimulated) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.push_back(points[0]);
  points[1].simulated = true;
  points[1].origin.processor = "";
  points[1].stages[0].host = "simulated-0";
  const std::vector<SweepCell> cells = SweepCells(points);
  const ReportTable table = MachineTable(PointersTo(cells));
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][1], points[0].origin.processor);
  EXPECT_EQ(table.rows[0][2], "synthetic-0");
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
  const std::string csv = PointsCsv(points);
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
  const std::vector<std::string> lines = absl::StrSplit(PointsCsv(points), "\r\n");
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
  const SweepReportFiles files = WriteSweepReport(points, directory).value();
  EXPECT_EQ(testing::ReadFileOrDie(files.page), PageOf(points));
  EXPECT_EQ(testing::ReadFileOrDie(files.table), PointsCsv(points));
  EXPECT_EQ(files.figures.size(), FiguresOf(points).size());
  for (const std::string& figure : files.figures) EXPECT_EQ(XmlProblem(testing::ReadFileOrDie(figure)), "");
}

TEST(WriteSweepReport, GivesTheSameBytesForTheSamePoints) {
  const std::vector<SweepPoint> points = SyntheticExperiment();
  EXPECT_EQ(PageOf(points), PageOf(SyntheticExperiment()));
}

TEST_F(WriteReportTest, DeletesPicturesOfAnEarlierReport) {
  const auto first = WriteSweepReport(SyntheticSweep({.stages = {1, 2}, .repetitions = 1}), directory).value();
  const auto second =
      WriteSweepReport(SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1}), directory).value();
  size_t pictures = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory + "/figures")) ++pictures;
  EXPECT_EQ(pictures, second.figures.size());
  EXPECT_LT(second.figures.size(), first.figures.size());
}

TEST_F(WriteReportTest, SaysWhatItCannotDo) {
  EXPECT_EQ(WriteSweepReport({}, directory).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(WriteSweepReport(SyntheticSweep({.stages = {1}, .concurrency = {4}}), "/proc/none").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/proc/none")));
}

TEST_F(WriteReportTest, LeavesNoHalfOfAFileThatItCannotReplace) {
  std::filesystem::create_directories(directory + "/points.csv/full");
  EXPECT_THAT(WriteSweepReport(SyntheticSweep({.stages = {1}, .concurrency = {4}}), directory).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("points.csv': Is a directory")));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
  }
}

std::vector<std::string> LabelsOf(const CellPointers& cells, const std::vector<SweepField>& along) {
  const CellLabels labels(cells, along);
  std::vector<std::string> texts;
  for (const SweepCell* cell : cells) texts.push_back(labels.Of(*cell));
  return texts;
}

TEST(SpreadOf, IsTheMedianWithTheEnds) {
  const Spread odd = SpreadOf({3, 1, 2}), even = SpreadOf({4, 1, 2, 3}), none = SpreadOf({std::nan("")});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(none.count, 0);
}

TEST(SweepCells, JoinsTheRepetitionsOfAConfiguration) {
  const std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 3});
  const std::vector<SweepCell> cells = SweepCells(points);
  ASSERT_EQ(cells.size(), 4u);
  for (const SweepCell& cell : cells) EXPECT_EQ(cell.runs.size(), 3u);
}

TEST(SweepCells, KeepsWhatWasSimulatedApart) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.push_back(points[0]);
  points[1].simulated = true;
  EXPECT_EQ(SweepCells(points).size(), 2u);
}

TEST(SweepCells, TakesTheLastPointOfARepetition) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4}, .repetitions = 1});
  points.insert(points.begin(), points[0]);
  points[0].error = "it was lost";
  const std::vector<SweepCell> cells = SweepCells(points);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].runs.size(), 1u);
  EXPECT_TRUE(cells[0].failures.empty());
}

TEST(SweepCells, LearnsFromTheRunWhatWasLeftOpen) {
  std::vector<SweepPoint> points =
      SyntheticSweep({.stages = {2}, .threads = {3}, .concurrency = {4}, .repetitions = 1});
  points[0].config.stages = points[0].config.threads = 0;
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_EQ(cells[0].stages, 2);
  EXPECT_EQ(cells[0].threads, 3);
}

TEST(SweepCells, NamesModelsByTheirFileUnlessThatIsAmbiguous) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2, 4}, .concurrency = {4}, .repetitions = 1});
  points[0].config.model = "/a/m.gguf";
  points[1].config.model = "/b/m.gguf";
  points[2].config.model = "/b/other.gguf";
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_EQ(cells[0].model_name, "/a/m.gguf");
  EXPECT_EQ(cells[1].model_name, "/b/m.gguf");
  EXPECT_EQ(cells[2].model_name, "other.gguf");
  points[1].config.model = "dummy://qwen3-0.6b/q8_0";
  EXPECT_EQ(SweepCells(points)[1].model_name, "qwen3-0.6b/q8_0");
}

TEST(CellLabels, TellWhatDiffersAndWhatIsUnusual) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8}, .repetitions = 1});
  const std::vector<SweepPoint> other =
      SyntheticSweep({.stages = {2}, .concurrency = {8}, .policies = {Policy::kPrefillFirst}, .repetitions = 1});
  points.insert(points.end(), other.begin(), other.end());
  const std::vector<SweepCell> cells = SweepCells(points);
  EXPECT_THAT(LabelsOf(PointersTo(cells), {}),
              ElementsAre("1 stage, 4 at once", "1 stage, 8 at once", "2 stages, 4 at once", "2 stages, 8 at once",
                          "2 stages, 8 at once, policy prefill-first"));
  EXPECT_THAT(LabelsOf({&cells[3], &cells[4]}, {}), ElementsAre("policy decode-priority", "policy prefill-first"));
  EXPECT_THAT(UsualTexts(PointersTo(cells)), ElementsAre("policy decode-priority"));
}

TEST(CellLabels, SayWhatWasNotReal) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {8}, .repetitions = 1});
  for (const SyntheticMatrix& matrix :
       {SyntheticMatrix{.stages = {2}, .concurrency = {8}, .repetitions = 1, .link_latency_s = 0.002},
        SyntheticMatrix{.stages = {2}, .concurrency = {8}, .repetitions = 1, .simulated = true}}) {
    points.push_back(SyntheticSweep(matrix)[0]);
  }
  EXPECT_THAT(LabelsOf(PointersTo(SweepCells(points)), {SweepField::kStages}),
              ElementsAre("real links, measured", "emulated links (2 ms)", "simulated"));
}

TEST(CellLabels, TellTheLoadOnce) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points[1].config.arrivals = "poisson:2";
  points[1].config.concurrency = 0;
  EXPECT_THAT(LabelsOf(PointersTo(SweepCells(points)), {}), ElementsAre("4 at once", "poisson:2 arrivals"));
}

TEST(GroupCells, IgnoresWhatFollowsTheFieldThatIsLookedAt) {
  // Here `max_num_seqs` and `requests` go with `concurrency`.
  const std::vector<SweepCell> cells =
      SweepCells(SyntheticSweep({.stages = {1, 2}, .concurrency = {4, 8, 16}, .repetitions = 1}));
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kConcurrency}).size(), 2u);
  EXPECT_EQ(GroupCells(PointersTo(cells), {SweepField::kStages}).size(), 3u);
}

TEST(GroupCells, KeepsApartWhatWasVariedOnItsOwn) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {1}, .concurrency = {4, 8}, .repetitions = 1});
  points.push_back(points[0]);
  points.back().config.max_num_seqs = 100;
  EXPECT_EQ(GroupCells(PointersTo(SweepCells(points)), {SweepField::kConcurrency}).size(), 3u);
}

TEST(PredictionRatio, IsOfWhatThePredictionSpeaksOf) {
  std::vector<SweepPoint> points = SyntheticSweep({.stages = {2}, .concurrency = {1, 8}, .repetitions = 2});
  for (SweepPoint& point : points) {
    point.prediction->output_tokens_per_s = 100;
    point.result.output_tokens_per_s = 80 + 20 * static_cast<double>(point.config.repetition);
  }
  const std::vector<SweepCell> cells = SweepCells(points);
  for (const PredictedQuantity& quantity : PredictedQuantities()) {
    const std::string id = quantity.id;
    if (id == "output-rate") {
      EXPECT_NEAR(RatioOf(cells[0], quantity)->ratio(), 0.9, 1e-12);
    }
    if (id == "ttft") {  // of a prompt alone
      EXPECT_TRUE(RatioOf(cells[0], quantity).has_value());
      EXPECT_FALSE(RatioOf(cells[1], quantity).has_value());
    }
    if (id == "prefill-rate") {
      EXPECT_FALSE(RatioOf(cells[0], quantity).has_value());
    }
  }
}

}  // namespace
}  // namespace stagecoach
