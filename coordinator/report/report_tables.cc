#include "coordinator/report/report_tables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/shown_text.h"
#include "common/json/json_value.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {
namespace {

using CellValue = std::function<double(const SweepCell&)>;

std::string Card(const std::string& name, const std::string& figure, const std::string& unit, const std::string& rest) {
  return absl::StrCat("<div><dt>", EscapeMarkup(name), "</dt><dd><p><b>", EscapeMarkup(figure), "</b> ",
                      EscapeMarkup(unit), "</p>", EscapeMarkup(rest), "</dd></div>\n");
}

// The cell with the largest value above 0; nullptr if there is none.
const SweepCell* BestCell(const CellPointers& cells, const CellValue& value) {
  const auto rank = [&](const SweepCell& cell) {
    return std::make_tuple(!cell.simulated, !cell.prefill_only(), value(cell));
  };
  const SweepCell* foremost = nullptr;
  for (const SweepCell* cell : cells) {
    if (value(*cell) > 0 && (foremost == nullptr || rank(*cell) > rank(*foremost))) foremost = cell;
  }
  return foremost;
}

// Of the quantity, behind a card's configuration; empty where nothing was predicted.
std::string PredictedText(const SweepCell& cell, absl::string_view id) {
  for (const PredictedQuantity& quantity : PredictedQuantities()) {
    const auto ratio = RatioOf(cell, quantity);
    if (id == quantity.id && ratio.has_value()) {
      return absl::StrCat("; predicted ", FigureText(ratio->predicted * quantity.per_unit));
    }
  }
  return "";
}

std::string RateCard(const SweepCell& fastest, const CellLabels& labels) {
  const bool prefill = fastest.prefill_only();
  return Card("Highest throughput", FigureText(fastest.Throughput().median),
              prefill ? "prompt tokens/s" : "output tokens/s",
              labels.Of(fastest) + PredictedText(fastest, prefill ? "prefill-rate" : "output-rate"));
}

std::string TimeCard(const SweepCell& fastest) {
  const Spread bubble = fastest.Of(&SweepResult::bubble), floor = fastest.Of(&SweepResult::bubble_floor);
  if (fastest.runs[0]->stages.empty() || bubble.count == 0 || bubble.median < 0 || bubble.median > 1) return "";
  const std::string who = fastest.stages == 1 ? "its stage" : "its stages";
  return Card("Where its time went", PercentText(1 - bubble.median), absl::StrCat(who, " computed"),
              absl::StrCat(PercentText(bubble.median), " waiting with work in the pipeline; no less than ",
                           PercentText(floor.median), " was possible"));
}

std::string LatencyCard(const CellPointers& cells, const CellLabels& labels, const std::string& name,
                        const std::string& unit, Percentiles SweepResult::*sample, absl::string_view prediction) {
  const auto median_ms = [sample](const SweepCell& cell) { return cell.MsOf(sample, &Percentiles::p50).median; };
  const SweepCell* quickest =
      BestCell(cells, [&](const SweepCell& cell) { return median_ms(cell) > 0 ? 1 / median_ms(cell) : 0; });
  if (quickest == nullptr) return "";
  return Card(name, FigureText(median_ms(*quickest)), unit,
              labels.Of(*quickest) + PredictedText(*quickest, prediction));
}

std::string PredictionCard(const CellPointers& cells) {
  for (const bool simulated : {false, true}) {
    std::vector<double> apart;
    CellPointers compared;
    for (const SweepCell* cell : Where(cells, [&](const SweepCell& at) { return at.simulated == simulated; })) {
      for (const PredictedQuantity& quantity : PredictedQuantities()) {
        const auto ratio = RatioOf(*cell, quantity);
        if (!ratio.has_value()) continue;
        apart.push_back(ratio->factor() - 1);
        compared.push_back(cell);
      }
    }
    if (apart.empty()) continue;
    const Spread spread = SpreadOf(apart);
    return Card(simulated ? "Prediction off the simulation by" : "Prediction off by", PercentText(spread.median),
                "in the median",
                absl::StrCat("at most ", PercentText(spread.high), ", over ",
                             CountOf(static_cast<int64_t>(apart.size()), "comparison"),
                             "; by the planner's formulas from ", FactsText(compared)));
  }
  return "";
}

std::string CountCard(const CellPointers& cells) {
  int64_t measured = 0, simulated = 0, failed = 0;
  for (const SweepCell* cell : cells) {
    (cell->simulated ? simulated : measured) += static_cast<int64_t>(cell->runs.size());
    failed += static_cast<int64_t>(cell->failures.size());
  }
  std::vector<std::string> parts = {CountOf(static_cast<int64_t>(cells.size()), "configuration")};
  if (simulated > 0) parts.push_back(absl::StrCat(simulated, " simulated"));
  if (failed > 0) parts.push_back(absl::StrCat(failed, " failed"));
  return Card("Points", absl::StrCat(measured), "measured", absl::StrJoin(parts, ", "));
}

std::string SpreadText(const Spread& spread, double unit) {
  if (spread.count == 0) return "-";
  const std::string middle = FigureText(spread.median * unit), low = FigureText(spread.low * unit),
                    high = FigureText(spread.high * unit);
  return low == high ? middle : absl::StrCat(middle, " (", low, "\xE2\x80\x93", high, ")");
}

// "12 / 40": two percentiles in milliseconds.
std::string PercentilesText(const SweepCell& cell, Percentiles SweepResult::*sample) {
  const double median = cell.MsOf(sample, &Percentiles::p50).median;
  return median > 0 ? absl::StrCat(FigureText(median), " / ", FigureText(cell.MsOf(sample, &Percentiles::p99).median))
                    : "-";
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
    int64_t count = 0;
    for (const SweepPoint* run : cell.runs) count += run->result.*incident.count;
    if (count > 0) texts.push_back(CountOf(count, incident.noun));
  }
  if (!cell.failures.empty()) texts.push_back(CountOf(static_cast<int64_t>(cell.failures.size()), "failed run"));
  return texts.empty() ? "none" : absl::StrJoin(texts, ", ");
}

// The values that occur, once each and in order, joined.
std::string JoinedValues(const std::set<std::string>& values) {
  std::vector<std::string> texts;
  for (const std::string& value : values) {
    if (!value.empty()) texts.push_back(value);
  }
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

constexpr char kPrediction[] = "prediction.";

// A line's names and cells, in one order.
struct CsvLine {
  std::vector<std::string> names, cells;
};

void AddFields(const std::string& path, const Json& object, CsvLine* line) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      AddFields(absl::StrCat(path, name, "."), value, line);
      continue;
    }
    line->names.push_back(path + name);
    line->cells.push_back(
        value.is_string() ? absl::StrCat("\"", absl::StrReplaceAll(value.get<std::string>(), {{"\"", "\"\""}}), "\"")
                          : CompactJson(value));
  }
}

// Every point has the same fields; without a prediction its fields are empty.
CsvLine LineOf(SweepPoint point) {
  const bool predicted = point.prediction.has_value();
  if (!predicted) point.prediction.emplace();
  Json json = ReadJson(SweepPointLine(point));
  double compute_s = 0, send_s = 0, wait_s = 0;
  for (const SweepStage& stage : point.stages) {
    compute_s += stage.compute_s, send_s += stage.send_s, wait_s += stage.wait_s;
  }
  json["stages"] = {{"compute_s", compute_s}, {"send_s", send_s}, {"wait_s", wait_s}};
  CsvLine line;
  AddFields("", json, &line);
  for (size_t i = 0; i < line.names.size() && !predicted; ++i) {
    if (absl::StartsWith(line.names[i], kPrediction)) line.cells[i].clear();
  }
  return line;
}

}  // namespace

std::string CardsHtml(const CellPointers& cells) {
  const CellLabels labels(cells, {});
  std::string html = "<dl class=\"cards\">\n";
  const SweepCell* fastest = BestCell(cells, [](const SweepCell& cell) { return cell.Throughput().median; });
  if (fastest != nullptr) absl::StrAppend(&html, RateCard(*fastest, labels), TimeCard(*fastest));
  absl::StrAppend(
      &html, LatencyCard(cells, labels, "Shortest median gap", "ms between tokens", &SweepResult::itl_s, "itl"),
      LatencyCard(cells, labels, "Shortest median wait", "ms to the first token", &SweepResult::ttft_s, "ttft"),
      PredictionCard(cells), CountCard(cells), "</dl>\n");
  return html;
}

ReportTable ResultTable(const CellPointers& cells) {
  ReportTable table{
      .header = {"configuration", "origin", "runs", "output tokens/s", "prompt tokens/s", "TTFT p50 / p99, ms",
                 "ITL p50 / p99, ms", "goodput, requests/s", "bubble / floor, %", "rows/pass", "incidents"},
      .left = 2};
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    if (cell->runs.empty()) continue;
    const auto of = [&](double SweepResult::*value) { return cell->Of(value); };
    const bool bounded = cell->config.slo_ttft_s > 0 || cell->config.slo_itl_s > 0;
    const char* origin = cell->simulated ? "simulated" : cell->link_emulated() ? "emulated links" : "measured";
    table.rows.push_back({labels.Of(*cell), origin, absl::StrCat(cell->runs.size()),
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
  ReportTable table{.header = {"configuration", "predicted from", "quantity", "predicted", "measured",
                               "measured / predicted", "bottleneck"},
                    .left = 3};
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    const auto run = std::find_if(cell->runs.begin(), cell->runs.end(),
                                  [](const SweepPoint* point) { return point->prediction.has_value(); });
    if (run == cell->runs.end()) continue;
    const SweepPrediction& prediction = *(*run)->prediction;
    const std::string bottleneck =
        absl::StrCat(prediction.bottleneck_is_link ? "link behind stage " : "stage ", prediction.bottleneck_stage);
    bool first = true;
    const auto add = [&](const std::string& quantity, const std::string& predicted, const std::string& measured,
                         const std::string& ratio) {
      table.rows.push_back({first ? labels.Of(*cell) : "", first ? FactsText({cell}) : "", quantity, predicted,
                            measured, ratio, first ? bottleneck : ""});
      first = false;
    };
    for (const PredictedQuantity& quantity : PredictedQuantities()) {
      const std::optional<PredictionRatio> ratio = RatioOf(*cell, quantity);
      if (!ratio.has_value()) continue;
      add(quantity.axis, FigureText(ratio->predicted * quantity.per_unit),
          SpreadText(ratio->measured, quantity.per_unit), FigureText(ratio->ratio()));
    }
    const double bubble = cell->Of(&SweepResult::bubble).median;
    if (cell->stages > 1) add("bubble (predicted: in decode)", PercentText(prediction.bubble), PercentText(bubble), "");
  }
  return table;
}

ReportTable FailureTable(const CellPointers& cells) {
  ReportTable table{.header = {"configuration", "failed", "error"}, .left = 3};
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
  ReportTable table{.header = {"what", "value"}, .left = 2};
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
  table.rows.push_back({"model", JoinedValues(models)});
  table.rows.push_back({"Stagecoach", JoinedValues(versions)});
  if (!dates.empty())
    table.rows.push_back({"begun", *dates.begin() == *dates.rbegin()
                                       ? *dates.begin()
                                       : absl::StrCat(*dates.begin(), " to ", *dates.rbegin())});
  return table;
}

ReportTable MachineTable(const CellPointers& cells) {
  ReportTable table{.header = {"host of the coordinator", "processor", "stages on", "instruction sets", "cores",
                               "load before, at most"},
                    .left = 4};
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
                          JoinedValues(machine.hosts), JoinedValues(machine.isas), absl::StrCat(machine.cores),
                          FigureText(machine.load)});
  }
  return table;
}

std::string PointsCsv(absl::Span<const SweepPoint> points) {
  std::string text = absl::StrJoin(LineOf(points.empty() ? SweepPoint() : points[0]).names, ",") + "\r\n";
  for (const SweepPoint& point : points) absl::StrAppend(&text, absl::StrJoin(LineOf(point).cells, ","), "\r\n");
  return text;
}

}  // namespace stagecoach
