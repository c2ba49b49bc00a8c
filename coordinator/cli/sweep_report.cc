#include "coordinator/cli/sweep_report.h"

#include <string>
#include <utility>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "coordinator/bench/sweep_file.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/report/write_report.h"

namespace stagecoach {

void AddSweepReport(CLI::App* sweep, std::string* directory) {
  CLI::App* report =
      sweep->add_subcommand("report", "write report.html, points.csv and figures/*.svg of finished points");
  report->group("Commands");
  report->footer(absl::StrCat(kExamplePrefix, "coordinator sweep report results"));
  report
      ->add_option("directory", *directory,
                   absl::StrCat("where a sweep or simulate left its ", kSweepFileName,
                                "; the report is written beside it, and takes the place of an earlier one"))
      ->type_name("DIR")
      ->check([](const std::string& given) { return given.empty() ? "the directory's name is empty" : std::string(); })
      ->required();
}

absl::Status ReportSweep(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kSweepFileName);
  absl::StatusOr<SweepRecords> records = ReadSweepFile(path);
  if (!records.ok()) return WithExitCode(records.status(), ExitCode::kInputFile);
  for (const std::string& refused : records->refused) {
    LogInfo(absl::StrCat("'", path, "': ", refused, "; this line is passed over"));
  }
  if (records->cut) LogInfo(absl::StrCat("'", path, "': the last line is cut off; it is passed over"));
  if (records->points.empty())
    return InputFileError(absl::StrCat("'", path, "' has no points; a sweep puts them there"));
  absl::StatusOr<SweepReportFiles> files = WriteSweepReport(records->points, directory);
  if (!files.ok()) return WithExitCode(files.status(), ExitCode::kInputFile);
  return WriteStdout(absl::StrCat("report: ", files->page, " (", files->figures.size(), " figures, ",
                                  records->points.size(), " points; the numbers in ", files->table, ")\n"));
}

}  // namespace stagecoach
