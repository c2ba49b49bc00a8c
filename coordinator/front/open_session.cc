#include "coordinator/front/open_session.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/wire/job_proto.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {

absl::StatusOr<std::unique_ptr<Session>> OpenSession(LaunchOptions options, int engine_descriptor) {
  const std::string emulated_link = EmulatedLinkText(FromProto(options.job.emulated_link()));
  if (!emulated_link.empty()) {
    LogInfo(absl::StrCat("the links between all ranks are emulated: ", emulated_link));
  }
  if (engine_descriptor >= 0) {
    LogInfo(
        "under a launcher of your own a lost stage ends the run; a job that the coordinator launches itself is "
        "launched "
        "again and goes on");
    options.job.set_stages(options.stages);
    return Session::Join(engine_descriptor, std::move(options.job));
  }
  absl::StatusOr<std::unique_ptr<Session>> launched = Session::Launch(options);
  if (!launched.ok()) return LaunchFailure(launched.status());
  return launched;
}

}  // namespace stagecoach
