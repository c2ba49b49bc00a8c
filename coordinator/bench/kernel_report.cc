#include "coordinator/bench/kernel_report.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

// Checking all kernels takes half a minute on a slow machine.
constexpr absl::Duration kLongestCheck = absl::Minutes(10);

}  // namespace

const HostPeaks* KernelReport::PeaksOf(int64_t threads) const {
  for (const HostPeaks& candidate : peaks) {
    if (candidate.threads == threads) return &candidate;
  }
  return nullptr;
}

absl::StatusOr<KernelReport> ParseKernelReport(const std::string& text) {
  KernelReport report;
  try {
    const Json json = ReadJson(text);
    report.valid = json.at("valid").get<bool>();
    report.isa = json.at("isa").get<std::string>();
    report.cpu = json.at("cpu").get<std::string>();
    report.comparisons = json.at("comparisons").get<int64_t>();
    report.differences = json.at("differences").get<std::vector<std::string>>();
    report.peak_of_type = json.at("peak_of_type").get<std::map<std::string, std::string>>();
    for (const Json& entry : json.at("peaks")) {
      HostPeaks peaks;
      peaks.threads = entry.at("threads").get<int64_t>();
      peaks.read_gbps = entry.at("read_gbps").get<double>();
      for (const char* name : {"int8", "bf16", "f32"})
        peaks.gops[name] = entry.at(absl::StrCat(name, "_gops")).get<double>();
      report.peaks.push_back(std::move(peaks));
    }
  } catch (const Json::exception& error) {
    return absl::InternalError(absl::StrCat("stage_worker's report on its kernels cannot be read: ", error.what()));
  }
  return report;
}

absl::StatusOr<KernelReport> CheckKernelsOfHost(const std::string& stage_worker, std::optional<InstructionSet> isa,
                                                const std::vector<int64_t>& threads) {
  ASSIGN_OR_RETURN(const ProgramOutput ran, RunForOutput({stage_worker, "--check-kernels", "--isa",
                                                          isa.has_value() ? InstructionSetName(*isa) : "auto",
                                                          "--threads", absl::StrJoin(threads, ",")},
                                                         kLongestCheck));
  const std::string& output = ran.text;
  const size_t begin = output.find('{');  // after warnings, if any
  if (ran.exit_code == 0 && begin != std::string::npos) return ParseKernelReport(output.substr(begin));
  const std::string text(absl::StripPrefix(absl::StripAsciiWhitespace(output), "stage_worker: "));
  return absl::FailedPreconditionError(
      absl::StrCat("the check of the kernels failed with exit code ", ran.exit_code, ": ", text));
}

}  // namespace stagecoach
