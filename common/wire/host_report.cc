#include "common/wire/host_report.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kMarker = "stagecoach-host-report:";

// What follows the marker; absent without one.
std::optional<absl::string_view> AfterMarker(absl::string_view text) {
  const size_t marker = text.find(kMarker);
  if (marker == absl::string_view::npos) return std::nullopt;
  return text.substr(marker + kMarker.size());
}

size_t CountDigits(absl::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  return static_cast<size_t>(end - text.begin());
}

}  // namespace

std::string EncodeHostReport(const pb::HostReport& report) {
  return absl::StrCat(kMarker, absl::BytesToHexString(report.SerializeAsString()));
}

absl::StatusOr<pb::HostReport> FindHostReport(absl::string_view text) {
  const std::optional<absl::string_view> printed = AfterMarker(text);
  if (!printed.has_value()) return absl::NotFoundError("there is no report of a host");
  const absl::string_view digits = printed->substr(0, CountDigits(*printed));
  pb::HostReport report;
  if (digits.size() % 2 != 0 || !report.ParseFromString(absl::HexStringToBytes(digits)) || !report.has_hello()) {
    return absl::InvalidArgumentError(absl::StrCat("a host's report of ", digits.size(),
                                                   " digits cannot be read; is its stage_worker of this version?"));
  }
  return report;
}

bool HoldsHostReport(absl::string_view text) {
  const std::optional<absl::string_view> printed = AfterMarker(text);
  return printed.has_value() && CountDigits(*printed) < printed->size();
}

}  // namespace stagecoach
