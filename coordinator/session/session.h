#ifndef STAGECOACH_COORDINATOR_SESSION_SESSION_H_
#define STAGECOACH_COORDINATOR_SESSION_SESSION_H_

// The front's view of a cluster: requests go in, tokens come out. The session outlives its jobs: when one is lost, it
// names the cause, launches again, resubmits prompt + tokens so far: streams go on without a gap. Not thread-safe.

#include <poll.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/session/journal.h"
#include "coordinator/session/relaunch_policy.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// A job that was lost.
struct StageLoss {
  int number = 0;            // from 1 in the session
  std::optional<int> stage;  // that was the cause, where it is known
  std::string host;          // its; empty where it is not known
  std::string what;          // "stage 1 (rank 2) was killed by signal 9"
  int64_t at_us = 0;         // MonotonicUs()
  int64_t recovered_us = 0;  // when the next job was ready; 0: none is yet
};

class Session {
 public:
  // A session that launches and supervises its jobs. Returns at once; Next brings up the first job. Errors are those of
  // the options: kNotFound (stage_worker, mpirun or host file), kInvalidArgument.
  static absl::StatusOr<std::unique_ptr<Session>> Launch(const LaunchOptions& options);

  // Joins the engine of this process (started under mpirun or srun): no supervision, a loss is final.
  static std::unique_ptr<Session> Join(int descriptor, pb::ConfigureJob job);

  virtual ~Session() = default;  // ends the job, by force if needed; leaves no process and no file

  // Accepts a request under an id of the caller's, so that a cancel may follow at once: above every earlier one of this
  // session (kInvalidArgument). kOutOfRange: the last ready job cannot hold it. kFailedPrecondition: the session is
  // finished. Before the first ready job the engine checks it, and it may end as REASON_REJECTED. An accepted request
  // is not refused later: a relaunch with less memory delays or preempts it.
  absl::Status Submit(RequestId id, GenerationRequest request);
  // The same for several, in order, with ids from `first` on. While the socket has room, the engine gets all before it
  // begins any. On an error, those before the refused one are accepted.
  absl::Status SubmitAll(RequestId first, std::vector<GenerationRequest> requests);
  void Cancel(RequestId request);

  // Waits up to `timeout` for an event, and relaunches lost jobs. Absent: none came, or the watched descriptor is
  // readable, a signal arrived, a job was lost, or ready(), load_progress() or probe_report() changed. Errors are
  // final: kUnavailable (stages lost too often; exit code 5), kFailedPrecondition (launch failed; 4), else the engine's
  // (model errors 3).
  absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration timeout);
  // The same for all events of one read of the engine's socket.
  absl::StatusOr<std::vector<SessionEvent>> NextBatch(absl::Duration timeout);

  // Next also returns when this descriptor is readable; -1: none.
  void WatchDescriptor(int descriptor) { watched_ = descriptor; }
  // Off: nothing is read from the engine, which then stops too. Finish always reads.
  void ReadEngine(bool on) { reads_ = on; }

  // Of the last ready job; null before the first.
  const pb::JobReady* ready() const { return first_ready_.has_value() ? &ready_ : nullptr; }
  bool job_ready() const { return job_ready_; }                        // the present job
  const pb::LoadProgress& load_progress() const { return progress_; }  // of the job that is coming up
  // The latest of a measuring job (ConfigureJob.probe), which takes no requests.
  const pb::ProbeReport& probe_report() const { return probe_report_; }
  const pb::EngineStatus& engine_status() const { return status_; }  // of the present job: the latest
  virtual int relaunches() const { return 0; }
  const std::vector<StageLoss>& losses() const { return losses_; }  // the latest kMostLosses, in order
  static constexpr size_t kMostLosses = 64;

  // Sums over all jobs, up to the present one's last report, at most a second ago. Without stages before any report.
  pb::JobStatistics statistics() const;

  // Ends the job in order, after the work in flight, and returns the statistics. The session accepts no more requests.
  // Errors when no job ever reported: kUnavailable, or what Next said.
  absl::StatusOr<pb::JobStatistics> Finish();

 protected:
  explicit Session(pb::ConfigureJob job) : job_(std::move(job)) {}

  // Before waiting: whatever brings a job up. An error is final.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // After waiting `waited`. `waits`: those of AddWaits, with poll()'s results. An error is final.
  virtual absl::Status Supervise(absl::Duration /*waited*/, absl::Span<const pollfd> /*waits*/) {
    return absl::OkStatus();
  }
  // The job is lost, or (while finishing) its connection has ended; `what`: the engine's message, empty without one.
  // Calls CloseJob, or returns a final error.
  virtual absl::Status OnLost(const std::string& what) = 0;
  // Whether the job can go on without what failed for good; the next one is then without it.
  virtual bool GoesOnWithout(const pb::JobFailed& /*failed*/) { return false; }
  virtual void AddWaits(std::vector<pollfd>* /*waits*/) const {}  // more descriptors to wait for
  virtual absl::Duration longest_wait() const { return absl::Seconds(1); }
  virtual void AwaitJobEnd() {}  // of the job's processes, after an orderly shutdown

  // Configures a new job on a fresh connection.
  void Connect(int descriptor);
  void Disconnect();
  bool connected() const { return channel_ != nullptr; }
  // Whether the job on this connection has sent anything yet, and whether it did after the latest wait.
  bool heard() const { return heard_; }
  bool received() const { return received_; }
  bool finishing() const { return finishing_; }
  bool was_ready() const { return first_ready_.has_value(); }
  std::optional<int> StageOfRank(int rank) const;                // as the present job said when it was ready
  std::optional<int> lost_stage() const { return lost_stage_; }  // as the engine says
  // Before CloseJob, for a loss.
  void RecordLoss(std::optional<int> stage, const std::string& what);
  // Ends a lost job's completed requests and adds up its statistics. `crash`: how a stage crashed, which makes requests
  // suspect (Suspects); empty when none did.
  void CloseJob(absl::string_view crash = "");
  pb::ConfigureJob& job() { return job_; }  // what the next job is told
  RequestJournal& journal() { return journal_; }
  const RequestJournal& journal() const { return journal_; }
  absl::Duration silence() const { return silence_; }

 private:
  enum class Wake { kTimeout, kActivity, kInterrupted };
  Wake Wait(absl::Duration most);
  absl::Status Take(RequestId id, GenerationRequest request);
  absl::Status Pump();  // deals with what Wait found
  absl::Status ReceiveSome();
  absl::Status Handle(const pb::EngineMessage& message);
  absl::Status HandleEvents(const pb::RequestEvents& events);
  void TakeEvent(std::optional<SessionEvent> event);
  absl::Status AwaitEvents(absl::Duration timeout);
  int64_t NeededKvTokens() const;
  absl::Status HandleReady(const pb::JobReady& ready);
  absl::Status HandleFailed(const pb::JobFailed& failed);
  void SendToEngine(const pb::EngineMessage& message);
  void HandleSent(const absl::Status& sent);
  void SendSubmissions();
  void ReleaseHeld();
  absl::Status AwaitStatistics();

  pb::ConfigureJob job_;
  RequestJournal journal_;
  Suspects suspects_;
  std::deque<SessionEvent> events_;
  std::unique_ptr<EngineChannel> channel_;
  int watched_ = -1;
  absl::Status final_;  // once not OK, the answer of every Next

  // Of the latest wait.
  std::vector<pollfd> waits_;  // the watched descriptor, the channel, those of AddWaits
  absl::Duration waited_;
  bool received_ = false;

  // Of the present job.
  std::deque<RequestId> unsent_;  // it was not told of these yet; only while it is ready
  std::vector<RequestId> held_;   // nor of these, until others are cleared of a suspicion
  std::set<RequestId> given_;     // unfinished ones that it was told of
  WaterMark engine_behind_ = kFrontToEngine;
  bool heard_ = false;
  bool job_ready_ = false;
  absl::Duration silence_;   // time spent waiting since its last word
  pb::EngineStatus status_;  // its latest
  bool ended_ = false;       // in order, after it was told to
  std::optional<int> lost_stage_;

  // Of the session.
  bool reads_ = true;     // from the engine
  bool changed_ = false;  // ready, progress or losses, not yet reported
  bool finishing_ = false;
  bool finished_ = false;
  std::optional<pb::JobReady> first_ready_;
  bool context_given_ = false;    // by the caller, not by the memory of the first job
  int64_t most_pool_tokens_ = 0;  // of any job so far
  pb::JobReady ready_;
  pb::LoadProgress progress_;
  pb::ProbeReport probe_report_;
  pb::JobStatistics sum_;  // of the jobs before the present one
  std::vector<StageLoss> losses_;
  int losses_noted_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_SESSION_H_
