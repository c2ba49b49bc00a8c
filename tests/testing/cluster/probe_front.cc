#include "tests/testing/cluster/probe_front.h"

#include <poll.h>

#include <optional>

#include "common/base/status_macros.h"
#include "coordinator/channel/engine_channel.h"

namespace stagecoach::testing {

absl::StatusOr<pb::ProbeReport> RunProbeFront(int descriptor, const pb::ConfigureJob& job) {
  EngineChannel channel(descriptor);
  pb::EngineMessage message;
  *message.mutable_configure() = job;
  RETURN_IF_ERROR(channel.Send(message));
  pb::ProbeReport report;
  bool ready = false;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> received, channel.Receive());
    if (!received.has_value()) {
      pollfd wait{.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
      poll(&wait, 1, 1000);
      continue;
    }
    if (received->has_failed()) {
      return absl::Status(static_cast<absl::StatusCode>(received->failed().code()), received->failed().message());
    }
    if (received->has_ready()) ready = true;
    if (received->has_probe_report()) report = received->probe_report();
    if (received->has_probe_report() && report.complete()) {
      if (!ready) return absl::InternalError("the job measured before it said that it was ready");
      message.mutable_shutdown();
      RETURN_IF_ERROR(channel.Send(message));
    }
    if (received->has_status() && received->status().ended()) return report;
  }
}

}  // namespace stagecoach::testing
