#include "stage_worker/serve_stage.h"

#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/emulated_link.h"
#include "common/transport/emulated_endpoint.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "stage_worker/serve_probe.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

// The coordinator waits for its front before it says anything, so this wait has no deadline of its own: the
// coordinator's end is the end of the whole job.
absl::StatusOr<ControlBody> AwaitFirstWord(Endpoint* endpoint) {
  RETURN_IF_ERROR(endpoint->OpenReceive(Channel::kSetup, kCoordinatorRank, kMaxSetupFrameBytes, 1));
  WaitLadder ladder;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<ReceivedFrame> frame, endpoint->Poll());
    if (!frame.has_value()) {
      ladder.Wait();
      continue;
    }
    return DecodeControl({}, frame->bytes());
  }
}

}  // namespace

absl::Status ServeStage(Endpoint* endpoint) {
  ASSIGN_OR_RETURN(const ControlBody first, AwaitFirstWord(endpoint));
  if (const auto* assignment = std::get_if<pb::StageAssignment>(&first)) {
    if (!assignment->has_emulated_link()) return StageLoop(endpoint, *assignment).Run();
    const EmulatedLink link = FromProto(assignment->emulated_link());
    RETURN_IF_ERROR(CheckEmulatedLink(link));
    EmulatedEndpoint emulated(endpoint, link);
    return StageLoop(&emulated, *assignment).Run();
  }
  if (const auto* order = std::get_if<pb::ProbeOrder>(&first)) return ServeProbe(endpoint, *order);
  return absl::InternalError("the coordinator's first frame is neither a stage assignment nor the order of a probe");
}

}  // namespace stagecoach
