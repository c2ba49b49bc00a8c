#include "coordinator/report/write_report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "coordinator/report/report_page.h"
#include "coordinator/report/report_tables.h"
#include "coordinator/report/sweep_cells.h"

namespace stagecoach {
namespace {

absl::Status FileProblem(const std::string& path, absl::string_view what, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("'", path, "': cannot ", what, ": ", why));
}

absl::Status WriteWhole(const std::string& path, absl::string_view text) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  absl::Status status;
  if (!file) {
    status = FileProblem(fresh, "write", std::strerror(errno));
  } else if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    status = FileProblem(path, "replace", std::strerror(errno));
  }
  if (!status.ok()) std::remove(fresh.c_str());
  return status;
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? FileProblem(path, "make the directory", error.message()) : absl::OkStatus();
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

absl::StatusOr<SweepReportFiles> WriteSweepReport(absl::Span<const SweepPoint> points, const std::string& directory) {
  if (points.empty()) return absl::InvalidArgumentError("there are no points to report on");
  const std::vector<SweepCell> cells = SweepCells(points);
  const CellPointers pointers = PointersTo(cells);
  const std::vector<ReportSection> sections = ReportSections(pointers);
  const std::string pictures = directory + "/figures";
  SweepReportFiles files = {directory + "/report.html", directory + "/points.csv", {}};
  RETURN_IF_ERROR(MakeDirectory(pictures));
  for (const ReportSection& section : sections) {
    for (const ReportFigure& figure : section.figures) {
      files.figures.push_back(absl::StrCat(pictures, "/", figure.id, ".svg"));
      RETURN_IF_ERROR(WriteWhole(files.figures.back(), figure.file_svg));
    }
  }
  RETURN_IF_ERROR(DeleteOtherPictures(pictures, files.figures));
  RETURN_IF_ERROR(WriteWhole(files.table, PointsCsv(points)));
  RETURN_IF_ERROR(WriteWhole(files.page, ReportPage(pointers, sections)));
  return files;
}

}  // namespace stagecoach
