// What requests wait for at a throughput.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/verdict.h"

namespace stagecoach {
namespace {

constexpr size_t kMostPercentileRows = 12;

// A median, over the throughput.
struct LatencyKind {
  const char* id;
  const char* title;
  const char* axis;
  const char* words;  // in a sentence
  Percentiles SweepResult::*sample;
};
constexpr LatencyKind kItlMedian = {"itl-p50", "Throughput and the median gap between tokens", "ITL p50, ms",
                                    "the median gap between tokens", &SweepResult::itl_s};
constexpr LatencyKind kTtftMedian = {"ttft-p50", "Throughput and the time to the first token", "TTFT p50, ms",
                                     "the median time to the first token", &SweepResult::ttft_s};

Spread LatencyMs(const SweepCell& cell, const LatencyKind& kind) { return cell.MsOf(kind.sample, &Percentiles::p50); }

Spread OutputRate(const SweepCell& cell) { return cell.Of(&SweepResult::output_tokens_per_s); }

// The load, if known: concurrent requests, or requests a second.
double LoadOf(const SweepCell& cell) {
  return cell.open_load() ? OfferedRate(cell) : static_cast<double>(cell.config.concurrency);
}

bool WideRange(const std::vector<double>& values) {
  double low = 0, high = 0;
  for (double value : values) {
    if (value <= 0) continue;
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
  return high > kWideRange * low;
}

const std::vector<SweepField> kAlongLoad = {SweepField::kConcurrency, SweepField::kArrivals};

// Cells of one configuration under rising load, two at least.
std::vector<CellPointers> LoadCurves(const CellPointers& cells) {
  std::vector<CellPointers> curves;
  for (const bool closed : {true, false}) {  // requests at once and requests a second do not compare
    const CellPointers alike = Where(cells, [&](const SweepCell& cell) { return !cell.open_load() == closed; });
    for (CellPointers& group : GroupCells(alike, kAlongLoad)) {
      SortBy(LoadOf, &group);
      if (group.size() >= 2 && LoadOf(*group.front()) < LoadOf(*group.back())) curves.push_back(std::move(group));
    }
  }
  return curves;
}

std::string CurveSentence(const CellPointers& curve, const std::string& label, const LatencyKind& kind) {
  const SweepCell &first = *curve.front(), &last = *curve.back();
  const std::string from = absl::StrCat("from ", LoadText(first), " to ", LoadText(last));
  return absl::StrCat(label.empty() ? "F" + from.substr(1) : absl::StrCat("With ", label, ", ", from),
                      ", the throughput goes from ", FigureText(OutputRate(first).median), " to ",
                      FigureText(OutputRate(last).median), " output tokens/s and ", kind.words, " from ",
                      FigureText(LatencyMs(first, kind).median), " to ", FigureText(LatencyMs(last, kind).median),
                      " ms.");
}

void AddCurves(const std::vector<CellPointers>& curves, size_t left_out, const LatencyKind& kind,
               std::vector<ReportFigure>* figures) {
  const CellPointers shown = Joined(curves);
  const CellLabels labels(shown, kAlongLoad);
  XyChart chart;
  chart.title = kind.title;
  chart.x.label = "output tokens/s; beside the points: the load";
  chart.y.label = kind.axis;
  std::vector<double> heights;
  const CellPointers* fastest = nullptr;
  for (size_t i = 0; i < curves.size(); ++i) {
    ChartSeries series = SeriesOf(labels.Of(*curves[i][0]), i, *curves[i][0]);
    if (curves[i][0]->open_load()) absl::StrAppend(&series.label, ", requests a second");
    for (const SweepCell* cell : curves[i]) {
      const Spread y = LatencyMs(*cell, kind);
      if (y.median <= 0) continue;
      const double rate = OutputRate(*cell).median;
      series.points.push_back(SpreadPoint(rate, y,
                                          absl::StrCat(series.label, ", ", LoadText(*cell), ": ", FigureText(rate),
                                                       " output tokens/s, ", kind.axis, ": ", FigureText(y.median))));
      series.points.back().label = FigureText(LoadOf(*cell));
      heights.push_back(y.median);
    }
    if (series.points.size() < 2) continue;
    if (fastest == nullptr || BestThroughput(curves[i]) > BestThroughput(*fastest)) fastest = &curves[i];
    chart.series.push_back(std::move(series));
  }
  if (fastest == nullptr) return;
  if (WideRange(heights)) chart.y.kind = ScaleKind::kLog;
  const std::string label = curves.size() == 1 ? "" : labels.Of(*fastest->front());
  figures->push_back(MakeXyFigure(absl::StrCat("throughput-", kind.id),
                                  CurveSentence(*fastest, label, kind) + LeftOutSentence(left_out), std::move(chart),
                                  shown));
}

void AddPercentiles(const CellPointers& cells, bool first_token, std::vector<ReportFigure>* figures) {
  Percentiles SweepResult::*const sample = first_token ? &SweepResult::ttft_s : &SweepResult::itl_s;
  const CellPointers measured =
      Where(cells, [&](const SweepCell& cell) { return cell.MsOf(sample, &Percentiles::max).median > 0; });
  if (measured.empty()) return;
  size_t left_out = 0;
  const CellPointers shown = FastestCells(measured, kMostPercentileRows, &left_out);
  const CellLabels labels(shown, {});
  RowChart chart;
  const char* name = first_token ? "TTFT" : "ITL";
  chart.title = first_token ? "Time to the first token: percentiles" : "Gaps between tokens: percentiles";
  chart.axis.label = absl::StrCat(name, ", ms");
  chart.marks = {{"p50", MarkerShape::kCircle, false, 0},
                 {"p90", MarkerShape::kDiamond, false, 1},
                 {"p99", MarkerShape::kTriangle, false, 2}};
  chart.join_marks = true;
  std::vector<double> values;
  double most = 0;
  const SweepCell* widest = nullptr;
  for (const SweepCell* cell : shown) {
    ChartRow row;
    row.heading = labels.Of(*cell);
    row.hollow = cell->simulated;
    for (double Percentiles::*percentile : {&Percentiles::p50, &Percentiles::p90, &Percentiles::p99}) {
      row.marks.push_back(cell->MsOf(sample, percentile).median);
    }
    values.insert(values.end(), row.marks.begin(), row.marks.end());
    row.tooltip = absl::StrCat(row.heading, ": ", name, " p50 ", FigureText(row.marks[0]), ", p90 ",
                               FigureText(row.marks[1]), ", p99 ", FigureText(row.marks[2]), " ms");
    if (row.marks[0] > 0 && row.marks[2] / row.marks[0] > most) most = row.marks[2] / row.marks[0], widest = cell;
    chart.rows.push_back(std::move(row));
  }
  if (WideRange(values)) chart.axis.kind = ScaleKind::kLog;
  std::string sentence;
  if (widest != nullptr) {
    sentence = absl::StrCat("The 99th percentile is at most ", FigureText(most), " times the median",
                            shown.size() > 1 ? absl::StrCat(" (", labels.Of(*widest), ")") : "", ".",
                            LeftOutSentence(left_out));
  }
  figures->push_back(
      MakeRowFigure(first_token ? "ttft-percentiles" : "itl-percentiles", sentence, std::move(chart), shown));
}

void AddGoodput(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  CellPointers bounded =
      Where(cells, [](const SweepCell& cell) { return cell.config.slo_ttft_s > 0 || cell.config.slo_itl_s > 0; });
  if (bounded.empty()) return;
  const auto goodput = [](const SweepCell& cell) { return cell.Of(&SweepResult::goodput_tokens_per_s); };
  SortBy([&](const SweepCell& cell) { return -goodput(cell).median; }, &bounded);
  const size_t left_out = bounded.size() > kMostPercentileRows ? bounded.size() - kMostPercentileRows : 0;
  bounded.resize(bounded.size() - left_out);
  const CellLabels labels(bounded, {});
  RowChart chart;
  chart.title = "Goodput: output of the requests that met their bounds";
  chart.axis.label = "output tokens/s";
  chart.parts = {{"bounds met", PartFill::kSolid}, {"bounds missed", PartFill::kDots}};
  for (const SweepCell* cell : bounded) {
    const Spread good = goodput(*cell);
    ChartRow row = SpreadRow(*cell, labels.Of(*cell), good);
    row.parts.push_back(OutputRate(*cell).median - good.median);
    row.note = PercentText(cell->Of(&SweepResult::slo_share).median) + " met";
    row.tooltip = absl::StrCat(row.heading, ": ", FigureText(good.median), " of ", FigureText(OutputRate(*cell).median),
                               " output tokens/s; ", row.note);
    chart.rows.push_back(std::move(row));
  }
  const std::string sentence = absl::StrCat("The best goodput is ", FigureText(goodput(*bounded[0]).median),
                                            " output tokens/s (", labels.Of(*bounded[0]), "), under ",
                                            FieldText(*bounded[0], SweepField::kSlo), ".", LeftOutSentence(left_out));
  figures->push_back(MakeRowFigure("goodput", sentence, std::move(chart), bounded));
}

// Those that no other one beats in both throughput and gap, by throughput.
CellPointers ParetoFront(CellPointers cells) {
  SortBy([](const SweepCell& cell) { return -OutputRate(cell).median; }, &cells);
  CellPointers front;
  double least = std::numeric_limits<double>::infinity();
  for (const SweepCell* cell : cells) {
    const double gap = LatencyMs(*cell, kItlMedian).median;
    if (gap < least) least = gap, front.push_back(cell);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

void AddPareto(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  const CellPointers shown = Where(cells, [](const SweepCell& cell) { return LatencyMs(cell, kItlMedian).median > 0; });
  if (shown.size() < 3) return;
  const CellLabels labels(shown, {});
  XyChart chart;
  chart.title = "What is worth choosing: throughput against the gap between tokens";
  chart.x.label = "output tokens/s";
  chart.y.label = "ITL p50, ms";
  std::vector<double> heights, widths;
  std::string sentence;
  for (const bool simulated : {false, true}) {
    const CellPointers alike = Where(shown, [&](const SweepCell& cell) { return cell.simulated == simulated; });
    if (alike.empty()) continue;
    const CellPointers front = ParetoFront(alike);
    const std::string origin = simulated ? "simulated" : "measured";
    ChartSeries best = SeriesOf("front, " + origin, simulated ? 1 : 0, *alike[0]);
    ChartSeries others = SeriesOf("beaten in both, " + origin, 5, *alike[0]);
    others.joined = false;
    for (const SweepCell* cell : alike) {
      const bool on_front = std::find(front.begin(), front.end(), cell) != front.end();
      const double rate = OutputRate(*cell).median;
      const Spread gap = LatencyMs(*cell, kItlMedian);
      widths.push_back(rate), heights.push_back(gap.median);
      if (on_front) continue;
      others.points.push_back(SpreadPoint(rate, gap,
                                          absl::StrCat(labels.Of(*cell), ": ", FigureText(rate),
                                                       " output tokens/s, ITL ", FigureText(gap.median), " ms")));
    }
    for (const SweepCell* cell : front) {
      const double rate = OutputRate(*cell).median;
      const Spread gap = LatencyMs(*cell, kItlMedian);
      best.points.push_back(SpreadPoint(rate, gap,
                                        absl::StrCat(labels.Of(*cell), ": ", FigureText(rate), " output tokens/s, ITL ",
                                                     FigureText(gap.median), " ms")));
      best.points.back().label =
          absl::StrCat(cell->stages, HasEvenThreads(*cell) ? absl::StrCat("\xC3\x97", cell->threads) : "", ", ",
                       FigureText(LoadOf(*cell)));
    }
    if (sentence.empty()) {
      sentence =
          absl::StrCat(front.size(), " of ", CountOf(static_cast<int64_t>(alike.size()), "configuration"), ", ", origin,
                       ", are beaten by no other in both. The front goes from ", labels.Of(*front.front()), " to ",
                       labels.Of(*front.back()), ". Beside its points stand stages \xC3\x97 threads, and the load.");
    }
    chart.series.push_back(std::move(best));
    if (!others.points.empty()) chart.series.push_back(std::move(others));
  }
  if (WideRange(heights)) chart.y.kind = ScaleKind::kLog;
  if (WideRange(widths)) chart.x.kind = ScaleKind::kLog;
  figures->push_back(MakeXyFigure("pareto", sentence, std::move(chart), shown));
}

// Requests that come by a clock of their own: what is offered, what of it is served, and how long it takes.
void AddOpenLoads(const CellPointers& cells, std::vector<ReportFigure>* figures) {
  CellPointers open =
      Where(cells, [](const SweepCell& cell) { return OfferedRate(cell) > 0 && cell.Of(ServedShare).median > 0; });
  if (open.empty()) return;
  size_t left_out = 0;
  open = FastestCells(open, kMostPercentileRows, &left_out);
  SortBy(OfferedRate, &open);
  const CellLabels labels(open, {});
  RowChart chart;
  chart.title = "Open loads: what is offered, what is served, and how long it takes";
  chart.axis.label = "requests/s";
  chart.parts = {{"served", PartFill::kSolid}};
  chart.marks = {{.label = "offered", .tick = true}};
  const auto share = [](const SweepCell& cell) { return cell.Of(ServedShare).median; };
  for (const SweepCell* cell : open) {
    const double offered = OfferedRate(*cell);
    ChartRow row =
        SpreadRow(*cell, labels.Of(*cell), cell->Of([&](const SweepPoint& run) { return offered * ServedShare(run); }));
    row.marks = {offered};
    const auto time = [&](Percentiles SweepResult::*sample, double Percentiles::*percentile) {
      return DurationText(cell->MsOf(sample, percentile).median / 1e3);
    };
    row.note = absl::StrCat("TTFT ", time(&SweepResult::ttft_s, &Percentiles::p50), ", all ",
                            time(&SweepResult::latency_s, &Percentiles::p50));
    row.tooltip = absl::StrCat(row.heading, ": ", FigureText(row.parts[0]), " of ", FigureText(row.marks[0]),
                               " requests/s served; TTFT p50 ", time(&SweepResult::ttft_s, &Percentiles::p50), ", p99 ",
                               time(&SweepResult::ttft_s, &Percentiles::p99), "; whole answer p50 ",
                               time(&SweepResult::latency_s, &Percentiles::p50), ", p99 ",
                               time(&SweepResult::latency_s, &Percentiles::p99));
    chart.rows.push_back(std::move(row));
  }
  const SweepCell& most = **std::max_element(
      open.begin(), open.end(), [&](const SweepCell* a, const SweepCell* b) { return share(*a) < share(*b); });
  const bool all = std::all_of(open.begin(), open.end(), [&](const SweepCell* cell) { return share(*cell) == 1; });
  const std::string label = labels.Of(most);
  const std::string sentence = absl::StrCat(
      all ? "All of what is offered is served"
          : absl::StrCat(open.size() == 1 || label.empty()
                             ? "Served is "
                             : absl::StrCat("The largest share is served with ", label, ": "),
                         PercentText(share(most)), " of what is offered"),
      ". Served are the requests that ended with all their tokens, however late. Beside the bars: the median wait for "
      "the first token and for the whole answer.",
      LeftOutSentence(left_out));
  figures->push_back(MakeRowFigure("open-loads", sentence, std::move(chart), open));
}

}  // namespace

std::vector<ReportFigure> LatencyFigures(const CellPointers& cells) {
  const CellPointers prefilling = Where(cells, [](const SweepCell& cell) { return cell.prefill_only(); });
  const CellPointers decoding =
      Where(cells, [](const SweepCell& cell) { return !cell.prefill_only() && OutputRate(cell).median > 0; });
  std::vector<ReportFigure> figures;
  AddPareto(Where(decoding, [](const SweepCell& cell) { return !cell.open_load(); }), &figures);
  AddOpenLoads(decoding, &figures);
  size_t left_out = 0;
  const std::vector<CellPointers> curves = FastestGroups(LoadCurves(decoding), kMostSeries, &left_out);
  if (!curves.empty()) AddCurves(curves, left_out, kItlMedian, &figures);
  AddGoodput(decoding, &figures);
  if (!curves.empty()) AddCurves(curves, left_out, kTtftMedian, &figures);
  AddPercentiles(decoding, /*first_token=*/false, &figures);
  AddPercentiles(decoding.empty() ? prefilling : decoding, /*first_token=*/true, &figures);
  return figures;
}

}  // namespace stagecoach
