#include "stage_worker/check/self_check.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/job/job_limits.h"
#include "common/quant/supported_types.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach {
namespace {

constexpr int64_t kMostThreads = JobLimits::kThreads.range.max;

struct SelfCheckOptions {
  std::string isa = "auto";
  std::vector<int> threads;
};

absl::StatusOr<std::vector<int>> ParseThreads(const std::string& text) {
  std::vector<int> list;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int threads = 0;
    if (!absl::SimpleAtoi(part, &threads) || threads < 1 || threads > kMostThreads) {
      return absl::InvalidArgumentError(
          absl::StrCat("--threads: '", part, "' is no number of threads, expected 1 to ", kMostThreads));
    }
    list.push_back(threads);
  }
  return list;
}

absl::StatusOr<SelfCheckOptions> ParseOptions(const std::vector<std::string>& arguments) {
  SelfCheckOptions options;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (name != "--isa" && name != "--threads") {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", name, "' to --check-kernels"));
    }
    if (i + 1 == arguments.size()) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    if (name == "--isa") {
      options.isa = arguments[i + 1];
    } else {
      ASSIGN_OR_RETURN(options.threads, ParseThreads(arguments[i + 1]));
    }
  }
  if (options.threads.empty()) options.threads = {1, AllowedCores()};
  for (int& threads : options.threads) threads = std::min(threads, AllowedCores());
  std::sort(options.threads.begin(), options.threads.end());
  options.threads.erase(std::unique(options.threads.begin(), options.threads.end()), options.threads.end());
  return options;
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += absl::ascii_isprint(c) ? c : '?';
  }
  return quoted + "\"";
}

std::string PeaksJson(const MachinePeaks& peaks) {
  return absl::StrFormat(
      R"({"threads": %d, "read_gbps": %.3f, "int8_gops": %.2f, "bf16_gops": %.2f, "f32_gops": %.2f})", peaks.threads,
      peaks.read_gbps, peaks.int8_gops, peaks.bf16_gops, peaks.f32_gops);
}

}  // namespace

absl::StatusOr<std::string> SelfCheck(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const SelfCheckOptions options, ParseOptions(arguments));
  ASSIGN_OR_RETURN(const Kernels* kernels, SelectKernels(options.isa));
  const KernelCheck check = CheckKernels(*kernels);
  std::vector<std::string> peaks, types;
  for (int threads : options.threads) {
    if (!check.valid()) break;
    ASSIGN_OR_RETURN(const MachinePeaks measured, MeasurePeaks(*kernels, threads));
    peaks.push_back(PeaksJson(measured));
  }
  for (TensorType type : SupportedTypes()) {
    types.push_back(absl::StrCat(Quoted(GetTensorType(type).name), ": ", Quoted(PeakNameOf(*kernels, type))));
  }
  const auto quote = [](std::string* out, const std::string& text) { out->append(Quoted(text)); };
  return absl::StrCat("{\"valid\": ", check.valid() ? "true" : "false", ", \"isa\": ", Quoted(kernels->isa),
                      ", \"cpu\": ", Quoted(ProcessorName()), ", \"comparisons\": ", check.comparisons,
                      ", \"differences\": [", absl::StrJoin(check.differences, ", ", quote), "], \"peak_of_type\": {",
                      absl::StrJoin(types, ", "), "}, \"peaks\": [", absl::StrJoin(peaks, ", "), "]}");
}

}  // namespace stagecoach
