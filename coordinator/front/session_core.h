#ifndef STAGECOACH_COORDINATOR_FRONT_SESSION_CORE_H_
#define STAGECOACH_COORDINATOR_FRONT_SESSION_CORE_H_

// What both kinds of session do: keep the journal, speak with the engine of one job, hand out events in order. Where
// jobs come from and what happens when one is lost is for the derived class. Not thread-safe.

#include <poll.h>

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
#include "coordinator/channel/engine_channel.h"
#include "coordinator/channel/water_mark.h"
#include "coordinator/front/journal.h"
#include "coordinator/front/session.h"
#include "coordinator/front/suspects.h"

namespace stagecoach {

class SessionCore : public Session {
 public:
  absl::Status Submit(RequestId id, GenerationRequest request) override;
  absl::Status SubmitAll(std::vector<std::pair<RequestId, GenerationRequest>> requests) override;
  void Cancel(RequestId request) override;
  absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration timeout) override;
  absl::StatusOr<std::vector<SessionEvent>> NextBatch(absl::Duration timeout) override;
  void WatchDescriptor(int descriptor) override { watched_ = descriptor; }
  const pb::JobReady* ready() const override { return first_ready_.has_value() ? &ready_ : nullptr; }
  const pb::LoadProgress& load_progress() const override { return progress_; }
  bool job_ready() const override { return job_ready_; }
  const pb::ProbeReport& probe_report() const override { return probe_report_; }
  const pb::EngineStatus& engine_status() const override { return status_; }
  void ReadEngine(bool on) override { reads_ = on; }
  void WatchEngine(bool on) override;
  const std::vector<StageLoss>& losses() const override { return losses_; }
  pb::JobStatistics statistics() const override;
  absl::StatusOr<pb::JobStatistics> Finish() override;

 protected:
  explicit SessionCore(pb::ConfigureJob job) : job_(std::move(job)) {}

  // Before waiting: whatever brings a job up. An error is final.
  virtual absl::Status Prepare() = 0;
  // After waiting `waited`: looks at what the derived class watches. `waits`: those of AddWaits with what poll() found.
  // An error is final.
  virtual absl::Status Supervise(absl::Duration waited, absl::Span<const pollfd> waits) = 0;
  // The job is lost, or (while finishing) its connection has ended; `what`: the engine's words, empty when it just went
  // away. Ends with a call of CloseJob, or returns a final error.
  virtual absl::Status OnLost(const std::string& what) = 0;
  // More descriptors to wait for.
  virtual void AddWaits(std::vector<pollfd>* waits) const = 0;
  // Longest single wait.
  virtual absl::Duration longest_wait() const = 0;
  // Waits for the processes of the job to end after its orderly shutdown.
  virtual void AwaitJobEnd() = 0;

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
  // doing, which accuses requests (suspects.h); empty when none did.
  void CloseJob(absl::string_view crash = "");
  pb::ConfigureJob& job() { return job_; }  // what the next job is told
  RequestJournal& journal() { return journal_; }
  const RequestJournal& journal() const { return journal_; }
  bool events_waiting() const { return !events_.empty(); }
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
  void TellWatch();
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
  bool watches_ = false;  // the engine's status
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

#endif  // STAGECOACH_COORDINATOR_FRONT_SESSION_CORE_H_
