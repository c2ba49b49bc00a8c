// How throughput and one user's speed grow with stages and cores.

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// Whether decode or prefill is looked at: they have throughputs of their own.
struct LoadKind {
  bool prefill;
  std::string prefix;  // of identifiers
  std::string rate;    // its name
};

double StagesOf(const SweepCell& cell) { return static_cast<double>(cell.stages); }
double CoresOf(const SweepCell& cell) { return static_cast<double>(cell.cores()); }

using CellNumber = std::function<double(const SweepCell&)>;

// Rising by `of`, with those alone that have a throughput and a number.
CellPointers Rising(const CellPointers& group, const CellNumber& of) {
  CellPointers rising =
      Where(group, [&](const SweepCell& cell) { return of(cell) > 0 && cell.Throughput().median > 0; });
  SortBy(of, &rising);
  return rising;
}

bool Grows(const CellPointers& rising, const CellNumber& of) {
  return rising.size() >= 2 && of(*rising.front()) < of(*rising.back());
}

std::vector<CellPointers> GrowingGroups(const CellPointers& cells, const std::vector<SweepField>& along,
                                        const CellNumber& of) {
  std::vector<CellPointers> groups;
  for (const CellPointers& group : GroupCells(cells, along)) {
    CellPointers rising = Rising(group, of);
    if (Grows(rising, of)) groups.push_back(std::move(rising));
  }
  return groups;
}

ChartAxis CountAxis(std::string label, const CellPointers& cells, const CellNumber& of) {
  std::set<double> values;
  for (const SweepCell* cell : cells) values.insert(of(*cell));
  ChartAxis axis;
  axis.label = std::move(label);
  axis.marks.assign(values.begin(), values.end());
  if (*values.rbegin() >= 8 * *values.begin()) axis.kind = ScaleKind::kLog;
  return axis;
}

std::string PointText(const SweepCell& cell, const std::string& label, const std::string& what) {
  return absl::StrCat(label, label.empty() ? "" : ", ", FieldText(cell, SweepField::kStages), " \xC3\x97 ",
                      FieldText(cell, SweepField::kThreads), ": ", what);
}

// "2 stages give 1.62 times the throughput of 1 stage (...)", of the group that is fastest.
std::string StrongSentence(const CellPointers& group, const std::string& label, const LoadKind& kind) {
  const SweepCell &first = *group.front(), &last = *group.back();
  const double before = first.Throughput().median, after = last.Throughput().median;
  const double gain = after / before, ideal = StagesOf(last) / StagesOf(first);
  const bool same = FigureText(gain) == "1";
  std::string text = absl::StrCat(
      FieldText(last, SweepField::kStages),
      same ? " give the throughput of " : absl::StrCat(" give ", FigureText(gain), " times the throughput of "),
      FieldText(first, SweepField::kStages), label.empty() ? "" : absl::StrCat(" (", label, ")"), ": ",
      FigureText(after), " against ", FigureText(before), " ", kind.rate, ", ", PercentText(gain / ideal),
      " of growth in proportion.");
  if (const double bubble = last.Of(&SweepResult::bubble).median; bubble > 0) {
    absl::StrAppend(&text, " The bubble of ", FieldText(last, SweepField::kStages), " is ", PercentText(bubble),
                    ", its floor ", PercentText(last.Of(&SweepResult::bubble_floor).median), ".");
  }
  return text;
}

ChartPoint PlainPoint(double x, double y) { return {x, y, y, y}; }

// The throughput of groups that grow along one number, each with its proportional ideal.
XyChart DrawStrong(const std::vector<CellPointers>& groups, const CellLabels& labels, const std::string& count_name,
                   const std::string& rate, const CellNumber& of) {
  XyChart chart;
  chart.title = absl::StrCat("Strong scaling: ", rate, " over ", count_name);
  chart.x = CountAxis(count_name, Joined(groups), of);
  chart.y.label = rate;
  chart.y.kind = chart.x.kind;
  for (size_t i = 0; i < groups.size(); ++i) {
    const CellPointers& group = groups[i];
    ChartSeries series = SeriesOf(labels.Of(*group[0]), i, *group[0]);
    const double base = group[0]->Throughput().median, first = of(*group[0]);
    ChartGuide ideal{"in proportion", {}};
    for (const SweepCell* cell : group) {
      const Spread y = cell->Throughput();
      series.points.push_back(
          SpreadPoint(of(*cell), y, PointText(*cell, series.label, absl::StrCat(FigureText(y.median), " ", rate))));
      ideal.points.push_back(PlainPoint(of(*cell), base * of(*cell) / first));
    }
    chart.guides.push_back(std::move(ideal));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Where several configurations grow: how far from ideal they end.
std::string RangeSentence(const std::vector<CellPointers>& groups) {
  if (groups.size() < 2) return "";
  std::vector<double> shares;
  for (const CellPointers& group : groups) {
    const double gain = group.back()->Throughput().median / group.front()->Throughput().median;
    shares.push_back(gain * StagesOf(*group.front()) / StagesOf(*group.back()));
  }
  const Spread range = SpreadOf(shares);
  const std::string low = PercentText(range.low), high = PercentText(range.high);
  if (low == high) return absl::StrCat(" All reach ", high, " of growth in proportion with their most stages.");
  return absl::StrCat(" With their most stages they reach ", low, " to ", high, " of growth in proportion.");
}

void AddStrongScaling(const CellPointers& cells, const LoadKind& kind, std::vector<ReportFigure>* figures) {
  size_t left_out = 0;
  const std::vector<CellPointers> groups =
      FastestGroups(GrowingGroups(cells, {SweepField::kStages}, StagesOf), kMostSeries, &left_out);
  if (groups.empty()) return;
  const CellPointers shown = Joined(groups);
  const CellLabels labels(shown, {SweepField::kStages});
  const CellPointers& fastest = FastestGroup(groups);
  const std::string name = groups.size() == 1 ? "" : labels.Of(*fastest[0]);
  figures->push_back(
      MakeXyFigure(kind.prefix + "strong-throughput",
                   StrongSentence(fastest, name, kind) + RangeSentence(groups) + LeftOutSentence(left_out),
                   DrawStrong(groups, labels, "stages", kind.rate, StagesOf), shown));
}

// Over all cores, where stages and threads were both varied.
void AddCoreScaling(const CellPointers& cells, const LoadKind& kind, std::vector<ReportFigure>* figures) {
  std::vector<CellPointers> groups;
  for (const CellPointers& alike : GroupCells(cells, {SweepField::kStages, SweepField::kThreads})) {
    std::set<int64_t> thread_counts;
    for (const SweepCell* cell : alike) thread_counts.insert(cell->threads);
    if (thread_counts.size() < 2) continue;
    for (const CellPointers& group : GroupCells(alike, {SweepField::kThreads})) {
      CellPointers rising = Rising(group, CoresOf);
      if (!rising.empty()) groups.push_back(std::move(rising));
    }
  }
  if (std::none_of(groups.begin(), groups.end(), [](const CellPointers& group) { return Grows(group, CoresOf); })) {
    return;
  }
  size_t left_out = 0;
  groups = FastestGroups(std::move(groups), kMostSeries, &left_out);
  const CellPointers shown = Joined(groups);
  const SweepCell* best = *std::max_element(shown.begin(), shown.end(), [](const SweepCell* a, const SweepCell* b) {
    return a->Throughput().median < b->Throughput().median;
  });
  figures->push_back(
      MakeXyFigure(kind.prefix + "strong-cores",
                   absl::StrCat("The most, ", FigureText(best->Throughput().median), " ", kind.rate, ", comes from ",
                                FieldText(*best, SweepField::kStages), " of ", FieldText(*best, SweepField::kThreads),
                                best->stages == 1 ? "." : " each.", LeftOutSentence(left_out)),
                   DrawStrong(groups, CellLabels(shown, {SweepField::kThreads}), "cores", kind.rate, CoresOf), shown));
}

// Cells whose stages all have as many sequences, by that number.
std::map<double, CellPointers> ByWorkOfAStage(const CellPointers& group) {
  std::map<double, CellPointers> by_work;
  for (const SweepCell* cell : group) {
    if (cell->stages > 0 && cell->config.concurrency > 0) {
      by_work[static_cast<double>(cell->config.concurrency) / StagesOf(*cell)].push_back(cell);
    }
  }
  return by_work;
}

void AddWeakScaling(const CellPointers& cells, const LoadKind& kind, std::vector<ReportFigure>* figures) {
  std::vector<std::pair<double, CellPointers>> lines;  // of so many sequences a stage
  for (const CellPointers& group : GroupCells(cells, {SweepField::kStages, SweepField::kConcurrency})) {
    for (auto& [work, members] : ByWorkOfAStage(group)) {
      CellPointers rising = Rising(members, StagesOf);
      if (Grows(rising, StagesOf)) lines.emplace_back(work, std::move(rising));
    }
  }
  if (lines.empty()) return;
  const size_t left_out = lines.size() > kMostSeries ? lines.size() - kMostSeries : 0;
  lines.resize(lines.size() - left_out);
  CellPointers shown;
  for (const auto& [work, line] : lines) shown.insert(shown.end(), line.begin(), line.end());
  const std::vector<SweepField> along = {SweepField::kStages, SweepField::kConcurrency};
  const CellLabels labels(shown, along);
  const bool labelled = !VaryingFields(shown).empty() && GroupCells(shown, along).size() > 1;
  XyChart chart;
  chart.title = absl::StrCat("Weak scaling", kind.prefill ? " in prefill" : "", ": the same work for each stage");
  chart.x = CountAxis("stages", shown, StagesOf);
  chart.y.label = "% of the throughput a stage had with the fewest stages";
  chart.guides.push_back(
      {"nothing lost", {PlainPoint(chart.x.marks.front(), 100), PlainPoint(chart.x.marks.back(), 100)}});
  double best = 0;
  std::string sentence;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& [work, line] = lines[i];
    ChartSeries series = SeriesOf(
        absl::StrCat(FigureText(work), " at once a stage", labelled ? ", " + labels.Of(*line[0]) : ""), i, *line[0]);
    const double base = line[0]->Throughput().median / StagesOf(*line[0]);
    for (const SweepCell* cell : line) {
      const Spread y = cell->Throughput();
      const double scale = 100 / (StagesOf(*cell) * base);
      series.points.push_back(SpreadPoint(StagesOf(*cell), {y.median * scale, y.low * scale, y.high * scale, y.count},
                                          PointText(*cell, series.label, FigureText(y.median * scale) + " %")));
    }
    if (series.points.back().y > best) {
      best = series.points.back().y;
      sentence = absl::StrCat("With ", FigureText(work), " at once for each stage, ",
                              FieldText(*line.back(), SweepField::kStages), " keep ", PercentText(best / 100),
                              " of the throughput per stage of ", FieldText(*line.front(), SweepField::kStages), ".");
    }
    chart.series.push_back(std::move(series));
  }
  figures->push_back(
      MakeXyFigure(kind.prefix + "weak-scaling", sentence + LeftOutSentence(left_out), std::move(chart), shown));
}

// Tokens/s of one user, once the first one has come.
Spread UserRate(const SweepCell& cell) {
  return cell.Of([](const SweepPoint& run) { return run.result.itl_s.mean > 0 ? 1 / run.result.itl_s.mean : 0; });
}

// The most that guesses give over a run without them that is alike in all else, measured or simulated; nothing where no
// two are alike.
std::string GuessSentence(const CellPointers& shown, const CellLabels& labels, bool simulated) {
  const SweepCell *without = nullptr, *with = nullptr;
  double most = 0;
  const CellPointers of_world = Where(shown, [&](const SweepCell& cell) { return cell.simulated == simulated; });
  for (const CellPointers& alike : GroupCells(of_world, {SweepField::kSpeculate, SweepField::kAcceptance})) {
    const auto base = std::find_if(alike.begin(), alike.end(), [](const SweepCell* cell) { return !cell->guesses(); });
    if (base == alike.end()) continue;
    for (const SweepCell* cell : alike) {
      const double gain = UserRate(*cell).median / UserRate(**base).median;
      if (cell->guesses() && gain > most) most = gain, with = cell, without = *base;
    }
  }
  if (with == nullptr) return "";
  return absl::StrCat(simulated ? "Simulated, one" : "One", " user of ", FieldText(*with, SweepField::kStages), " has ",
                      FigureText(most), " times the tokens/s that there are without guesses (", labels.Of(*with),
                      "): ", FigureText(UserRate(*with).median), " against ", FigureText(UserRate(*without).median),
                      ". ");
}

// Of one request at a time. Without guesses a token takes the way through all stages, however many there are.
void AddOneUser(const CellPointers& cells, const LoadKind& kind, std::vector<ReportFigure>* figures) {
  const CellPointers alone = Where(cells, [](const SweepCell& cell) {
    return cell.config.concurrency == 1 && !cell.prefill_only() && UserRate(cell).median > 0;
  });
  if (std::none_of(alone.begin(), alone.end(), [](const SweepCell* cell) { return cell->guesses(); })) return;
  size_t left_out = 0;
  const std::vector<CellPointers> groups =
      FastestGroups(GrowingGroups(alone, {SweepField::kStages}, StagesOf), kMostSeries, &left_out);
  if (groups.empty()) return;
  const CellPointers shown = Joined(groups);
  const CellLabels labels(shown, {SweepField::kStages});
  XyChart chart;
  chart.title = "Tokens/s of one user over stages";
  chart.x = CountAxis("stages", shown, StagesOf);
  chart.y.label = kind.rate;
  for (size_t i = 0; i < groups.size(); ++i) {
    ChartSeries series = SeriesOf(labels.Of(*groups[i][0]), i, *groups[i][0]);
    for (const SweepCell* cell : groups[i]) {
      const Spread y = UserRate(*cell);
      series.points.push_back(SpreadPoint(
          StagesOf(*cell), y, PointText(*cell, series.label, absl::StrCat(FigureText(y.median), " ", kind.rate))));
    }
    chart.series.push_back(std::move(series));
  }
  const std::string gains = GuessSentence(shown, labels, false) + GuessSentence(shown, labels, true);
  figures->push_back(MakeXyFigure("one-user",
                                  absl::StrCat(gains, "The first token is not counted.", LeftOutSentence(left_out)),
                                  std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> ScalingFigures(const CellPointers& cells) {
  std::vector<ReportFigure> figures;
  for (const auto add : {AddOneUser, AddStrongScaling, AddWeakScaling, AddCoreScaling}) {
    for (const LoadKind& kind :
         {LoadKind{false, "", "output tokens/s"}, LoadKind{true, "prefill-", "prompt tokens/s"}}) {
      const CellPointers of_kind = Where(cells, [&](const SweepCell& cell) {
        return cell.prefill_only() == kind.prefill && !cell.runs.empty() && !cell.open_load();
      });
      if (!of_kind.empty()) add(of_kind, kind, &figures);
    }
  }
  return figures;
}

}  // namespace stagecoach
