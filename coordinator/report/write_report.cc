#include "coordinator/report/write_report.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/svg_canvas.h"

namespace stagecoach {
namespace {

// More are folded up.
constexpr ptrdiff_t kOpenFigures = 2;  // of a section: a row of the grid
constexpr size_t kMostOpenFailures = 6, kMostOpenRows = 12;

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
.where { font-size: .9rem; color: #444; }
.note { border: 2px solid #222; padding: .5rem .8rem; font-weight: bold; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); gap: .8rem; margin: 1rem 0; padding: 0; }
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
details { margin: .9rem 0; }
summary { cursor: pointer; font-size: .92rem; color: #0b559f; overflow-wrap: anywhere; }
.paper { display: none; }
@media (max-width: 30rem) { body { padding: .8rem .6rem 2rem; } h1 { font-size: 1.35rem; } }
@page { margin: 15mm 12mm; }
@media print {
  html { font-size: 13px; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .screen { display: none; }
  .paper { display: block; }
  details::details-content { content-visibility: visible; }
  summary { list-style: none; color: #222; font-weight: bold; break-after: avoid; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  .cards { grid-template-columns: repeat(3, 1fr); }
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

// On what was measured, and when.
std::string WhereAndWhen(const CellPointers& cells) {
  std::set<std::string> machines, days;
  for (const SweepCell* cell : cells) {
    for (const SweepPoint* run : cell->runs) {
      const SweepOrigin& origin = run->origin;
      if (!origin.processor.empty()) {
        machines.insert(absl::StrCat(origin.processor, ", ", CountOf(origin.cores, "core")));
      }
      if (!origin.started_at.empty()) days.insert(origin.started_at.substr(0, 10));
    }
  }
  std::vector<std::string> parts;
  if (machines.size() > 2) {
    parts.push_back(CountOf(static_cast<int64_t>(machines.size()), "kind") + " of coordinator's host");
  } else {
    parts.assign(machines.begin(), machines.end());
  }
  if (!days.empty()) {
    parts.push_back(days.size() == 1 ? *days.begin() : absl::StrCat(*days.begin(), " to ", *days.rbegin()));
  }
  return parts.empty() ? "" : absl::StrCat("<p class=\"where\">", EscapeMarkup(absl::StrJoin(parts, "; ")), "</p>\n");
}

// Folded up on a screen; printed opened (kStyle). `html`: what is folded up.
std::string Fold(const std::string& summary, const std::string& html) {
  return absl::StrCat("<details><summary>", EscapeMarkup(summary), "</summary>\n", html, "</details>\n");
}

// The first figures of a section, and the others folded up below them.
std::string SectionHtml(const ReportSection& section) {
  std::string open, folded;
  std::vector<std::string> titles;
  for (const ReportFigure& figure : section.figures) {
    if (&figure - section.figures.data() < kOpenFigures) {
      open += FigureHtml(figure);
    } else {
      folded += FigureHtml(figure);
      titles.push_back(figure.title);
    }
  }
  std::string html = absl::StrCat("<section>\n<h2 id=\"", section.id, "\">", EscapeMarkup(section.title),
                                  "</h2>\n<div class=\"figures\">\n", open, "</div>\n");
  if (!titles.empty()) {
    html += Fold("More: " + absl::StrJoin(titles, "; "), absl::StrCat("<div class=\"figures\">\n", folded, "</div>\n"));
  }
  return html + "</section>\n";
}

// Failures, which no figure shows; placed before the figures.
std::string FailuresHtml(const CellPointers& cells) {
  const ReportTable table = FailureTable(cells);
  int64_t failed = 0, all = 0, disturbed = 0;
  for (const SweepCell* cell : cells) {
    failed += static_cast<int64_t>(cell->failures.size());
    all += static_cast<int64_t>(cell->runs.size() + cell->failures.size());
    disturbed += std::count_if(cell->runs.begin(), cell->runs.end(), [](const SweepPoint* run) {
      return run->result.failed > 0 || run->result.relaunches > 0;
    });
  }
  if (failed == 0 && disturbed == 0) return "";
  std::string html = "<h2 id=\"failures\">What failed</h2>\n";
  if (failed > 0) {
    html += Paragraph(absl::StrCat(failed, " of ", CountOf(all, "run"), " failed; no figure shows them."));
    const std::string rows = TableHtml(table);
    html += table.rows.size() > kMostOpenFailures ? Fold("The errors", rows) : rows;
  }
  if (disturbed > 0) {
    html += Paragraph(absl::StrCat("In ", CountOf(disturbed, "run"),
                                   " requests failed or the job was launched again: see the incidents in the table "
                                   "of all points."));
  }
  return html;
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
  std::string html = "<div class=\"screen\">";  // useless on paper
  std::string lines;
  for (const std::string& command : commands) absl::StrAppend(&lines, "<pre>", EscapeMarkup(command), "</pre>\n");
  absl::StrAppend(
      &html, Fold("How to run it again: " + CountOf(static_cast<int64_t>(commands.size()), "command line"), lines));
  return html + "</div>\n<p class=\"paper\">The command line of each point is in points.csv.</p>\n";
}

// All points: folded up where there are many.
std::string PointsHtml(const CellPointers& cells) {
  const ReportTable table = ResultTable(cells);
  if (table.rows.empty()) return "";
  const std::string rows =
      Paragraph(
          "The median of the repetitions; of the output in brackets the lowest and the highest. A pass reads all "
          "weights of a stage once. All numbers are in points.csv.") +
      TableHtml(table);
  const std::string count = CountOf(static_cast<int64_t>(table.rows.size()), "configuration");
  return "<h2 id=\"points\">All points</h2>\n" + (table.rows.size() > kMostOpenRows ? Fold(count, rows) : rows);
}

std::string DetailsHtml(const CellPointers& cells) {
  const auto table = [](const std::string& summary, const ReportTable& rows) {
    return rows.rows.empty() ? "" : Fold(summary, TableHtml(rows));
  };
  return absl::StrCat(table("All predictions", PredictionTable(cells)), table("Conditions", CommonTable(cells)),
                      table("Machines", MachineTable(cells)), CommandsHtml(cells));
}

absl::Status FileProblem(const std::string& path, absl::string_view what, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("'", path, "': cannot ", what, ": ", why));
}

absl::Status DeleteOtherPictures(const std::string& directory, const std::vector<std::string>& kept) {
  std::error_code error;
  std::vector<std::filesystem::path> others;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const bool picture = entry.path().extension() == ".svg";
    if (picture && std::find(kept.begin(), kept.end(), entry.path().string()) == kept.end())
      others.push_back(entry.path());
  }
  for (const std::filesystem::path& other : others) {
    if (!error) std::filesystem::remove(other, error);
  }
  return error ? FileProblem(directory, "delete old pictures", error.message()) : absl::OkStatus();
}

}  // namespace

std::vector<ReportSection> ReportSections(const CellPointers& cells) {
  std::vector<ReportSection> sections = {
      {"scaling", "Scaling", ScalingFigures(cells)},
      {"latency", "Throughput and latency", LatencyFigures(cells)},
      {"prediction", "Prediction and measurement", PredictionFigures(cells)},
      {"time", "Where the time went", TimeFigures(cells)},
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
  const std::vector<std::string> usual = UsualTexts(cells);
  absl::StrAppend(
      &html, WhereAndWhen(cells), OriginNote(cells), CardsHtml(cells),
      usual.empty() ? "" : Paragraph(absl::StrCat("Unless said otherwise: ", absl::StrJoin(usual, ", "), ".")),
      FailuresHtml(cells), "<nav>");
  for (const ReportSection& section : sections) {
    absl::StrAppend(&html, "<a href=\"#", section.id, "\">", EscapeMarkup(section.title), "</a> ");
  }
  const std::string points = PointsHtml(cells);
  absl::StrAppend(&html, points.empty() ? "" : "<a href=\"#points\">All points</a>", "</nav>\n");
  for (const ReportSection& section : sections) html += SectionHtml(section);
  absl::StrAppend(&html, points, DetailsHtml(cells), "</body>\n</html>\n");
  return html;
}

absl::StatusOr<SweepReportFiles> WriteSweepReport(absl::Span<const SweepPoint> points, const std::string& directory) {
  if (points.empty()) return absl::InvalidArgumentError("there are no points to report on");
  const std::vector<SweepCell> cells = SweepCells(points);
  const CellPointers pointers = PointersTo(cells);
  const std::vector<ReportSection> sections = ReportSections(pointers);
  const std::string pictures = directory + "/figures";
  SweepReportFiles files = {directory + "/report.html", directory + "/points.csv", {}};
  std::error_code error;
  std::filesystem::create_directories(pictures, error);
  if (error) return FileProblem(pictures, "make the directory", error.message());
  for (const ReportSection& section : sections) {
    for (const ReportFigure& figure : section.figures) {
      files.figures.push_back(absl::StrCat(pictures, "/", figure.id, ".svg"));
      RETURN_IF_ERROR(WriteWholeFile(files.figures.back(), figure.file_svg, WholeFile::InPlace::kNever));
    }
  }
  RETURN_IF_ERROR(DeleteOtherPictures(pictures, files.figures));
  RETURN_IF_ERROR(WriteWholeFile(files.table, PointsCsv(points), WholeFile::InPlace::kNever));
  RETURN_IF_ERROR(WriteWholeFile(files.page, ReportPage(pointers, sections), WholeFile::InPlace::kNever));
  return files;
}

}  // namespace stagecoach
