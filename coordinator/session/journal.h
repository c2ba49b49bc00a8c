#ifndef STAGECOACH_COORDINATOR_SESSION_JOURNAL_H_
#define STAGECOACH_COORDINATOR_SESSION_JOURNAL_H_

// Requests to a cluster, what comes of them, and what the front remembers of every unfinished one.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/request/sequence.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct GenerationRequest {
  std::vector<TokenId> prompt;
  // Tokens that an earlier job gave: computed again like the prompt, counted by max_new_tokens, not passed on again.
  std::vector<TokenId> output;
  SamplingParams sampling;
  int64_t max_new_tokens = 0;
  std::vector<TokenId> stop_tokens;
  int64_t score_from = -1;           // see SequenceSpec
  int64_t min_new_tokens = 0;        // no stop token is sampled before
  bool report_progress = false;      // of the prompt: events with `prefill`
  int64_t conversation_tokens = -1;  // see SequenceSpec
  std::string cache_salt;            // see SequenceSpec
  // See SequenceSpec; nullptr: none. The choices of a request share it. Where there is one, the tokens that end a
  // generation are among stop_tokens.
  std::shared_ptr<const std::string> grammar;
  std::shared_ptr<const std::vector<TokenId>> prediction;  // "; nullptr: none
  std::string tenant;                                      // "
  double weight = 1;                                       // of kWeightRange
  PriorityClass priority_class = PriorityClass::kDefault;
};

struct SessionEvent {
  RequestId request = 0;
  int64_t at_us = 0;                    // MonotonicUs() of the arrival of tokens or scores at the engine
  std::vector<SampledToken> tokens;     // new ones, in order, each exactly once
  std::vector<TargetLogprobs> scores;   // the rows that score_from asks for, each exactly once, in order
  std::vector<RowChecksums> checksums;  // of rows as they were computed, maybe again; if ConfigureJob asks for them
  std::optional<pb::RequestCost> cost;  // so far, as known by the tokens above; absent without any
  std::optional<pb::PrefillProgress> prefill;  // grows from event to event, whatever jobs report
  // Its cost is of the whole life of the request: the times of the job that gave the first token, and all preemptions.
  std::optional<pb::RequestFinished> finished;
};

// The last event of a request, without its cost.
SessionEvent FinishedEvent(RequestId request, pb::RequestFinished::Reason reason);

// Ids that callers draw grow from request to request: kInvalidArgument otherwise.
absl::Status CheckNextId(RequestId id, RequestId last);

// So that a lost job costs only time: the prompt, the parameters, the tokens and scores that came back. Each position
// is passed on exactly once, whatever jobs report. Pure, and not thread-safe.
class RequestJournal {
 public:
  // `id` is above every earlier one: kInvalidArgument otherwise.
  absl::Status Add(RequestId id, GenerationRequest request);

  // What is new in a report (its at_us is for the caller to set), without positions seen before and finished requests.
  // kInternal, the engine is broken: a position is missing in between, a token is none, or the request was never made.
  absl::StatusOr<std::optional<SessionEvent>> RecordTokens(const pb::TokenDelta& delta);

  // What is new in a word on how far a prompt is; nothing once a token came. kInternal: as above.
  absl::StatusOr<std::optional<SessionEvent>> RecordPrefill(const pb::PrefillProgress& progress);

  // Ends a request; nothing for one that has ended before. kInternal: as above, or what the reason promises is missing.
  absl::StatusOr<std::optional<SessionEvent>> RecordFinished(const pb::RequestFinished& finished);

  // Remembers the wish; false when the request is not there any more.
  bool Cancel(RequestId request);

  // For a job that knows nothing of this request: prompt, tokens so far, and which scores are still missing.
  pb::SubmitRequest Submission(RequestId request) const;

  // After a loss: ends the requests of which only the last word was lost (all tokens there, or cancelled), oldest
  // first. `context`: most tokens a sequence may have, 0 when not known yet.
  std::vector<SessionEvent> FinishComplete(int64_t context);

  // Ends one request with an error, here and now.
  SessionEvent FinishFailed(RequestId request, absl::string_view error);

  bool unfinished(RequestId request) const { return entries_.contains(request); }
  // Whether any of its tokens has come.
  bool answered(RequestId request) const;

  // Ends one request as cancelled, here and now; nothing when it is not there.
  std::optional<SessionEvent> FinishCancelled(RequestId request);

  // KV tokens that the largest unfinished request may come to need, where a sequence has at most `context`; of those
  // that fit `most` (what does not was never accepted).
  int64_t LargestNeed(int64_t context, int64_t most) const;

  std::vector<RequestId> unfinished() const;  // in the order of addition
  // The unfinished ones, those with tokens first, in the order in which they got their first: who reads them waits.
  std::vector<RequestId> OrderOfResubmission() const;
  bool empty() const { return entries_.empty(); }

  // Tokens and scores passed on so far; grows exactly when there is progress.
  uint64_t progress() const { return progress_; }

 private:
  struct Entry {
    GenerationRequest request;
    std::vector<TokenId> output;
    int64_t next_scored_row = 0;  // the first row whose score is still missing
    bool cancelled = false;
    uint64_t began = 0;               // place among all that got a first token, from 1; 0: none yet
    int64_t processed = 0;            // tokens of the prompt, as was passed on
    pb::RequestCost cost;             // over all jobs
    int64_t earlier_preemptions = 0;  // by the jobs before
    bool timed = false;               // an earlier job gave the first token: later ones say nothing of its times

    int64_t tokens() const { return static_cast<int64_t>(request.prompt.size() + output.size()); }
    // Rows are scored from score_from - 1 on, and the last one is that before the prompt's last token.
    int64_t end_scored_row() const {
      return request.score_from < 0 ? 0 : static_cast<int64_t>(request.prompt.size()) - 1;
    }
    bool scores_missing() const { return next_scored_row < end_scored_row(); }
    bool stopped() const;
    bool full() const { return static_cast<int64_t>(output.size()) >= request.max_new_tokens; }
  };

  absl::StatusOr<Entry*> Find(RequestId request);  // nullptr: finished
  absl::Status TakeToken(RequestId id, const pb::SampledToken& token, Entry* entry, SessionEvent* event);
  absl::Status TakeScores(RequestId id, const pb::TargetLogprobs& scores, Entry* entry, SessionEvent* event);
  static void TakeCost(const pb::RequestCost& cost, Entry* entry);
  SessionEvent Finish(RequestId request, pb::RequestFinished::Reason reason);

  std::map<RequestId, Entry> entries_;  // the unfinished
  RequestId last_id_ = 0;
  uint64_t progress_ = 0;
  uint64_t begun_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_JOURNAL_H_
