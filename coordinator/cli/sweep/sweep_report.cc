#include "coordinator/cli/sweep/sweep_report.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"
#include "coordinator/report/write_report.h"

namespace stagecoach {
namespace {

constexpr char kComparisonFolder[] = "comparison";

std::filesystem::path Plain(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // without the slash at its end
}

// The last part of its path where no other directory has the same, else all of it.
std::string LabelOf(const std::string& directory, const std::vector<std::string>& all) {
  const std::string name = Plain(directory).filename().string();
  const auto same = [&](const std::string& other) { return Plain(other).filename() == name; };
  return std::count_if(all.begin(), all.end(), same) > 1 ? directory : name;
}

// Each directory is a series, whose name tells it from the others.
absl::Status CheckDirectories(const std::vector<std::string>& directories) {
  std::map<std::filesystem::path, std::string> given;  // by where it leads
  for (const std::string& directory : directories) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::weakly_canonical(Plain(directory), error);
    const auto [first, fresh] = given.emplace(error ? Plain(directory) : real, directory);
    if (fresh) continue;
    return UsageError(first->second == directory
                          ? absl::StrCat("'", directory, "' is given twice; name each directory once")
                          : absl::StrCat("'", first->second, "' and '", directory,
                                         "' are the same directory; name each directory once"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddSweepReport(CLI::App* sweep, SweepReportOptions* options) {
  CLI::App* report =
      sweep->add_subcommand("report", "write report.html, points.csv and figures/*.svg of finished points");
  report->group("Commands");
  report->footer(absl::StrCat(kExamplePrefix, "coordinator sweep report results"));
  report
      ->add_option("directory", options->directories,
                   absl::StrCat("where a sweep or simulate left its ", kSweepFileName,
                                "; the report is written beside it, and takes the place of an earlier one. Several are "
                                "compared: the first one is the baseline, and the report goes into its folder ",
                                kComparisonFolder))
      ->type_name("DIR...")
      ->check([](const std::string& given) { return given.empty() ? "the directory's name is empty" : std::string(); })
      ->required();
  report->add_option("-o,--output", options->into, "write the report into this directory")->type_name("DIR");
  report->add_flag("--json", options->json,
                   "print the verdict and the figures' numbers as one JSON object, and write no files");
}

std::string ReportDirectory(const SweepReportOptions& options) {
  if (!options.into.empty()) return options.into;
  const std::string& first = options.directories.front();
  return options.directories.size() == 1 ? first : PathIn(first, kComparisonFolder);
}

std::string PathIn(const std::string& directory, const char* name) {
  return (std::filesystem::path(directory) / name).string();
}

absl::StatusOr<SweepRecords> ReadPoints(const std::string& directory, bool remarks) {
  const std::string path = PathIn(directory, kSweepFileName);
  absl::StatusOr<SweepRecords> records = ReadSweepFile(path);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  if (!remarks) return records;
  for (const std::string& refused : records->refused) {
    LogInfo(absl::StrCat("'", path, "': ", refused, "; this line is passed over"));
  }
  for (const std::string& remark : records->remarks) LogInfo(absl::StrCat("'", path, "': ", remark));
  return records;
}

absl::Status ReportSweep(const SweepReportOptions& options) {
  RETURN_IF_ERROR(CheckDirectories(options.directories));
  const std::string into = ReportDirectory(options);
  std::vector<SweepRecords> records;
  std::vector<SweepSeries> series;
  size_t points = 0;
  records.reserve(options.directories.size());  // the series point into it
  for (const std::string& directory : options.directories) {
    const std::string path = PathIn(directory, kSweepFileName);
    ASSIGN_OR_RETURN(SweepRecords read, ReadPoints(directory, options.remarks));
    if (read.cut) LogInfo(absl::StrCat("'", path, "': the last line is cut off; it is passed over"));
    if (read.points.empty()) {
      return InputFileError(absl::StrCat("'", path, "' has no points; a sweep puts them there"));
    }
    records.push_back(std::move(read));
    points += records.back().points.size();
    const std::string folder = Plain(directory).lexically_relative(Plain(into)).string();
    series.push_back({options.directories.size() == 1 ? "" : LabelOf(directory, options.directories),
                      folder == "." ? "" : folder, records.back().points});
  }
  if (options.json) {
    const std::vector<SweepCell> cells = SweepCells(series);
    const CellPointers pointers = PointersTo(cells);
    return WriteStdout(CompactJson(ReportJson(pointers, ReportSections(pointers))) + "\n");
  }
  absl::StatusOr<SweepReportFiles> files = WriteSweepReport(series, into);
  if (!files.ok()) return WithExitCode(files.status(), ExitCode::kInputFile);
  return WriteStdout(absl::StrCat("report: ", files->page, " (", files->figures.size(), " figures, ", points,
                                  " points; the numbers in ", files->table, ")\n"));
}

}  // namespace stagecoach
