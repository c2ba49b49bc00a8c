#include "coordinator/front/run_summary.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

double SafeRate(double count, double seconds) { return seconds > 0 && count > 0 ? count / seconds : 0; }

}  // namespace

std::string CpuList(const pb::StageSummary& stage) {
  if (stage.cpus().empty()) return "any";
  std::vector<int32_t> cpus(stage.cpus().begin(), stage.cpus().end());
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i], last > i ? absl::StrCat("-", cpus[last]) : "");
    i = last + 1;
  }
  return text;
}

double DecodeRate(const RunTotals& totals) {
  return SafeRate(static_cast<double>(totals.decode_tokens - totals.requests_with_tokens), totals.decode_s);
}

double RowsAPass(const pb::JobStatistics& job) {
  return SafeRate(static_cast<double>(job.prefill_rows() + job.decode_rows()),
                  static_cast<double>(job.micro_batches()));
}

double DecodeRowsAPass(const pb::JobStatistics& job) {
  return SafeRate(static_cast<double>(job.decode_rows()), static_cast<double>(job.decode_micro_batches()));
}

double TotalRate(const RunTotals& totals) {
  return SafeRate(static_cast<double>(totals.prompt_tokens + totals.decode_tokens), totals.seconds);
}

}  // namespace stagecoach
