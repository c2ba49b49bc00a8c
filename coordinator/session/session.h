#ifndef STAGECOACH_COORDINATOR_SESSION_SESSION_H_
#define STAGECOACH_COORDINATOR_SESSION_SESSION_H_

// The front's view of a cluster: requests go in, tokens come out. The session outlives its jobs: when one is lost it
// names who died, launches again, and submits what is unfinished as prompt + tokens so far, so that the stream goes on
// as if nothing had happened. Not thread-safe.

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
#include "coordinator/channel/water_mark.h"
#include "coordinator/launch/launch_options.h"
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
  // Starts the job by a launcher process and supervises it. Returns at once; Next brings up the job. Errors of the
  // options only: kNotFound (no stage_worker, no mpirun, no host file), kInvalidArgument.
  static absl::StatusOr<std::unique_ptr<Session>> Launch(const LaunchOptions& options);

  // Joins an engine that lives in this very process (started under mpirun or srun): no supervision, a loss is final.
  static std::unique_ptr<Session> Join(int descriptor, pb::ConfigureJob job);

  virtual ~Session() = default;  // ends the job, hard if it must; no process and no file stays behind

  // Takes a request under an id that the caller draws, so that a cancel may follow at once: above every earlier one of
  // this session (kInvalidArgument). kOutOfRange: the job that was ready last cannot hold it. kFailedPrecondition: the
  // session is finished. What is taken before a job is ready is judged by the engine, and may end as REASON_REJECTED. A
  // request that was taken is never refused later: a relaunch with less memory delays or preempts it.
  absl::Status Submit(RequestId id, GenerationRequest request);
  // The same for several, in this order, written to the engine at once: while the socket has room for them all, it
  // knows of each before it begins any. With an error those up to the refused one are taken.
  absl::Status SubmitAll(std::vector<std::pair<RequestId, GenerationRequest>> requests);
  void Cancel(RequestId request);

  // Waits up to `timeout` for an event. Absent: none came, or the watched descriptor is readable, a signal arrived, a
  // job was lost, or ready(), load_progress() or probe_report() changed. Relaunches happen in here. Errors are final:
  // kUnavailable (stages lost too often; exit code 5), kFailedPrecondition (launch failed; 4), others (what the engine
  // said; model errors 3).
  absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration timeout);
  // The same, for all events of one read of the engine's socket.
  absl::StatusOr<std::vector<SessionEvent>> NextBatch(absl::Duration timeout);

  // Next also returns when this descriptor is readable; -1: none.
  void WatchDescriptor(int descriptor) { watched_ = descriptor; }
  // Off: nothing more is read from the engine, so that it stops in its turn; all else goes on. Finish reads always.
  void ReadEngine(bool on) { reads_ = on; }

  // What the latest job that was ready agreed on; null before the first.
  const pb::JobReady* ready() const { return first_ready_.has_value() ? &ready_ : nullptr; }
  bool job_ready() const { return job_ready_; }                        // the present job
  const pb::LoadProgress& load_progress() const { return progress_; }  // of the job that is coming up
  // Of a job that measures (ConfigureJob.probe) and takes no requests: the latest.
  const pb::ProbeReport& probe_report() const { return probe_report_; }
  const pb::EngineStatus& engine_status() const { return status_; }  // of the present job: the latest
  virtual int relaunches() const { return 0; }
  const std::vector<StageLoss>& losses() const { return losses_; }  // the latest kMostLosses, in order
  static constexpr size_t kMostLosses = 64;

  // Sums over all jobs of this session, up to what the present one reported last, a second ago at most. Without stages
  // when no job reported any.
  pb::JobStatistics statistics() const;

  // Ends the job in order and returns the statistics. Waits for work in flight; the watched descriptor is left alone.
  // The session takes no more requests. Errors when no job ever reported: kUnavailable, or what Next said.
  absl::StatusOr<pb::JobStatistics> Finish();

 protected:
  // For the two kinds of session: where jobs come from, and what happens when one is lost.
  explicit Session(pb::ConfigureJob job) : job_(std::move(job)) {}

  // Before waiting: whatever brings a job up. An error is final.
  virtual absl::Status Prepare() { return absl::OkStatus(); }
  // After waiting `waited`: looks at what the derived class watches. `waits`: those of AddWaits with what poll() found.
  // An error is final.
  virtual absl::Status Supervise(absl::Duration /*waited*/, absl::Span<const pollfd> /*waits*/) {
    return absl::OkStatus();
  }
  // The job is lost, or (while finishing) its connection has ended; `what`: the engine's words, empty when it just went
  // away. Ends with a call of CloseJob, or returns a final error.
  virtual absl::Status OnLost(const std::string& what) = 0;
  virtual void AddWaits(std::vector<pollfd>* /*waits*/) const {}  // more descriptors to wait for
  virtual absl::Duration longest_wait() const { return absl::Seconds(1); }
  virtual void AwaitJobEnd() {}  // the end of the job's processes, after its orderly shutdown

  // A new job on a fresh connection; tells it everything it must know.
  void Connect(int descriptor);
  void Disconnect();
  bool connected() const { return channel_ != nullptr; }
  // Whether the job on the present connection has said anything yet, and whether it did after the latest wait.
  bool heard() const { return heard_; }
  bool received() const { return received_; }
  bool finishing() const { return finishing_; }
  bool was_ready() const { return first_ready_.has_value(); }
  std::optional<int> StageOfRank(int rank) const;  // as the present job said when it was ready
  // Which stage the engine says it lost.
  std::optional<int> lost_stage() const { return lost_stage_; }
  // Before CloseJob, where that is for a loss.
  void NoteLoss(std::optional<int> stage, const std::string& what);
  // After the loss of a job: ends what it had completed, adds up its statistics. `crash`: how a stage died by its own
  // doing, which accuses requests (Suspects); empty when none did.
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
  void NoteSent(const absl::Status& sent);
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
