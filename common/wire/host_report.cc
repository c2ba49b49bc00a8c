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

pb::FileSystemRoom ToProto(const FileSystemRoom& room) {
  pb::FileSystemRoom out;
  out.set_free_bytes(room.free_bytes);
  out.set_total_bytes(room.total_bytes);
  out.set_takes_files(room.takes_files);
  return out;
}

FileSystemRoom FromProto(const pb::FileSystemRoom& room) {
  return {room.free_bytes(), room.total_bytes(), room.takes_files()};
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

pb::HostLimits ToProto(const HostLimits& limits) {
  pb::HostLimits out;
  out.set_temporary_directory(limits.temporary_directory);
  *out.mutable_temporary() = ToProto(limits.temporary);
  if (limits.has_shared_memory) *out.mutable_shared_memory() = ToProto(limits.shared_memory);
  out.set_open_files(limits.open_files);
  out.set_file_bytes(limits.file_bytes);
  out.set_address_bytes(limits.address_bytes);
  out.set_tasks_left(limits.tasks_left);
  return out;
}

HostLimits FromProto(const pb::HostLimits& limits) {
  HostLimits out;
  out.temporary_directory = limits.temporary_directory();
  out.temporary = FromProto(limits.temporary());
  out.has_shared_memory = limits.has_shared_memory();
  if (out.has_shared_memory) out.shared_memory = FromProto(limits.shared_memory());
  out.open_files = limits.open_files();
  out.file_bytes = limits.file_bytes();
  out.address_bytes = limits.address_bytes();
  out.tasks_left = limits.tasks_left();
  return out;
}

}  // namespace stagecoach
