// What is laid side by side: a prediction and what came out, and configurations that differ in one choice alone.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr double kBand = 0.1;  // either side of the diagonal

// `what`: "measured" or "simulated".
std::string RatioSentence(const std::vector<double>& ratios, absl::string_view what) {
  const Spread spread = SpreadOf(ratios);
  const auto near = std::count_if(ratios.begin(), ratios.end(),
                                  [](double ratio) { return ratio >= 1 - kBand && ratio <= 1 + kBand; });
  const std::string median = absl::StrCat("he ratio of ", what, " to predicted is ", FigureText(spread.median));
  if (ratios.size() == 1) return absl::StrCat("T", median, ".");
  const std::string low = FigureText(spread.low), high = FigureText(spread.high);
  const std::string who = near == 0 ? "None" : absl::StrCat(near);
  return absl::StrCat(who, " of ", ratios.size(), near < 2 ? " is" : " are", " within 10 % of the prediction; t",
                      median, " in the median", low == high ? "." : absl::StrCat(" (", low, " to ", high, ")."));
}

// The series of each cell: how many stages, and what was not real; without the stages where those are too many.
std::vector<std::string> SeriesNames(const CellPointers& cells) {
  std::vector<std::string> names;
  for (bool with_stages : {true, false}) {
    names.clear();
    for (const SweepCell* cell : cells) {
      const std::string origin = cell->simulated ? "simulated" : cell->link_emulated() ? "emulated links" : "";
      const std::string stages = with_stages ? FieldText(*cell, SweepField::kStages) : "";
      names.push_back(absl::StrCat(stages, stages.empty() || origin.empty() ? "" : ", ", origin));
      if (names.back().empty()) names.back() = "measured";
    }
    if (std::set<std::string>(names.begin(), names.end()).size() <= static_cast<size_t>(kMostSeries)) break;
  }
  return names;
}

void AddBand(double low, double high, XyChart* chart) {
  std::vector<ChartPoint> diagonal;
  for (double x : {low, high}) diagonal.push_back({x, x, x * (1 - kBand), x * (1 + kBand)});
  chart->bands.push_back({"within 10 %", diagonal});
  chart->guides.push_back({"as predicted", std::move(diagonal)});
}

void AddScatter(const CellPointers& cells, const PredictedQuantity& quantity, std::vector<ReportFigure>* figures) {
  const CellPointers shown = Where(cells, [&](const SweepCell& cell) { return RatioOf(cell, quantity).has_value(); });
  if (shown.empty()) return;
  const CellLabels labels(shown, {});
  XyChart chart;
  const bool measured = std::any_of(shown.begin(), shown.end(), [](const SweepCell* cell) { return !cell->simulated; });
  chart.title = absl::StrCat(measured ? "Prediction and measurement: " : "Prediction and simulation: ", quantity.name);
  chart.square = true;
  chart.x.label = absl::StrCat("predicted ", quantity.axis);
  const char* what = measured ? "measured" : "simulated";
  const bool both =
      measured && std::any_of(shown.begin(), shown.end(), [](const SweepCell* cell) { return cell->simulated; });
  chart.y.label = absl::StrCat(both ? "measured, or simulated where hollow:" : what, " ", quantity.axis);
  const std::vector<std::string> kinds = SeriesNames(shown);
  std::map<std::string, size_t> places;  // of series
  std::vector<double> ratios;
  double low = 0, high = 0;
  for (size_t i = 0; i < shown.size(); ++i) {
    const SweepCell* cell = shown[i];
    const PredictionRatio ratio = *RatioOf(*cell, quantity);
    const auto [place, fresh] = places.emplace(kinds[i], chart.series.size());
    if (fresh) chart.series.push_back(SeriesOf(kinds[i], place->second, *cell));
    chart.series[place->second].joined = false;
    const double unit = quantity.per_unit;
    const Spread y = {ratio.measured.median * unit, ratio.measured.low * unit, ratio.measured.high * unit,
                      ratio.measured.count};
    chart.series[place->second].points.push_back(SpreadPoint(
        ratio.predicted * unit, y,
        absl::StrCat(labels.Of(*cell), ": predicted ", FigureText(ratio.predicted * unit), ", ",
                     cell->simulated ? "simulated " : "measured ", FigureText(y.median), " ", quantity.axis)));
    if (measured != cell->simulated) ratios.push_back(ratio.ratio());
    for (double value : {ratio.predicted * unit, y.low, y.high}) {
      low = low == 0 ? value : std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (low > 0 && high > kWideRange * low) chart.x.kind = chart.y.kind = ScaleKind::kLog;
  AddBand(chart.x.kind == ScaleKind::kLog ? low * 0.8 : 0, high * 1.05, &chart);
  const std::string sentence =
      absl::StrCat(RatioSentence(ratios, what), " Predicted by the planner's formulas from ", FactsText(shown), ".");
  figures->push_back(MakeXyFigure(absl::StrCat("prediction-", quantity.id), sentence, std::move(chart), shown));
}

constexpr size_t kMostComparisons = 4;  // groups of one figure
constexpr size_t kMostChoices = 8;      // of one group

struct ChoiceKind {
  SweepField field;
  const char* id;
  const char* title;
};
constexpr ChoiceKind kChoices[] = {
    {SweepField::kSeries, "directories", "Directories compared"},
    {SweepField::kStages, "cuts", "As many cores, cut into stages"},
    {SweepField::kPolicy, "policies", "Policies compared"},
    {SweepField::kDecodeGroups, "decode-groups", "Decode groups compared"},
    {SweepField::kMicroBatches, "micro-batches", "Micro-batches in flight compared"},
    {SweepField::kPrefillChunk, "chunks", "Chunks of a prompt compared"},
    {SweepField::kChunking, "chunking", "Ways to cut a prompt compared"},
    {SweepField::kWireType, "wire-types", "Types on the wire compared"},
    {SweepField::kKvType, "kv-types", "Types of the KV cache compared"},
    {SweepField::kBlockTokens, "block-sizes", "Block sizes compared"},
    {SweepField::kLink, "links", "Links compared"},
    {SweepField::kIsa, "instruction-sets", "Instruction sets compared"},
    {SweepField::kCpuBind, "binding", "Ways to bind threads compared"},
    {SweepField::kModel, "models", "Models compared"},
};

// The fields that a choice varies: to cut the same cores into more stages is to give each of them fewer threads.
std::vector<SweepField> FieldsOf(const ChoiceKind& kind) {
  if (kind.field == SweepField::kStages) return {SweepField::kStages, SweepField::kThreads};
  return {kind.field};
}

std::string TextOf(const SweepCell& cell, const ChoiceKind& kind) {
  std::vector<std::string> texts;
  for (SweepField field : FieldsOf(kind)) texts.push_back(FieldText(cell, field));
  return absl::StrJoin(texts, " \xC3\x97 ");
}

// Cells that differ in the choice alone.
std::vector<CellPointers> ComparedGroups(const CellPointers& cells, const ChoiceKind& kind) {
  std::vector<CellPointers> groups;
  for (const CellPointers& alike : GroupCells(cells, FieldsOf(kind))) {
    std::map<int64_t, CellPointers> by_cores;
    for (const SweepCell* cell : alike) by_cores[kind.field == SweepField::kStages ? cell->cores() : 0].push_back(cell);
    for (auto& [cores, group] : by_cores) {
      if (group.size() >= 2 && group.size() <= kMostChoices) groups.push_back(std::move(group));
    }
  }
  return groups;
}

bool IsSlower(const SweepCell* a, const SweepCell* b) { return a->Throughput().median < b->Throughput().median; }
const SweepCell& Fastest(const CellPointers& group) { return **std::max_element(group.begin(), group.end(), IsSlower); }
const SweepCell& Slowest(const CellPointers& group) { return **std::min_element(group.begin(), group.end(), IsSlower); }

ChartRow RowOf(const SweepCell& cell, const ChoiceKind& kind) {
  ChartRow row = SpreadRow(cell, "", cell.Throughput());
  row.label = TextOf(cell, kind);
  row.note = FigureText(cell.Throughput().median) + " /s";
  if (const double itl_ms = cell.MsOf(&SweepResult::itl_s, &Percentiles::p50).median; itl_ms > 0) {
    absl::StrAppend(&row.note, "; ITL ", FigureText(itl_ms), ", p99 ",
                    FigureText(cell.MsOf(&SweepResult::itl_s, &Percentiles::p99).median), " ms");
  }
  row.tooltip = absl::StrCat(row.label, ": ", row.note);
  return row;
}

// Who is fastest of a group, and whether its repetitions bear that out.
std::string ChoiceSentence(const CellPointers& group, const ChoiceKind& kind, const std::string& label) {
  const SweepCell &fast = Fastest(group), &slow = Slowest(group);
  const Spread most = fast.Throughput(), least = slow.Throughput();
  const std::string where = label.empty() ? "" : absl::StrCat(" (", label, ")");
  if (most.median == least.median) return absl::StrCat("All have the same throughput", where, ".");
  const char* doubt = "";
  if (most.low <= least.high) {
    doubt = "; their repetitions scatter by more than that";
  } else if (!fast.simulated && std::min(most.count, least.count) < 2) {
    doubt = "; one run tells little";
  }
  return absl::StrCat("Fastest is ", TextOf(fast, kind), ", with ", FigureText(most.median / least.median),
                      " times the throughput of ", TextOf(slow, kind), where, doubt, ".");
}

using GainAndFigure = std::pair<double, ReportFigure>;  // by what factor the choice matters

void AddChoice(const CellPointers& cells, const ChoiceKind& kind, std::vector<GainAndFigure>* figures) {
  size_t left_out = 0;
  const std::vector<CellPointers> groups = FastestGroups(ComparedGroups(cells, kind), kMostComparisons, &left_out);
  if (groups.empty()) return;
  const CellPointers shown = Joined(groups);
  const CellLabels labels(shown, FieldsOf(kind));
  RowChart chart;
  chart.title = kind.title;
  chart.axis.label = cells[0]->prefill_only() ? "prompt tokens/s" : "output tokens/s";
  chart.parts = {{"", PartFill::kSolid}};
  for (const CellPointers& group : groups) {
    for (const SweepCell* cell : group) {
      ChartRow row = RowOf(*cell, kind);
      if (cell == group[0]) row.heading = labels.Of(*cell);
      chart.rows.push_back(std::move(row));
    }
  }
  const CellPointers& best = FastestGroup(groups);
  std::string sentence = ChoiceSentence(best, kind, groups.size() == 1 ? "" : labels.Of(*best[0]));
  if (left_out > 0)
    absl::StrAppend(&sentence, " ", CountOf(static_cast<int64_t>(left_out), "slower comparison"),
                    " can be made from the table.");
  const double gain = Fastest(best).Throughput().median / Slowest(best).Throughput().median;
  figures->emplace_back(gain, MakeRowFigure(absl::StrCat(kind.id, cells[0]->prefill_only() ? "-prefill" : ""), sentence,
                                            std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> PredictionFigures(const CellPointers& cells) {
  std::vector<ReportFigure> figures;
  for (const PredictedQuantity& quantity : PredictedQuantities()) AddScatter(cells, quantity, &figures);
  return figures;
}

std::vector<ReportFigure> ChoiceFigures(const CellPointers& cells) {
  std::vector<GainAndFigure> choices;
  for (bool prefill : {false, true}) {
    const CellPointers of_kind = Where(
        cells, [&](const SweepCell& cell) { return cell.prefill_only() == prefill && cell.Throughput().median > 0; });
    if (of_kind.empty()) continue;
    for (const ChoiceKind& kind : kChoices) AddChoice(of_kind, kind, &choices);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const GainAndFigure& a, const GainAndFigure& b) { return a.first > b.first; });
  std::vector<ReportFigure> figures;
  figures.reserve(choices.size());
  for (GainAndFigure& choice : choices) figures.push_back(std::move(choice.second));
  return figures;
}

}  // namespace stagecoach
