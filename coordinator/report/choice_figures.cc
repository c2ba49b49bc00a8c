// Configurations that differ in one choice alone, side by side.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/report/report_figure.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr size_t kMostComparisons = 4;  // groups of one figure
constexpr size_t kMostChoices = 8;      // of one group

struct ChoiceKind {
  SweepField field;
  const char* id;
  const char* title;
};
constexpr ChoiceKind kChoices[] = {
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

const SweepCell& Fastest(const CellPointers& group) {
  return **std::max_element(group.begin(), group.end(), [](const SweepCell* a, const SweepCell* b) {
    return a->Throughput().median < b->Throughput().median;
  });
}

const SweepCell& Slowest(const CellPointers& group) {
  return **std::min_element(group.begin(), group.end(), [](const SweepCell* a, const SweepCell* b) {
    return a->Throughput().median < b->Throughput().median;
  });
}

std::string LatencyNote(const SweepCell& cell) {
  const double itl = cell.Of([](const SweepPoint& point) { return point.result.itl_s.p50; }).median;
  const double tail = cell.Of([](const SweepPoint& point) { return point.result.itl_s.p99; }).median;
  std::string note = FigureText(cell.Throughput().median) + " /s";
  if (itl > 0) absl::StrAppend(&note, "; ITL ", FigureText(itl * 1e3), ", p99 ", FigureText(tail * 1e3), " ms");
  return note;
}

ChartRow RowOf(const SweepCell& cell, const ChoiceKind& kind) {
  ChartRow row = SpreadRow(cell, "", cell.Throughput());
  row.label = TextOf(cell, kind);
  row.note = LatencyNote(cell);
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
  CellPointers shown;
  for (const CellPointers& group : groups) shown.insert(shown.end(), group.begin(), group.end());
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

std::vector<ReportFigure> ChoiceFigures(const CellPointers& cells) {
  std::vector<GainAndFigure> choices;
  for (bool prefill : {false, true}) {
    CellPointers of_kind;
    std::copy_if(cells.begin(), cells.end(), std::back_inserter(of_kind), [&](const SweepCell* cell) {
      return cell->prefill_only() == prefill && cell->Throughput().median > 0;
    });
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
