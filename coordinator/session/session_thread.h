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
#include "coordinator/channel/water_mark.h"
#include "coordinator/request/request_room.h"
#include "coordinator/session/session.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// How a session fares, as of at most a second ago.
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

  // What a prompt and its answer may have together, in the job that was ready last; 0: none was yet.
  int64_t context_tokens() const;
};

// Called by the thread of Run, between turns; what it calls must not wait for anything.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  // What one turn brought, in order, under the ids of Submit. Of every request that was taken exactly one event has
  // `finished`, the last one; REASON_FAILED too, when the session ended before the request did.
  virtual void OnEvents(std::vector<SessionEvent> events) = 0;
  // After every turn: at least once a second, and after a signal or Wake.
  virtual void OnTurn() {}
  // Once, when the session takes nothing more: as Run will return. The events of what it cut short follow.
  virtual void OnEnding(const absl::Status& /*ended*/) {}
};

class SessionThread {
 public:
  // Tokens that were handed to the listener and not yet Consumed: from the high mark to the low one nothing is read
  // from the engine, which then stops in its turn.
  static constexpr int64_t kHighTokens = 65536, kLowTokens = 16384;

  // The listener outlives this object. Nobody else uses the session any more.
  SessionThread(std::unique_ptr<Session> session, SessionListener* listener);
  ~SessionThread();  // ends the job, hard if it must; Run has returned or was never called

  // Runs the session on the calling thread until it is drained, stopped or fails, and ends the job. Once.
  // OK when all that was taken has ended, kCancelled after Stop, else what Session::NextBatch said.
  absl::Status Run();

  // The rest is for any thread, the listener's calls included.

  // Takes a request under an id that the caller draws, above every earlier one (kInvalidArgument). Does not wait.
  // kOutOfRange: the job that was ready last cannot hold it; kFailedPrecondition: the session drains; when it has
  // ended: what Run returned. What is taken while no job is ready may end as REASON_REJECTED.
  absl::Status Submit(RequestId id, GenerationRequest request);
  void Cancel(RequestId id);      // of an unfinished request; else nothing
  void Drain() { Ask(&drain_); }  // take no more requests, and end when those that were taken have ended
  void Stop() { Ask(&stop_); }    // end now
  void Wake();                    // makes a turn; also for signal handlers

  // The listener's side has dealt with as many tokens (TokensIn). All that is delivered is to be consumed in the end,
  // that of cancelled requests too.
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
