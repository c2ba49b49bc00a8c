#include "coordinator/report/report_tables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "common/json/json_value.h"
#include "coordinator/report/chart/svg_canvas.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/verdict.h"

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
  const bool due = floor.median >= 0.0005;
  return Card("Where its time went", PercentText(1 - bubble.median), absl::StrCat(who, " computed"),
              absl::StrCat(PercentText(bubble.median), " waiting with work in the pipeline",
                           due ? absl::StrCat("; this work leaves no less than ", PercentText(floor.median)) : ""));
}

std::string CoreHourCard(const CellPointers& cells, const CellLabels& labels) {
  const auto yield = [](const SweepCell& cell) { return cell.Of(&SweepResult::tokens_per_core_hour).median; };
  const SweepCell* best = BestCell(cells, yield);
  if (best == nullptr) return "";
  return Card("Most for its cores", FigureText(yield(*best)), "tokens per core-hour", labels.Of(*best));
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
                absl::StrCat("at worst ", PercentText(spread.high), ", over ",
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
  if (measured > 0 && simulated > 0) parts.push_back(absl::StrCat(simulated, " simulated"));
  if (failed > 0) parts.push_back(absl::StrCat(failed, " failed"));
  const bool none = measured == 0 && simulated > 0;
  return Card("Points", FigureText(static_cast<double>(none ? simulated : measured)), none ? "simulated" : "measured",
              absl::StrJoin(parts, ", "));
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

const char* OriginText(const SweepCell& cell) {
  return cell.simulated ? "simulated" : cell.link_emulated() ? "emulated links" : "measured";
}

// Whether it is a name that a sweep gives: "traces/<16 hexadecimal digits>.json". No other file is linked to, whatever
// a record says.
bool IsTraceName(absl::string_view name) {
  return absl::ConsumePrefix(&name, "traces/") && absl::ConsumeSuffix(&name, ".json") && name.size() == 16 &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

// As a part of an address.
std::string PercentEncoded(const std::string& path) {
  std::string text;
  for (char c : path) {
    const bool plain = absl::ascii_isalnum(c) || absl::StrContains("/-._~", c);
    absl::StrAppend(&text, plain ? std::string(1, c) : absl::StrFormat("%%%02X", static_cast<unsigned char>(c)));
  }
  return text;
}

// Of the first run that has one, as seen from the report; empty: none.
std::string TraceOf(const SweepCell& cell) {
  for (const SweepPoint* run : cell.runs) {
    if (!IsTraceName(run->trace)) continue;
    return absl::StrCat(cell.series_folder.empty() ? "." : PercentEncoded(cell.series_folder), "/", run->trace);
  }
  return "";
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

std::string QuotedCell(const std::string& text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

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
    line->cells.push_back(value.is_string() ? QuotedCell(value.get<std::string>()) : CompactJson(value));
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
      &html, CoreHourCard(cells, labels),
      LatencyCard(cells, labels, "Shortest median gap", "ms between tokens", &SweepResult::itl_s, "itl"),
      LatencyCard(cells, labels, "Shortest median wait", "ms to the first token", &SweepResult::ttft_s, "ttft"),
      PredictionCard(cells), CountCard(cells), "</dl>\n");
  return html;
}

ReportTable ResultTable(const CellPointers& cells) {
  const Baselines baselines(cells);
  ReportTable table{
      .header = {"configuration", "origin", "runs", "output tokens/s",
                 absl::StrCat("throughput against ", baselines.name()), "prompt tokens/s", "tokens per core-hour",
                 "TTFT p50 / p99, ms", "ITL p50 / p99, ms", "answer p50 / p99, ms", "goodput, requests/s",
                 "bubble / floor, %", "rows/pass", "incidents"},
      .left = 2};
  const CellLabels labels(cells, {});
  table.links_last =
      std::any_of(cells.begin(), cells.end(), [](const SweepCell* cell) { return !TraceOf(*cell).empty(); });
  if (table.links_last) table.header.push_back("trace");
  for (const SweepCell* cell : cells) {
    if (cell->runs.empty()) continue;
    const auto of = [&](double SweepResult::*value) { return cell->Of(value); };
    const bool bounded = cell->config.slo_ttft_s > 0 || cell->config.slo_itl_s > 0;
    const SweepCell* baseline = baselines.Of(*cell);
    const double yield = of(&SweepResult::tokens_per_core_hour).median;
    table.rows.push_back({labels.Of(*cell), OriginText(*cell), absl::StrCat(cell->runs.size()),
                          SpreadText(of(&SweepResult::output_tokens_per_s), 1),
                          baseline == nullptr ? (baselines.IsOne(*cell) ? "baseline" : "-")
                                              : TimesText(cell->Throughput().median / baseline->Throughput().median),
                          FigureText(of(&SweepResult::prompt_tokens_per_s).median), yield > 0 ? FigureText(yield) : "-",
                          PercentilesText(*cell, &SweepResult::ttft_s), PercentilesText(*cell, &SweepResult::itl_s),
                          PercentilesText(*cell, &SweepResult::latency_s),
                          bounded ? FigureText(of(&SweepResult::goodput_requests_per_s).median) : "-",
                          absl::StrCat(FigureText(100 * of(&SweepResult::bubble).median), " / ",
                                       FigureText(100 * of(&SweepResult::bubble_floor).median)),
                          FigureText(of(&SweepResult::rows_per_pass).median), IncidentsText(*cell)});
    if (table.links_last) table.rows.back().push_back(TraceOf(*cell));
  }
  return table;
}

ReportTable ComparisonTable(const CellPointers& cells) {
  ReportTable table;
  if (cells.empty() || std::all_of(cells.begin(), cells.end(),
                                   [&](const SweepCell* cell) { return cell->series == cells[0]->series; })) {
    return table;
  }
  const Baselines baselines(cells);
  const std::string& name = baselines.name();
  table = {.header = {"configuration", "origin", "tokens/s", "in " + name, "change", "beyond the scatter", "TTFT p50",
                      "ITL p50", "tokens per core-hour"},
           .left = 2};
  const CellLabels labels(cells, {});
  for (const SweepCell* cell : cells) {
    const SweepCell* baseline = baselines.Of(*cell);
    if (baseline == nullptr) continue;
    const Spread now = cell->Throughput(), before = baseline->Throughput();
    const bool apart = now.low > before.high || before.low > now.high;
    const bool repeated = std::min(now.count, before.count) > 1;
    const auto change = [](double to, double from) { return to > 0 && from > 0 ? ChangeText(to / from) : "-"; };
    const auto median = [&](const SweepCell& of, Percentiles SweepResult::*sample) {
      return of.MsOf(sample, &Percentiles::p50).median;
    };
    const auto yield = [](const SweepCell& of) { return of.Of(&SweepResult::tokens_per_core_hour).median; };
    table.rows.push_back({labels.Of(*cell), OriginText(*cell), SpreadText(now, 1), SpreadText(before, 1),
                          change(now.median, before.median), repeated ? (apart ? "yes" : "no") : "one run each",
                          change(median(*cell, &SweepResult::ttft_s), median(*baseline, &SweepResult::ttft_s)),
                          change(median(*cell, &SweepResult::itl_s), median(*baseline, &SweepResult::itl_s)),
                          change(yield(*cell), yield(*baseline))});
  }
  return table;
}

ReportTable PredictionTable(const CellPointers& cells) {
  ReportTable table{.header = {"configuration", "origin", "predicted from", "quantity", "predicted", "came out",
                               "came out / predicted", "bottleneck"},
                    .left = 4};
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
      table.rows.push_back({first ? labels.Of(*cell) : "", first ? OriginText(*cell) : "",
                            first ? FactsText({cell}) : "", quantity, predicted, measured, ratio,
                            first ? bottleneck : ""});
      first = false;
    };
    for (const PredictedQuantity& quantity : PredictedQuantities()) {
      const std::optional<PredictionRatio> ratio = RatioOf(*cell, quantity);
      if (!ratio.has_value()) continue;
      add(quantity.axis, FigureText(ratio->predicted * quantity.per_unit),
          SpreadText(ratio->measured, quantity.per_unit), FigureText(ratio->ratio()));
    }
    const double bubble = cell->Of(&SweepResult::bubble).median;
    if (cell->stages < 2) continue;
    add("bubble (predicted: in decode)", PercentText(prediction.bubble), PercentText(bubble), "");
    const std::optional<BubbleShares> causes = CausesOf(*cell);
    if (!causes.has_value()) continue;
    add("\xE2\x80\x93 too few requests", PercentText(prediction.bubble_few), PercentText(causes->few), "");
    add("\xE2\x80\x93 uneven stages", PercentText(prediction.bubble_imbalance), PercentText(causes->uneven), "");
    add("\xE2\x80\x93 links and coordinator", PercentText(prediction.bubble_hop), PercentText(causes->links), "");
    if (causes->voids > 0) add("\xE2\x80\x93 wrong guesses", "", PercentText(causes->voids), "");
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
    if (std::find(varying.begin(), varying.end(), field) != varying.end()) continue;
    if (std::string text = FieldText(*cells[0], field); !text.empty()) texts.push_back(std::move(text));
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
        versions.insert(point->config.program_version);
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

std::string PointsCsv(absl::Span<const SweepSeries> series) {
  const bool several = series.size() > 1;
  std::string text = absl::StrCat(several ? "series," : "", absl::StrJoin(LineOf(SweepPoint()).names, ","), "\r\n");
  for (const SweepSeries& one : series) {
    for (const SweepPoint& point : one.points) {
      absl::StrAppend(&text, several ? QuotedCell(one.label) + "," : "", absl::StrJoin(LineOf(point).cells, ","),
                      "\r\n");
    }
  }
  return text;
}

}  // namespace stagecoach
