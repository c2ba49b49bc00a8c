#include "coordinator/report/write_report.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "coordinator/report/page_style.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/verdict.h"

namespace stagecoach {
namespace {

absl::Status FileProblem(const std::string& path, absl::string_view what, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("'", path, "': cannot ", what, ": ", why));
}

bool IsFigureId(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

// The identifiers of its figures; none where the page is not there or is no report of ours.
std::vector<std::string> FiguresOfPage(const std::string& page) {
  constexpr size_t kMostLineBytes = 1 << 24;  // a picture is one line
  LineFile file(page, kMostLineBytes);
  bool ours = false;
  std::vector<std::string> ids;
  for (auto line = file.Next(); line.ok() && line->has_value(); line = file.Next()) {
    absl::string_view text = **line;
    ours = ours || absl::StartsWith(text, absl::StrCat("<title>", kPageTitle));
    if (absl::ConsumePrefix(&text, kFigureTag) && absl::ConsumeSuffix(&text, "\">") && IsFigureId(text)) {
      ids.emplace_back(text);
    }
  }
  return ours ? ids : std::vector<std::string>();
}

std::string PictureFile(const std::string& directory, const std::string& id) {
  return absl::StrCat(directory, "/", id, ".svg");
}

// `earlier`: the figures of the report that was here before. The directory may have pictures of others.
absl::Status DeleteOldPictures(const std::string& directory, const std::vector<std::string>& earlier,
                               const std::vector<std::string>& kept) {
  for (const std::string& id : earlier) {
    const std::string picture = PictureFile(directory, id);
    std::error_code error;
    if (std::find(kept.begin(), kept.end(), picture) == kept.end()) std::filesystem::remove(picture, error);
    if (error) return FileProblem(picture, "delete the old picture", error.message());
  }
  return absl::OkStatus();
}

// Of a chart's point or row; null where there is no number.
Json NumbersOf(const XyChart& chart) {
  Json series = Json::array();
  for (const ChartSeries& one : chart.series) {
    Json points = Json::array();
    for (const ChartPoint& point : one.points) {
      points.push_back({{"x", point.x}, {"y", point.y}, {"low", point.y_low}, {"high", point.y_high}});
    }
    series.push_back({{"label", one.label}, {"simulated", one.hollow}, {"points", std::move(points)}});
  }
  return {{"x", chart.x.label}, {"y", chart.y.label}, {"series", std::move(series)}};
}

Json NumbersOf(const RowChart& chart) {
  Json rows = Json::array();
  std::string heading;  // of the rows from here on
  for (const ChartRow& row : chart.rows) {
    if (!row.heading.empty()) heading = row.heading;
    Json numbers = {{"configuration", heading}, {"simulated", row.hollow}};
    if (!row.label.empty()) numbers["label"] = row.label;
    if (!row.note.empty()) numbers["note"] = row.note;
    for (size_t i = 0; i < row.parts.size(); ++i) {
      const std::string& name = chart.parts[i].label;
      numbers[name.empty() ? "value" : name] = row.parts[i];
    }
    for (size_t i = 0; i < row.marks.size(); ++i) numbers[chart.marks[i].label] = row.marks[i];
    if (row.low != row.high) numbers["low"] = row.low, numbers["high"] = row.high;
    rows.push_back(std::move(numbers));
  }
  return {{"unit", chart.axis.label}, {"rows", std::move(rows)}};
}

Json FigureJson(const ReportFigure& figure) {
  Json json = std::visit([](const auto& chart) { return NumbersOf(chart); }, figure.chart);
  json["id"] = figure.id;
  json["title"] = figure.title;
  json["sentence"] = figure.sentence;
  return json;
}

}  // namespace

Json ReportJson(const CellPointers& cells, const std::vector<ReportSection>& sections) {
  const Verdict verdict = VerdictOf(cells);
  const CellLabels labels(cells, {});
  const auto configuration = [&](const SweepCell* cell) -> Json {
    if (cell == nullptr) return nullptr;
    const Spread rate = cell->Throughput();
    return {{"configuration", labels.Of(*cell)},
            {"key", SweepKey(cell->config)},
            {"simulated", cell->simulated},
            {"stages", cell->stages},
            {"tokens_per_s", rate.median},
            {"low", rate.low},
            {"high", rate.high},
            {"runs", rate.count},
            {"tokens_per_core_hour", cell->Of(&SweepResult::tokens_per_core_hour).median}};
  };
  Json figures = Json::array();
  if (verdict.figure.has_value()) figures.push_back(FigureJson(*verdict.figure));
  for (const ReportSection& section : sections) {
    for (const ReportFigure& figure : section.figures) figures.push_back(FigureJson(figure));
  }
  return {{"verdict",
           {{"outcome", OutcomeName(verdict.outcome)},
            {"sentence", verdict.sentence},
            {"because", verdict.because},
            {"cost", verdict.cost},
            {"best", configuration(verdict.best)},
            {"baseline", configuration(verdict.baseline)}}},
          {"figures", std::move(figures)}};
}

absl::StatusOr<SweepReportFiles> WriteSweepReport(absl::Span<const SweepSeries> series, const std::string& directory) {
  const std::vector<SweepCell> cells = SweepCells(series);
  if (cells.empty()) return absl::InvalidArgumentError("there are no points to report on");
  const CellPointers pointers = PointersTo(cells);
  const std::vector<ReportSection> sections = ReportSections(pointers);
  std::vector<const ReportFigure*> figures;
  const Verdict verdict = VerdictOf(pointers);
  if (verdict.figure.has_value()) figures.push_back(&*verdict.figure);
  for (const ReportSection& section : sections) {
    for (const ReportFigure& figure : section.figures) figures.push_back(&figure);
  }
  const std::string pictures = directory + "/figures";
  SweepReportFiles files = {directory + "/report.html", directory + "/points.csv", {}};
  std::error_code error;
  std::filesystem::create_directories(pictures, error);
  if (error) return FileProblem(pictures, "make the directory", error.message());
  for (const ReportFigure* figure : figures) {
    files.figures.push_back(PictureFile(pictures, figure->id));
    RETURN_IF_ERROR(WriteWholeFile(files.figures.back(), figure->file_svg, WholeFile::InPlace::kNever));
  }
  RETURN_IF_ERROR(DeleteOldPictures(pictures, FiguresOfPage(files.page), files.figures));
  RETURN_IF_ERROR(WriteWholeFile(files.table, PointsCsv(series), WholeFile::InPlace::kNever));
  RETURN_IF_ERROR(WriteWholeFile(files.page, ReportPage(pointers, sections), WholeFile::InPlace::kNever));
  return files;
}

}  // namespace stagecoach
