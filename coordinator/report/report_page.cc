#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/shown_text.h"
#include "coordinator/report/chart/svg_canvas.h"
#include "coordinator/report/page_style.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/verdict.h"
#include "coordinator/report/write_report.h"

namespace stagecoach {
namespace {

// More are folded up.
constexpr ptrdiff_t kOpenFigures = 2;  // of a section: a row of the grid
constexpr size_t kMostOpenFailures = 6, kMostOpenRows = 12;
constexpr size_t kNarrowTable = 4;  // columns that a phone has room for

std::string Paragraph(const std::string& text) {
  return text.empty() ? "" : absl::StrCat("<p>", EscapeMarkup(text), "</p>\n");
}

// `name`: what screen readers call the table. A table wider than the screen scrolls sideways, also by the keyboard.
std::string TableHtml(const std::string& name, const ReportTable& table, bool sorts = false) {
  std::string html =
      absl::StrCat(table.header.size() > kNarrowTable ? "<p class=\"slides\">The table slides sideways.</p>\n" : "",
                   "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"", EscapeMarkup(name), "\"><table",
                   sorts ? " class=\"sort\"" : "", ">\n<thead><tr>");
  const auto class_of = [&](size_t column) { return column < table.left ? " class=\"l\"" : ""; };
  for (size_t i = 0; i < table.header.size(); ++i) {
    absl::StrAppend(&html, "<th scope=\"col\"", class_of(i), ">", EscapeMarkup(table.header[i]), "</th>");
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = EscapeMarkup(row[i]);
      if (table.links_last && i + 1 == row.size() && !cell.empty())
        cell = absl::StrCat("<a href=\"", cell, "\">open</a>");
      absl::StrAppend(&html, "<td", class_of(i), ">", cell, "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string FigureHtml(const ReportFigure& figure) {
  return absl::StrCat(kFigureTag, EscapeMarkup(figure.id), "\">\n<figcaption><h3>", EscapeMarkup(figure.title), "</h3>",
                      Paragraph(figure.sentence), "</figcaption>\n", figure.page_svg, "</figure>\n");
}

// Of points of several versions: how many are of each.
std::string VersionsNote(const CellPointers& cells) {
  std::map<std::string, size_t> counts;
  for (const SweepCell* cell : cells) {
    counts[cell->config.program_version] += cell->runs.size() + cell->failures.size();
  }
  if (counts.size() < 2) return "";
  const std::string each = absl::StrJoin(counts, ", ", [](std::string* out, const auto& count) {
    absl::StrAppend(out, count.second, " of ", count.first.empty() ? "a version not known" : count.first);
  });
  return absl::StrCat("Points of several versions of the program, kept apart: ", each, ".");
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
  if (const std::string versions = VersionsNote(cells); !versions.empty()) {
    absl::StrAppend(&note, note.empty() ? "" : " ", versions);
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
  if (std::string hosts = HostsSentence(cells); !hosts.empty()) {
    parts.push_back(std::move(hosts));
  } else if (machines.size() > 2) {
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
    const std::string rows = TableHtml("What failed", table);
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
      TableHtml("All points", table, /*sorts=*/true);
  const std::string count = CountOf(static_cast<int64_t>(table.rows.size()), "configuration");
  return "<h2 id=\"points\">All points</h2>\n" + (table.rows.size() > kMostOpenRows ? Fold(count, rows) : rows);
}

std::string DetailsHtml(const CellPointers& cells) {
  const auto table = [](const std::string& summary, const ReportTable& rows) {
    return rows.rows.empty() ? "" : Fold(summary, TableHtml(summary, rows));
  };
  return absl::StrCat(table("All predictions", PredictionTable(cells)), table("Conditions", CommonTable(cells)),
                      CommandsHtml(cells));
}

// The answer, its picture and the few figures that most readers came for.
std::string FirstScreenHtml(const CellPointers& cells) {
  const Verdict verdict = VerdictOf(cells);
  std::string html = absl::StrCat("<div class=\"first", verdict.figure.has_value() ? "" : " plain",
                                  "\">\n<div class=\"verdict\">\n<p class=\"answer\">", EscapeMarkup(verdict.sentence),
                                  "</p>\n", Paragraph(verdict.because), Paragraph(verdict.cost), "</div>\n");
  if (verdict.figure.has_value()) html += FigureHtml(*verdict.figure);
  return absl::StrCat(html, CardsHtml(cells), "</div>\n");
}

std::string ComparisonHtml(const CellPointers& cells) {
  const ReportTable table = ComparisonTable(cells);
  if (table.rows.empty()) return "";
  return absl::StrCat("<h2 id=\"comparison\">Against ", EscapeMarkup(Baselines(cells).name()), "</h2>\n",
                      Paragraph("Each configuration that both have. A change beyond the scatter is one that the "
                                "repetitions of the two do not overlap in."),
                      TableHtml("Comparison", table, /*sorts=*/true));
}

std::string HostsHtml(const CellPointers& cells) {
  const ReportTable table = HostTable(cells);
  return table.rows.empty() ? "" : "<h2 id=\"hosts\">Hosts</h2>\n" + TableHtml("Hosts", table);
}

}  // namespace

std::vector<ReportSection> ReportSections(const CellPointers& cells) {
  std::vector<ReportSection> sections = {
      {"scaling", "Scaling", ScalingFigures(cells)},
      {"latency", "Throughput and latency", LatencyFigures(cells)},
      {"prediction", "Predictions and what came out", PredictionFigures(cells)},
      {"time", "Where the time went", TimeFigures(cells)},
      {"choices", "Choices compared", ChoiceFigures(cells)},
  };
  sections.erase(std::remove_if(sections.begin(), sections.end(),
                                [](const ReportSection& section) { return section.figures.empty(); }),
                 sections.end());
  return sections;
}

std::string ReportPage(const CellPointers& cells, const std::vector<ReportSection>& sections) {
  const std::string title = kPageTitle + ModelNames(cells);
  std::string html =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                   "'unsafe-inline'; img-src data:; "
                   "script-src 'sha256-",
                   kPageScriptHash, "'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
                   "<link rel=\"icon\" href=\"data:,\">\n<title>", EscapeMarkup(title), "</title>\n<style>",
                   PageStyle(), "</style>\n</head>\n<body>\n<h1>", EscapeMarkup(title), "</h1>\n");
  const std::vector<std::string> usual = UsualTexts(cells);
  const std::string points = PointsHtml(cells), comparison = ComparisonHtml(cells), hosts = HostsHtml(cells);
  absl::StrAppend(
      &html, WhereAndWhen(cells), OriginNote(cells), FirstScreenHtml(cells),
      usual.empty() ? "" : Paragraph(absl::StrCat("Unless said otherwise: ", absl::StrJoin(usual, ", "), ".")), "<nav>",
      comparison.empty() ? "" : "<a href=\"#comparison\">Comparison</a> ");
  for (const ReportSection& section : sections) {
    absl::StrAppend(&html, "<a href=\"#", section.id, "\">", EscapeMarkup(section.title), "</a> ");
  }
  absl::StrAppend(&html, points.empty() ? "" : "<a href=\"#points\">All points</a> ",
                  hosts.empty() ? "" : "<a href=\"#hosts\">Hosts</a>", "</nav>\n", FailuresHtml(cells), comparison);
  for (const ReportSection& section : sections) html += SectionHtml(section);
  absl::StrAppend(&html, points, hosts, DetailsHtml(cells), "<script>", kPageScript, "</script>\n</body>\n</html>\n");
  return html;
}

}  // namespace stagecoach
