#include "coordinator/report/report_page.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/report/prediction_ratio.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/report_text.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {
namespace {

constexpr size_t kMostOpenCommands = 8;  // more are folded up

constexpr char kStyle[] = R"css(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 62rem; background: #fff; color: #222;
  font: 16px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .4rem; padding-top: .5rem; border-top: 2px solid #222; }
h3 { font-size: 1rem; margin: 0 0 .15rem; line-height: 1.3; }
p { margin: .3rem 0 .6rem; max-width: 46rem; overflow-wrap: anywhere; }
nav { margin: .6rem 0 1rem; font-size: .9rem; }
nav a { margin-right: 1.1rem; white-space: nowrap; }
a { color: #0b559f; }
.note { border: 2px solid #222; padding: .5rem .8rem; font-weight: bold; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .8rem; margin: 1rem 0; padding: 0; }
.cards div { border: 1px solid #999; border-radius: 6px; padding: .6rem .8rem; overflow-wrap: anywhere; }
.cards dt { font-size: .85rem; color: #555; }
.cards dd { margin: 0; font-size: .85rem; }
.cards p { margin: 0; font-size: .95rem; }
.cards b { font-size: 1.45rem; line-height: 1.25; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 2rem 2.4rem;
  align-items: start; margin-top: 1rem; }
figure { margin: 0; max-width: 30rem; min-width: 0; }
figcaption p { font-size: .92rem; color: #333; margin: 0 0 .6rem; }
figure svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .84rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #ccc; vertical-align: top; }
th { border-bottom: 2px solid #222; vertical-align: bottom; }
th.l, td.l { text-align: left; }
td { white-space: nowrap; }
td.l, td:last-child { min-width: 6rem; white-space: normal; overflow-wrap: anywhere; }
td.l:first-child { min-width: 10.5rem; }
pre { font: .8rem/1.45 'Liberation Mono', Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0;
  padding: .5rem .7rem; border-left: 3px solid #999; }
summary { cursor: pointer; }
@media (max-width: 30rem) { body { padding: .8rem .6rem 2rem; } h1 { font-size: 1.35rem; } }
@page { margin: 15mm 12mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  .cards { grid-template-columns: repeat(4, 1fr); }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem 1.4rem; }
  figure, .cards div, tr, pre { break-inside: avoid; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
}
)css";

std::string Paragraph(const std::string& text) {
  return text.empty() ? "" : absl::StrCat("<p>", EscapeMarkup(text), "</p>\n");
}

std::string TableHtml(const ReportTable& table) {
  std::string html = "<div class=\"wide\"><table>\n<thead><tr>";
  const auto class_of = [&](size_t column) { return column < table.left ? " class=\"l\"" : ""; };
  for (size_t i = 0; i < table.header.size(); ++i) {
    absl::StrAppend(&html, "<th scope=\"col\"", class_of(i), ">", EscapeMarkup(table.header[i]), "</th>");
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppend(&html, "<td", class_of(i), ">", EscapeMarkup(row[i]), "</td>");
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string FigureHtml(const ReportFigure& figure) {
  return absl::StrCat("<figure id=\"", EscapeMarkup(figure.id), "\">\n<figcaption><h3>", EscapeMarkup(figure.title),
                      "</h3>", Paragraph(figure.sentence), "</figcaption>\n", figure.page_svg, "</figure>\n");
}

std::string Card(const std::string& name, const std::string& figure, const std::string& unit, const std::string& rest) {
  return absl::StrCat("<div><dt>", EscapeMarkup(name), "</dt><dd><p><b>", EscapeMarkup(figure), "</b> ",
                      EscapeMarkup(unit), "</p>", EscapeMarkup(rest), "</dd></div>\n");
}

std::string PredictionCard(const CellPointers& cells) {
  for (const bool simulated : {false, true}) {
    std::vector<double> apart;
    for (const SweepCell* cell : cells) {
      if (cell->simulated != simulated) continue;
      for (const PredictedQuantity& quantity : PredictedQuantities()) {
        if (const auto ratio = RatioOf(*cell, quantity); ratio.has_value()) apart.push_back(ratio->factor() - 1);
      }
    }
    if (apart.empty()) continue;
    const Spread spread = SpreadOf(apart);
    return Card(simulated ? "Prediction off the simulation by" : "Prediction off by", PercentText(spread.median),
                "in the median",
                absl::StrCat("at most ", PercentText(spread.high), ", over ",
                             CountOf(static_cast<int64_t>(apart.size()), "comparison")));
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

std::string Cards(const CellPointers& cells) {
  const CellLabels labels(cells, {});
  const SweepCell *fastest = nullptr, *quickest = nullptr;
  const auto gap = [](const SweepCell& cell) {
    return cell.Of([](const SweepPoint& point) { return point.result.itl_s.p50; }).median;
  };
  // What was measured before what was simulated, decode before prefill: their rates do not compare.
  const auto rank = [](const SweepCell& cell) {
    return std::make_tuple(!cell.simulated, !cell.prefill_only(), cell.Throughput().median);
  };
  const auto gap_rank = [&](const SweepCell& cell) { return std::make_tuple(!cell.simulated, -gap(cell)); };
  for (const SweepCell* cell : cells) {
    if (cell->Throughput().median > 0 && (fastest == nullptr || rank(*cell) > rank(*fastest))) fastest = cell;
    if (gap(*cell) > 0 && (quickest == nullptr || gap_rank(*cell) > gap_rank(*quickest))) quickest = cell;
  }
  std::string html = "<dl class=\"cards\">\n";
  if (fastest != nullptr) {
    const bool prefill = fastest->prefill_only();
    html += Card("Highest throughput", FigureText(fastest->Throughput().median),
                 prefill ? "prompt tokens/s" : "output tokens/s",
                 labels.Of(*fastest) + PredictedText(*fastest, prefill ? "prefill-rate" : "output-rate"));
  }
  if (quickest != nullptr) {
    html += Card("Shortest median gap", FigureText(gap(*quickest) * 1e3), "ms between tokens",
                 labels.Of(*quickest) + PredictedText(*quickest, "itl"));
  }
  absl::StrAppend(&html, PredictionCard(cells), CountCard(cells), "</dl>\n");
  return html;
}

// What must not be overlooked.
std::string OriginNote(const CellPointers& cells) {
  const auto any = [&](auto holds) { return std::any_of(cells.begin(), cells.end(), holds); };
  std::string note;
  if (any([](const SweepCell* cell) { return cell->simulated; })) {
    const bool all = !any([](const SweepCell* cell) { return !cell->simulated; });
    note = all ? "All points are simulated: nothing ran."
               : "Some points are simulated, nothing ran: they are hollow in pictures.";
  }
  if (any([](const SweepCell* cell) { return cell->link_emulated() && !cell->simulated; })) {
    absl::StrAppend(&note, note.empty() ? "" : " ", "Emulated links: the transport delayed frames between ranks.");
  }
  return note.empty() ? "" : absl::StrCat("<p class=\"note\">", EscapeMarkup(note), "</p>\n");
}

std::string UsualNote(const CellPointers& cells) {
  const std::vector<std::string> usual = UsualTexts(cells);
  return usual.empty() ? "" : Paragraph(absl::StrCat("Unless said otherwise: ", absl::StrJoin(usual, ", "), "."));
}

std::string ModelNames(const CellPointers& cells) {
  std::map<std::string, std::string> types;  // by model; of one that failed only others may know it
  for (const SweepCell* cell : cells) {
    if (!cell->runs.empty()) types.emplace(cell->config.model, cell->runs[0]->origin.model_type);
  }
  std::vector<std::string> names;
  for (const SweepCell* cell : cells) {
    const std::string& type = types[cell->config.model];
    const std::string& name = type.empty() ? cell->model_name : type;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.empty()) return "no points";
  return names.size() > 3 ? CountOf(static_cast<int64_t>(names.size()), "model") : absl::StrJoin(names, ", ");
}

// A command line for each configuration.
std::string CommandsHtml(const CellPointers& cells) {
  std::vector<std::string> commands;
  std::set<std::string> seen;
  for (const SweepCell* cell : cells) {
    for (const std::vector<const SweepPoint*>* points : {&cell->runs, &cell->failures}) {
      if (points->empty() || (*points)[0]->origin.command.empty()) continue;
      if (seen.insert((*points)[0]->origin.command).second) commands.push_back((*points)[0]->origin.command);
      break;
    }
  }
  if (commands.empty()) return "";
  std::string html = "<h2 id=\"reproduce\">How to run it again</h2>\n";
  const bool fold = commands.size() > kMostOpenCommands;
  if (fold)
    absl::StrAppend(&html, "<details><summary>", commands.size(), " command lines, also in points.csv</summary>\n");
  for (const std::string& command : commands) absl::StrAppend(&html, "<pre>", EscapeMarkup(command), "</pre>\n");
  return html + (fold ? "</details>\n" : "");
}

std::string Section(const std::string& id, const std::string& title, const std::string& intro,
                    const ReportTable& table) {
  if (table.rows.empty()) return "";
  return absl::StrCat("<h2 id=\"", id, "\">", EscapeMarkup(title), "</h2>\n", Paragraph(intro), TableHtml(table));
}

}  // namespace

std::vector<ReportSection> ReportSections(const CellPointers& cells) {
  std::vector<ReportSection> sections = {
      {"scaling", "Scaling", ScalingFigures(cells)},
      {"latency", "Throughput and latency", LatencyFigures(cells)},
      {"time", "Where the time went", TimeFigures(cells)},
      {"prediction", "Prediction and measurement", PredictionFigures(cells)},
      {"choices", "Choices compared", ChoiceFigures(cells)},
  };
  sections.erase(std::remove_if(sections.begin(), sections.end(),
                                [](const ReportSection& section) { return section.figures.empty(); }),
                 sections.end());
  return sections;
}

std::string ReportPage(const CellPointers& cells, const std::vector<ReportSection>& sections) {
  const std::string title = "Scaling experiment: " + ModelNames(cells);
  std::string html = absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
                                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                                  "style-src 'unsafe-inline'; img-src data:\">\n",
                                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link "
                                  "rel=\"icon\" href=\"data:,\">\n<title>",
                                  EscapeMarkup(title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>",
                                  EscapeMarkup(title), "</h1>\n");
  absl::StrAppend(&html, OriginNote(cells), Cards(cells), UsualNote(cells), "<nav>");
  for (const ReportSection& section : sections) {
    absl::StrAppend(&html, "<a href=\"#", section.id, "\">", EscapeMarkup(section.title), "</a> ");
  }
  absl::StrAppend(&html, "<a href=\"#points\">All points</a></nav>\n");
  for (const ReportSection& section : sections) {
    absl::StrAppend(&html, "<section>\n<h2 id=\"", section.id, "\">", EscapeMarkup(section.title),
                    "</h2>\n<div class=\"figures\">\n");
    for (const ReportFigure& figure : section.figures) html += FigureHtml(figure);
    html += "</div>\n</section>\n";
  }
  absl::StrAppend(&html, Section("failures", "What failed", "", FailureTable(cells)),
                  Section("points", "All points",
                          "The median of the repetitions; of the output in brackets the lowest and the highest. A pass "
                          "reads all weights of a "
                          "stage once. All numbers are in points.csv.",
                          ResultTable(cells)),
                  Section("predictions", "All predictions", "", PredictionTable(cells)),
                  Section("conditions", "Conditions", "", CommonTable(cells)), CommandsHtml(cells),
                  Section("machine", "Machine", "", MachineTable(cells)), "</body>\n</html>\n");
  return html;
}

}  // namespace stagecoach
