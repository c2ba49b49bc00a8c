#ifndef STAGECOACH_COMMON_WIRE_HOST_REPORT_H_
#define STAGECOACH_COMMON_WIRE_HOST_REPORT_H_

// What a host says of itself outside of any job, by `stage_worker --host-report`: one line of text, to be found among
// the lines that a remote shell's login prints. Thread-safe.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/host/host_info.h"
#include "proto/control.pb.h"

namespace stagecoach {

inline constexpr char kHostReportFlag[] = "--host-report";
inline constexpr char kClearFlag[] = "--clear";
inline constexpr char kLookFlag[] = "--look";  // at the processes of the launch of this name: HostReport.stopped
inline constexpr char kModelToReadFlag[] = "--model";  // Hello.model_path is this one when the file can be read there
// With so many seconds: after its report the host stays to be tried by TCP, and waits so long for the front to begin.
inline constexpr char kNetworkFlag[] = "--network";
// stage_worker --host-guard NAME COMMAND...: see stage_worker/host_report.h.
inline constexpr char kHostGuardFlag[] = "--host-guard";

// Where a launch over several hosts has its private directory on each (common/host/private_dir.h).
inline constexpr char kLaunchDirectoryOfAllHosts[] = "/tmp";

// "stagecoach-host-report:" and the message in hexadecimal digits; without a newline.
std::string EncodeHostReport(const pb::HostReport& report);

// Finds the report in the output. kNotFound: none; kInvalidArgument: unreadable.
absl::StatusOr<pb::HostReport> FindHostReport(absl::string_view text);

// Whether a complete report was printed; later output does not change it.
bool HoldsHostReport(absl::string_view text);

pb::HostLimits ToProto(const HostLimits& limits);
HostLimits FromProto(const pb::HostLimits& limits);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_HOST_REPORT_H_
