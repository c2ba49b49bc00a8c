#include "coordinator/report/report_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/report/prediction_ratio.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

std::string SpreadText(const Spread& spread, double unit) {
  if (spread.count == 0) return "-";
  const std::string middle = FigureText(spread.median * unit), low = FigureText(spread.low * unit),
                    high = FigureText(spread.high * unit);
  return low == high ? middle : absl::StrCat(middle, " (", low, "\xE2\x80\x93", high, ")");
}

// "12 / 40": two percentiles in milliseconds.
std::string PercentilesText(const SweepCell& cell, Percentiles SweepResult::*sample) {
  const Spread median = cell.Of([&](const SweepPoint& point) { return 1e3 * (point.result.*sample).p50; });
  const Spread tail = cell.Of([&](const SweepPoint& point) { return 1e3 * (point.result.*sample).p99; });
  return median.median > 0 ? absl::StrCat(FigureText(median.median), " / ", FigureText(tail.median)) : "-";
}

int64_t SumOf(const SweepCell& cell, int64_t SweepResult::*count) {
  int64_t sum = 0;
  for (const SweepPoint* run : cell.runs) sum += run->result.*count;
  return sum;
}

std::string OriginText(const SweepCell& cell) {
  if (cell.simulated) return "simulated";
  return cell.link_emulated() ? "emulated links" : "measured";
}

// What went otherwise than meant, over all repetitions.
std::string IncidentsText(const SweepCell& cell) {
  std::vector<std::string> texts;
  const struct {
    int64_t SweepResult::*count;
    const char* noun;
  } kIncidents[] = {{&SweepResult::failed, "failed request"},
                    {&SweepResult::unfinished, "unfinished request"},
                    {&SweepResult::preemptions, "preemption"},
                    {&SweepResult::relaunches, "relaunch"}};
  for (const auto& incident : kIncidents) {
    if (const int64_t count = SumOf(cell, incident.count); count > 0) texts.push_back(CountOf(count, incident.noun));
  }
  if (!cell.failures.empty()) texts.push_back(CountOf(static_cast<int64_t>(cell.failures.size()), "failed run"));
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

std::string PredictedBottleneck(const SweepPrediction& prediction) {
  return absl::StrCat(prediction.bottleneck_is_link ? "link behind stage " : "stage ", prediction.bottleneck_stage);
}

// The values that occur, once each and in order, joined.
std::string Joined(const std::set<std::string>& values) {
  std::vector<std::string> texts;
  for (const std::string& value : values) {
    if (!value.empty()) texts.push_back(value);
  }
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

}  // namespace

ReportTable ResultTable(const CellPointers& cells) {
  ReportTable table;
  table.header = {"configuration",
                  "origin",
                  "runs",
                  "output tokens/s",
                  "prompt tokens/s",
                  "TTFT p50 / p99, ms",
                  "ITL p50 / p99, ms",
                  "goodput, requests/s",
                  "bubble / floor, %",
                  "rows/pass",
                  "incidents"};
  table.left = 2;
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    if (cell->runs.empty()) continue;
    const auto of = [&](double SweepResult::*value) {
      return cell->Of([&](const SweepPoint& point) { return point.result.*value; });
    };
    const bool bounded = cell->config.slo_ttft_s > 0 || cell->config.slo_itl_s > 0;
    table.rows.push_back({labels.Of(*cell), OriginText(*cell), absl::StrCat(cell->runs.size()),
                          SpreadText(of(&SweepResult::output_tokens_per_s), 1),
                          FigureText(of(&SweepResult::prompt_tokens_per_s).median),
                          PercentilesText(*cell, &SweepResult::ttft_s), PercentilesText(*cell, &SweepResult::itl_s),
                          bounded ? FigureText(of(&SweepResult::goodput_requests_per_s).median) : "-",
                          absl::StrCat(FigureText(100 * of(&SweepResult::bubble).median), " / ",
                                       FigureText(100 * of(&SweepResult::bubble_floor).median)),
                          FigureText(of(&SweepResult::rows_per_pass).median), IncidentsText(*cell)});
  }
  return table;
}

ReportTable PredictionTable(const CellPointers& cells) {
  ReportTable table;
  table.header = {"configuration", "predicted from",       "quantity",  "predicted",
                  "measured",      "measured / predicted", "bottleneck"};
  table.left = 3;
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    const auto run = std::find_if(cell->runs.begin(), cell->runs.end(),
                                  [](const SweepPoint* point) { return point->prediction.has_value(); });
    if (run == cell->runs.end()) continue;
    const SweepPrediction& prediction = *(*run)->prediction;
    bool first = true;
    const auto add = [&](const std::string& quantity, const std::string& predicted, const std::string& measured,
                         const std::string& ratio) {
      table.rows.push_back({first ? labels.Of(*cell) : "", first ? FactsText({cell}) : "", quantity, predicted,
                            measured, ratio, first ? PredictedBottleneck(prediction) : ""});
      first = false;
    };
    for (const PredictedQuantity& quantity : PredictedQuantities()) {
      const std::optional<PredictionRatio> ratio = RatioOf(*cell, quantity);
      if (!ratio.has_value()) continue;
      const Spread measured = ratio->measured;
      add(quantity.axis, FigureText(ratio->predicted * quantity.per_unit), SpreadText(measured, quantity.per_unit),
          FigureText(ratio->ratio()));
    }
    const double bubble = cell->Of([](const SweepPoint& point) { return point.result.bubble; }).median;
    if (cell->stages > 1) add("bubble (predicted: in decode)", PercentText(prediction.bubble), PercentText(bubble), "");
  }
  return table;
}

ReportTable FailureTable(const CellPointers& cells) {
  ReportTable table;
  table.header = {"configuration", "failed", "error"};
  table.left = 3;
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    std::map<std::string, size_t> counts;  // by error
    for (const SweepPoint* point : cell->failures) ++counts[point->error];
    for (const auto& [error, count] : counts) {
      table.rows.push_back(
          {labels.Of(*cell), absl::StrCat(count, " of ", cell->runs.size() + cell->failures.size(), " runs"), error});
    }
  }
  return table;
}

ReportTable CommonTable(const CellPointers& cells) {
  ReportTable table;
  table.header = {"what", "value"};
  table.left = 2;
  if (cells.empty()) return table;
  const std::vector<SweepField> varying = VaryingFields(cells);
  std::vector<std::string> texts;
  for (int i = 0; i < kSweepFields; ++i) {
    const SweepField field = static_cast<SweepField>(i);
    if (std::find(varying.begin(), varying.end(), field) == varying.end()) texts.push_back(FieldText(*cells[0], field));
  }
  table.rows.push_back({"all points", absl::StrJoin(texts, ", ")});
  const std::vector<std::string> usual = UsualTexts(cells);
  if (!usual.empty()) table.rows.push_back({"unless said otherwise", absl::StrJoin(usual, ", ")});
  std::set<std::string> models, versions, dates;
  for (const SweepCell* cell : cells) {
    for (const std::vector<const SweepPoint*>* runs : {&cell->runs, &cell->failures}) {
      for (const SweepPoint* point : *runs) {
        const SweepOrigin& origin = point->origin;
        models.insert(
            absl::StrCat(origin.model_type.empty() ? point->config.model : origin.model_type,
                         origin.model_bytes > 0 ? absl::StrCat(" (", BytesText(origin.model_bytes), ")") : ""));
        versions.insert(origin.program_version);
        dates.insert(origin.started_at);
      }
    }
  }
  dates.erase("");
  table.rows.push_back({"model", Joined(models)});
  table.rows.push_back({"Stagecoach", Joined(versions)});
  if (!dates.empty())
    table.rows.push_back({"begun", *dates.begin() == *dates.rbegin()
                                       ? *dates.begin()
                                       : absl::StrCat(*dates.begin(), " to ", *dates.rbegin())});
  return table;
}

ReportTable MachineTable(const CellPointers& cells) {
  ReportTable table;
  table.header = {"host of the coordinator", "processor", "stages on",
                  "instruction sets",        "cores",     "load before, at most"};
  table.left = 4;
  struct Machine {
    std::string processor;
    int64_t cores = 0;
    double load = 0;
    std::set<std::string> hosts, isas;
  };
  std::map<std::string, Machine> machines;
  for (const SweepCell* cell : cells) {
    if (cell->simulated) continue;
    for (const SweepPoint* point : cell->runs) {
      const SweepOrigin& origin = point->origin;
      Machine& machine = machines[origin.host];
      machine.processor = origin.processor;
      machine.cores = std::max(machine.cores, origin.cores);
      machine.load = std::max(machine.load, origin.load_average);
      for (const SweepStage& stage : point->stages) {
        machine.hosts.insert(stage.host);
        machine.isas.insert(stage.isa);
      }
    }
  }
  for (const auto& [host, machine] : machines) {
    table.rows.push_back({host.empty() ? "-" : host, machine.processor.empty() ? "-" : machine.processor,
                          Joined(machine.hosts), Joined(machine.isas), absl::StrCat(machine.cores),
                          FigureText(machine.load)});
  }
  return table;
}

}  // namespace stagecoach
