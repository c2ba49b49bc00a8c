#ifndef STAGECOACH_COORDINATOR_FRONT_SESSION_H_
#define STAGECOACH_COORDINATOR_FRONT_SESSION_H_

// The front's view of a cluster: requests go in, tokens come out, and whatever happens to the job in between is dealt
// with here. The session keeps every request's prompt, parameters and the tokens so far (the journal); when the job is
// lost it names who died, launches again, and submits what is unfinished as prompt + tokens so far, so that the stream
// goes on as if nothing had happened. Not thread-safe: one thread calls everything.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/request/priority_class.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct GenerationRequest {
  std::vector<TokenId> prompt;
  // Tokens that an earlier job gave: computed again like the prompt, counted by max_new_tokens, not passed on again.
  std::vector<TokenId> output;
  SamplingParams sampling;
  int64_t max_new_tokens = 0;
  std::vector<TokenId> stop_tokens;
  int64_t score_from = -1;       // see SequenceSpec
  int64_t min_new_tokens = 0;    // no stop token is sampled before
  bool report_progress = false;  // of the prompt: events with `prefill`
  int64_t deadline_us = 0;       // MonotonicUs() of its end, whatever it has then; 0: none. For SessionThread alone
  std::string cache_salt;        // see SequenceSpec
  std::string tenant;            // "
  double weight = 1;             // of kWeightRange
  PriorityClass priority_class = PriorityClass::kDefault;
};

struct SessionEvent {
  RequestId request = 0;
  int64_t at_us = 0;                           // MonotonicUs() of the arrival of tokens or scores at the engine
  std::vector<SampledToken> tokens;            // new ones, in order, each exactly once
  std::vector<TargetLogprobs> scores;          // the rows that score_from asks for, each exactly once, in order
  std::vector<RowChecksums> checksums;         // of rows as they were computed, maybe again; if ConfigureJob asks for them
  std::optional<pb::RequestCost> cost;         // so far, as known by the tokens above; absent without any
  std::optional<pb::PrefillProgress> prefill;  // grows from event to event, whatever jobs report
  // Its cost is of the whole life of the request: the times of the job that gave the first token, and all preemptions.
  std::optional<pb::RequestFinished> finished;
};

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
  virtual absl::Status Submit(RequestId id, GenerationRequest request) = 0;
  // The same for several, in this order, written to the engine at once: while the socket has room for them all, it
  // knows of each before it begins any. With an error those up to the refused one are taken.
  virtual absl::Status SubmitAll(std::vector<std::pair<RequestId, GenerationRequest>> requests) = 0;
  virtual void Cancel(RequestId request) = 0;

  // Waits up to `timeout` for something to report; absent when there was nothing. Also returns (with nothing) when the
  // watched descriptor is readable, a signal arrived, a job was lost, or ready() or load_progress() changed. Relaunches
  // happen in here.
  // Errors are final: kUnavailable (stages lost too often; exit code 5), kFailedPrecondition (launch failed; 4), others
  // (what the engine said; model errors 3).
  virtual absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration timeout) = 0;
  // The same, for all events that are there: those of one read of the engine's socket; empty when there was nothing.
  virtual absl::StatusOr<std::vector<SessionEvent>> NextBatch(absl::Duration timeout) = 0;

  // Also wake up Next when this descriptor is readable (a pipe of a reader thread or a signal handler); -1: none.
  virtual void WatchDescriptor(int descriptor) = 0;

  // Off: nothing more is read from the engine until it is on again, so that it stops in its turn. Requests can be
  // submitted and cancelled, and the job is watched, all the same. Finish reads always.
  virtual void ReadEngine(bool on) = 0;

  // Once the job is ready (it may become ready again after a relaunch): what it agreed on.
  virtual const pb::JobReady* ready() const = 0;
  // Load progress of the job that is coming up, for a progress bar.
  virtual const pb::LoadProgress& load_progress() const = 0;
  virtual bool job_ready() const = 0;  // the present job; false between its loss and the next one's being ready
  virtual int relaunches() const = 0;
  // Of a job that measures (ConfigureJob.probe): the latest it said; complete once it has measured everything. Next
  // returns when it changed. Such a job takes no requests.
  virtual const pb::ProbeReport& probe_report() const = 0;
  // The latest of the present job; empty before its first.
  virtual const pb::EngineStatus& engine_status() const = 0;

  // On: the engine gives its status ten times a second rather than once, and Next returns when it did.
  virtual void WatchEngine(bool on) = 0;
  // The latest, at most kMostLosses, in order.
  virtual const std::vector<StageLoss>& losses() const = 0;
  static constexpr size_t kMostLosses = 64;

  // Sums over all jobs of this session, up to what the present one reported last, a second ago at most. Without stages
  // when no job reported any.
  virtual pb::JobStatistics statistics() const = 0;

  // Ends the job in order and returns the statistics. Waits for work in flight; the watched descriptor is left alone.
  // The session takes no more requests. Errors when no job ever reported: kUnavailable, or what Next said.
  virtual absl::StatusOr<pb::JobStatistics> Finish() = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_SESSION_H_
