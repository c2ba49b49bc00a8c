#ifndef STAGECOACH_COORDINATOR_SESSION_CLUSTER_RUN_H_
#define STAGECOACH_COORDINATOR_SESSION_CLUSTER_RUN_H_

// One run of a front that sends requests to a cluster until it has its answers: a Session with the load's progress, the
// signals, and the numbers for the statistics.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/session/run_summary.h"
#include "coordinator/session/session.h"
#include "proto/probe.pb.h"

namespace stagecoach {

// Not thread-safe.
class ClusterRun {
 public:
  ~ClusterRun();

  // As OpenSession. From here on signals are caught (SignalWatch).
  static absl::StatusOr<std::unique_ptr<ClusterRun>> Open(LaunchOptions options, int engine_descriptor,
                                                          bool show_progress);

  // Waits until the job is ready. kCancelled: a signal asked to stop before. Other errors are those of Next.
  absl::Status AwaitReady();

  // As Session::Submit, under an id of its own. kOutOfRange: the job cannot hold it.
  absl::StatusOr<RequestId> Submit(GenerationRequest request);
  // As Session::SubmitAll. The ids are consecutive; the first of them is returned.
  absl::StatusOr<RequestId> SubmitAll(std::vector<GenerationRequest> requests);
  void Cancel(RequestId request);

  // Waits for the next event: at most this long or a second, and not beyond a signal or SignalWatch::Wake. Errors are
  // final and carry their exit code.
  absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration most = absl::Seconds(1));

  // Next also ends its wait when this descriptor is readable; -1: none. No effect for a regular file, which always is.
  void WatchInput(int descriptor);

  // A first signal asked to stop: cancel what runs and go on calling Next until all has ended or GiveUp() holds.
  // Also the stops of one answer, where SignalWatch::ForgetStops follows it.
  bool StopRequested() const { return signals_.stops() > 0; }
  // Waiting any longer is of no use: a second signal came, nothing can be cancelled, or cancelling took too long.
  bool GiveUp();
  bool DrainRequested() const { return signals_.drain(); }

  // What the job agreed on, once it is ready; nullptr before.
  const pb::JobReady* ready() const { return session_->ready(); }
  // The latest that the engine said of itself, about once a second; empty before its first.
  const pb::EngineStatus& engine_status() const { return session_->engine_status(); }
  int relaunches() const { return session_->relaunches(); }
  ProgressLine& progress() { return progress_; }
  const RunTotals& totals() const { return totals_; }
  double SecondsSinceReady() const;
  double LoadSeconds() const;  // from the start until the job was ready, or until now

  // Ends the job, in order if that is still possible, and says what there is to say. Its trace, if it has one, is
  // finished; an error there is logged. The session is gone afterwards.
  RunSummary Finish();

 private:
  ClusterRun(std::unique_ptr<Session> session, std::string trace, std::string emulated_link, bool joined,
             bool show_progress);
  void FinishTraceFile() const;
  void RecordReady();
  void Count(const SessionEvent& event);

  struct Running {
    int64_t submitted_us;
    int64_t prompt_tokens;
    bool has_token = false;
  };

  std::unique_ptr<Session> session_;
  const std::string trace_;  // path; empty: none
  const std::string emulated_link_;
  const bool joined_;
  SignalWatch& signals_;
  int waits_ = -1;  // an epoll descriptor: the signals and input_
  int input_ = -1;  // see WatchInput
  ProgressLine progress_;
  RunTotals totals_;
  absl::flat_hash_map<RequestId, Running> running_;
  RequestId last_id_ = 0;
  bool failed_ = false;  // Next gave an error: there is no job to end in order
  const int64_t start_us_;
  int64_t ready_us_ = 0;        // 0: not yet
  int64_t first_token_us_ = 0;  // 0: none yet
  int64_t last_token_us_ = 0;
  int64_t first_token_sum_us_ = 0;
  int64_t stop_us_ = 0;  // when the first stop was noticed
};

// Launches a job, or joins the one this process is part of: `engine_descriptor` is the socket to its engine, -1 for a
// launch. Says what is worth saying about either. Errors carry their exit code.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(LaunchOptions options, int engine_descriptor);

// One job that measures its hosts and links (options.job.probe), launched or joined in the same way, until it has
// ended. Draws the progress on stderr and catches signals (SignalWatch); nothing is launched again. Errors carry their
// exit code; kCancelled: a signal came.
absl::StatusOr<pb::ProbeReport> RunProbeJob(LaunchOptions options, int engine_descriptor, bool show_progress);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_CLUSTER_RUN_H_
