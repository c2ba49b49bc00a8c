// Configurations that differ in one choice alone, side by side.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

ChartRow RowOf(const SweepCell& cell, SweepField field) {
  const Spread rate = cell.Throughput();
  ChartRow row;
  row.label = FieldText(cell, field);
  row.parts = {rate.median};
  row.low = rate.low, row.high = rate.high;
  row.hollow = cell.simulated;
  row.note = LatencyNote(cell);
  row.tooltip = absl::StrCat(row.label, ": ", row.note);
  return row;
}

void AddChoice(const CellPointers& cells, const ChoiceKind& kind, std::vector<ReportFigure>* figures) {
  std::vector<CellPointers> groups;
  for (CellPointers& group : GroupCells(cells, {kind.field})) {
    if (group.size() >= 2 && group.size() <= kMostChoices) groups.push_back(std::move(group));
  }
  size_t left_out = 0;
  groups = FastestGroups(std::move(groups), kMostComparisons, &left_out);
  if (groups.empty()) return;
  CellPointers shown;
  for (const CellPointers& group : groups) shown.insert(shown.end(), group.begin(), group.end());
  const CellLabels labels(shown, {kind.field});
  RowChart chart;
  chart.title = kind.title;
  chart.axis.label = cells[0]->prefill_only() ? "prompt tokens/s" : "output tokens/s";
  chart.parts = {{"", PartFill::kSolid}};
  for (const CellPointers& group : groups) {
    for (const SweepCell* cell : group) {
      ChartRow row = RowOf(*cell, kind.field);
      if (cell == group[0]) row.heading = labels.Of(*cell);
      chart.rows.push_back(std::move(row));
    }
  }
  const CellPointers& best = FastestGroup(groups);
  const SweepCell &fast = Fastest(best), &slow = Slowest(best);
  std::string sentence = absl::StrCat("Fastest is ", FieldText(fast, kind.field), ", with ",
                                      FigureText(fast.Throughput().median / slow.Throughput().median),
                                      " times the throughput of ", FieldText(slow, kind.field),
                                      groups.size() == 1 ? "" : absl::StrCat(" (", labels.Of(fast), ")"), ".");
  if (left_out > 0)
    absl::StrAppend(&sentence, " ", CountOf(static_cast<int64_t>(left_out), "slower comparison"),
                    " can be made from the table.");
  figures->push_back(MakeRowFigure(absl::StrCat(kind.id, cells[0]->prefill_only() ? "-prefill" : ""), sentence,
                                   std::move(chart), shown));
}

}  // namespace

std::vector<ReportFigure> ChoiceFigures(const CellPointers& cells) {
  std::vector<ReportFigure> figures;
  for (bool prefill : {false, true}) {
    CellPointers of_kind;
    std::copy_if(cells.begin(), cells.end(), std::back_inserter(of_kind), [&](const SweepCell* cell) {
      return cell->prefill_only() == prefill && cell->Throughput().median > 0;
    });
    if (of_kind.empty()) continue;
    for (const ChoiceKind& kind : kChoices) AddChoice(of_kind, kind, &figures);
  }
  return figures;
}

}  // namespace stagecoach
