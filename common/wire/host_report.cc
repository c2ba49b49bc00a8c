#include "common/wire/host_report.h"

#include <algorithm>
#include <cctype>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kMarker = "stagecoach-host-report:";

}  // namespace

std::string EncodeHostReport(const pb::HostReport& report) {
  return absl::StrCat(kMarker, absl::BytesToHexString(report.SerializeAsString()));
}

absl::StatusOr<pb::HostReport> FindHostReport(absl::string_view text) {
  const size_t marker = text.find(kMarker);
  if (marker == absl::string_view::npos) return absl::NotFoundError("there is no report of a host");
  absl::string_view digits = text.substr(marker + kMarker.size());
  const auto end =
      std::find_if_not(digits.begin(), digits.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  digits = digits.substr(0, static_cast<size_t>(end - digits.begin()));
  pb::HostReport report;
  if (digits.size() % 2 != 0 || !report.ParseFromString(absl::HexStringToBytes(digits)) || !report.has_hello()) {
    return absl::InvalidArgumentError(absl::StrCat("a host's report of ", digits.size(),
                                                   " digits cannot be read; is its stage_worker of this version?"));
  }
  return report;
}

}  // namespace stagecoach
