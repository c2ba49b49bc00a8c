#include "coordinator/bench/kernel_report.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/launch_line.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

// Runs a command and collects what it prints, errors too.
absl::StatusOr<std::string> Output(const std::string& command, int* exit_code) {
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("cannot run ", command, ": ", std::strerror(errno)));
  std::string output;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

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
    const nlohmann::json json = nlohmann::json::parse(text);
    report.valid = json.at("valid").get<bool>();
    report.isa = json.at("isa").get<std::string>();
    report.cpu = json.at("cpu").get<std::string>();
    report.comparisons = json.at("comparisons").get<int64_t>();
    report.differences = json.at("differences").get<std::vector<std::string>>();
    report.peak_of_type = json.at("peak_of_type").get<std::map<std::string, std::string>>();
    for (const nlohmann::json& entry : json.at("peaks")) {
      HostPeaks peaks;
      peaks.threads = entry.at("threads").get<int64_t>();
      peaks.read_gbps = entry.at("read_gbps").get<double>();
      for (const char* name : {"int8", "bf16", "f32"})
        peaks.gops[name] = entry.at(absl::StrCat(name, "_gops")).get<double>();
      report.peaks.push_back(std::move(peaks));
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(absl::StrCat("stage_worker's report on its kernels cannot be read: ", error.what()));
  }
  return report;
}

absl::StatusOr<KernelReport> CheckKernelsOfHost(const std::string& stage_worker, std::optional<InstructionSet> isa,
                                                const std::vector<int64_t>& threads) {
  const std::string command =
      JoinShellWords({stage_worker, "--check-kernels", "--isa", isa.has_value() ? InstructionSetName(*isa) : "auto",
                      "--threads", absl::StrJoin(threads, ",")});
  int exit_code = 0;
  ASSIGN_OR_RETURN(const std::string output, Output(command + " 2>&1", &exit_code));
  const size_t begin = output.find('{');  // after warnings, if any
  if (exit_code == 0 && begin != std::string::npos) return ParseKernelReport(output.substr(begin));
  const std::string text(absl::StripPrefix(absl::StripAsciiWhitespace(output), "stage_worker: "));
  return absl::FailedPreconditionError(
      absl::StrCat("the check of the kernels failed with exit code ", exit_code, ": ", text));
}

}  // namespace stagecoach
