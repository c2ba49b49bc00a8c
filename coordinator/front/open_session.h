#ifndef STAGECOACH_COORDINATOR_FRONT_OPEN_SESSION_H_
#define STAGECOACH_COORDINATOR_FRONT_OPEN_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "coordinator/front/session.h"

namespace stagecoach {

// Launches a job, or joins the one this process is part of: `engine_descriptor` is the socket to its engine, -1 for a
// launch. Says what is worth saying about either. Errors carry their exit code.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(LaunchOptions options, int engine_descriptor);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_OPEN_SESSION_H_
