#ifndef STAGECOACH_COORDINATOR_SESSION_SESSION_THREAD_H_
#define STAGECOACH_COORDINATOR_SESSION_SESSION_THREAD_H_

// The thread-safe face of a Session: one thread runs it and alone touches it; any thread submits, cancels, drains and
// asks how it fares. What comes of the requests is handed to a listener, a batch at a time.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/ids.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/request/sequence.h"
#include "coordinator/session/session.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// The state of a session, at most a second old.
struct SessionStatus {
  enum class State {
    kLoading,     // the first job comes up
    kReady,       // a job runs
    kRecovering,  // it was lost, and another one comes up
    kDraining,    // nothing new is taken, what was taken goes on
    kEnded,
  };
  State state = State::kLoading;
  bool job_ready = false;  // one runs now
  int relaunches = 0;
  int64_t unfinished = 0;  // requests
  std::array<int64_t, kPriorityClassCount> unfinished_by_class = {};
  std::vector<StageLoss> losses;  // the latest
  pb::LoadProgress progress;      // of the job that comes up
  pb::JobReady ready;             // what the latest job agreed on; without stages before there was one
  pb::EngineStatus engine;        // the present job's latest; empty before its first
  pb::JobStatistics statistics;   // sums over all jobs

  // The most tokens of a prompt and its answer, of the last ready job; 0 before the first.
  int64_t context_tokens() const;
};

// Called by the thread of Run, between turns; must not block.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  // The events of one turn, in order, under the ids of Submit. The last event of every accepted request, and no other,
  // has `finished`: with REASON_FAILED when the session ended first.
  virtual void OnEvents(std::vector<SessionEvent> events) = 0;
  // After every turn: at least once a second, and after a signal or Wake.
  virtual void OnTurn() {}
  // Once, when the session accepts nothing more, with what Run will return. Events of unfinished requests follow.
  virtual void OnEnding(const absl::Status& /*ended*/) {}
};

class SessionThread {
 public:
  // Of tokens delivered and not yet Consumed: from the high mark to the low one nothing is read from the engine.
  static constexpr int64_t kHighTokens = 65536, kLowTokens = 16384;

  // The listener outlives this object. Nobody else uses the session any more.
  SessionThread(std::unique_ptr<Session> session, SessionListener* listener);
  ~SessionThread();  // ends the job, hard if it must; Run has returned or was never called

  // Runs the session on the calling thread, once, until it is drained, stopped or fails, and ends the job. OK when all
  // requests have ended, kCancelled after Stop, else the error of Session::NextBatch.
  absl::Status Run();

  // The rest is for any thread, the listener's calls included.

  // As Session::Submit, without blocking. kFailedPrecondition: the session drains; after its end, what Run returned.
  absl::Status Submit(RequestId id, GenerationRequest request);
  void Cancel(RequestId id);      // of an unfinished request; else nothing
  void Drain() { Ask(&drain_); }  // take no more requests, and end when those that were taken have ended
  void Stop() { Ask(&stop_); }    // end now
  void Wake();                    // makes a turn; also for signal handlers

  // The listener has processed so many tokens (TokensIn). All that was delivered must be, also if cancelled.
  void Consumed(int64_t tokens);
  static int64_t TokensIn(const SessionEvent& event);  // scored ones too

  std::shared_ptr<const SessionStatus> Status() const;

 private:
  struct Command {
    RequestId id;
    std::optional<GenerationRequest> request;  // absent: it is cancelled
  };
  void Ask(bool* flag);
  absl::Status Turn();
  bool Done();
  void ClearWake();
  void TakeCommands();
  void PauseOrRead();
  void Deliver(std::vector<SessionEvent> events);
  void FailUnfinished(const absl::Status& ended);
  void Publish(bool now);

  const int wake_;  // an eventfd that the session watches
  SessionListener* const listener_;

  // Of the thread of Run.
  std::unique_ptr<Session> session_;
  WaterMark mark_ = {kHighTokens, kLowTokens};
  int64_t published_us_ = 0;
  bool drained_ = false, stopped_ = false;  // what TakeCommands saw

  std::atomic<int64_t> unconsumed_{0};
  std::atomic<bool> paused_{false};

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<Command> commands_;
  RequestId last_id_ = 0;
  absl::flat_hash_map<RequestId, PriorityClass> unfinished_;
  std::array<int64_t, kPriorityClassCount> unfinished_by_class_ = {};
  std::optional<RoomLimits> room_;  // of the latest job that was ready
  bool drain_ = false, stop_ = false;
  std::optional<absl::Status> ended_;
  std::shared_ptr<const SessionStatus> status_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_SESSION_THREAD_H_
