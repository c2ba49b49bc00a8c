// All points as CSV.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"
#include "coordinator/report/report_tables.h"

namespace stagecoach {
namespace {

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

// Every point has the same fields: those of a prediction are empty where there is none.
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

std::string PointsCsv(absl::Span<const SweepPoint> points) {
  std::string text = absl::StrJoin(LineOf(points.empty() ? SweepPoint() : points[0]).names, ",") + "\r\n";
  for (const SweepPoint& point : points) absl::StrAppend(&text, absl::StrJoin(LineOf(point).cells, ","), "\r\n");
  return text;
}

}  // namespace stagecoach
