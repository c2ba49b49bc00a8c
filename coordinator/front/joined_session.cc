// A session with an engine that lives in this process: started under somebody else's launcher, so there is nothing to
// supervise and a loss is final.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/front/session_core.h"

namespace stagecoach {
namespace {

class JoinedSession : public SessionCore {
 public:
  JoinedSession(int descriptor, pb::ConfigureJob job) : SessionCore(std::move(job)) { Connect(descriptor); }
  int relaunches() const override { return 0; }

 protected:
  absl::Status Prepare() override { return absl::OkStatus(); }
  absl::Status Supervise(absl::Duration, absl::Span<const pollfd>) override { return absl::OkStatus(); }
  absl::Status OnLost(const std::string& what) override {
    NoteLoss(lost_stage(), what);
    CloseJob();
    return absl::UnavailableError(what.empty() ? "the engine went away" : what);
  }
  void AddWaits(std::vector<pollfd>*) const override {}
  absl::Duration longest_wait() const override { return absl::Seconds(1); }
  void AwaitJobEnd() override {}
};

}  // namespace

std::unique_ptr<Session> Session::Join(int descriptor, pb::ConfigureJob job) {
  return std::make_unique<JoinedSession>(descriptor, std::move(job));
}

}  // namespace stagecoach
