#include "coordinator/session/journal.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/step_messages.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {
namespace {

absl::Status EngineError(RequestId request, absl::string_view what) {
  return absl::InternalError(absl::StrCat("the engine's report on request ", request, " is wrong: ", what));
}

// Of rows whose tokens are known, so many a layer.
absl::Status CheckChecksums(RequestId id, const pb::RowChecksums& checksums, int64_t tokens) {
  const int64_t rows = checksums.rows();
  if (checksums.start() >= 0 && rows > 0 && checksums.start() + rows <= tokens && checksums.values_size() > 0 &&
      checksums.values_size() % rows == 0) {
    return absl::OkStatus();
  }
  return EngineError(id, absl::StrCat(checksums.values_size(), " checksums of ", rows, " rows from ", checksums.start(),
                                      " on, and it has ", tokens, " tokens"));
}

}  // namespace

SessionEvent FinishedEvent(RequestId request, pb::RequestFinished::Reason reason) {
  SessionEvent event;
  event.request = request;
  event.finished.emplace();
  event.finished->set_request(request);
  event.finished->set_reason(reason);
  return event;
}

absl::Status CheckNextId(RequestId id, RequestId last) {
  if (id > last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request id ", id, " does not follow ", last, "; ids grow from request to request"));
}

bool RequestJournal::Entry::stopped() const {
  return !output.empty() &&
         std::find(request.stop_tokens.begin(), request.stop_tokens.end(), output.back()) != request.stop_tokens.end();
}

absl::Status RequestJournal::Add(RequestId id, GenerationRequest request) {
  RETURN_IF_ERROR(CheckNextId(id, last_id_));
  last_id_ = id;
  Entry entry;
  entry.next_scored_row = std::max<int64_t>(0, request.score_from - 1);
  entry.output = std::move(request.output);
  entry.request = std::move(request);
  entries_.emplace(id, std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<RequestJournal::Entry*> RequestJournal::Find(RequestId request) {
  if (request == 0 || request > last_id_) return EngineError(request, "there is no such request");
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::optional<SessionEvent>> RequestJournal::RecordTokens(const pb::TokenDelta& delta) {
  ASSIGN_OR_RETURN(Entry * entry, Find(delta.request()));
  if (entry == nullptr) return std::nullopt;
  SessionEvent event;
  event.request = delta.request();
  for (const pb::TargetLogprobs& scores : delta.scores()) {
    RETURN_IF_ERROR(TakeScores(delta.request(), scores, entry, &event));
  }
  for (const pb::SampledToken& token : delta.tokens()) {
    RETURN_IF_ERROR(TakeToken(delta.request(), token, entry, &event));
  }
  for (const pb::RowChecksums& checksums : delta.checksums()) {
    RETURN_IF_ERROR(CheckChecksums(delta.request(), checksums, entry->tokens()));
    event.checksums.push_back(FromProto(checksums));
  }
  if (delta.has_cost()) TakeCost(delta.cost(), entry);
  if (event.tokens.empty() && event.scores.empty() && event.checksums.empty()) return std::nullopt;
  if (!event.tokens.empty()) event.cost = entry->cost;
  if (entry->began == 0 && !event.tokens.empty()) entry->began = ++begun_;
  progress_ += event.tokens.size() + event.scores.size();
  return event;
}

void RequestJournal::TakeCost(const pb::RequestCost& cost, Entry* entry) {
  const int64_t preemptions = entry->earlier_preemptions + cost.preemptions();
  if (!entry->timed) entry->cost = cost;
  entry->cost.set_preemptions(preemptions);
  // Each job counts over the whole output.
  entry->cost.set_predicted_right(cost.predicted_right());
  entry->cost.set_predicted_wrong(cost.predicted_wrong());
}

absl::StatusOr<std::optional<SessionEvent>> RequestJournal::RecordPrefill(const pb::PrefillProgress& progress) {
  ASSIGN_OR_RETURN(Entry * entry, Find(progress.request()));
  if (entry == nullptr) return std::nullopt;
  const auto prompt = static_cast<int64_t>(entry->request.prompt.size());
  if (progress.total() != prompt || progress.processed() > prompt || progress.cached() < 0 ||
      progress.cached() > progress.processed()) {
    return EngineError(progress.request(),
                       absl::StrCat(progress.processed(), " of ", progress.total(), " tokens processed, ",
                                    progress.cached(), " of them cached, expected up to ", prompt, " of ", prompt));
  }
  if (!entry->output.empty() || progress.processed() <= entry->processed) return std::nullopt;
  entry->processed = progress.processed();
  SessionEvent event;
  event.request = progress.request();
  event.prefill = progress;
  return event;
}

absl::Status RequestJournal::TakeToken(RequestId id, const pb::SampledToken& token, Entry* entry, SessionEvent* event) {
  if (token.token() < 0) return EngineError(id, absl::StrCat("token ", token.token(), " is none"));
  if (token.top_size() > kMaxLogprobs) {
    return EngineError(
        id, absl::StrCat(token.top_size(), " log-probabilities for one token, expected at most ", kMaxLogprobs));
  }
  if (token.position() > entry->tokens()) {
    return EngineError(id, absl::StrCat("a token for position ", token.position(), ", expected ", entry->tokens()));
  }
  if (token.position() < entry->tokens()) return absl::OkStatus();  // known
  if (entry->full()) {
    return EngineError(id,
                       absl::StrCat("a token more than the ", entry->request.max_new_tokens, " that were asked for"));
  }
  entry->output.push_back(token.token());
  event->tokens.push_back(FromProto(token));
  return absl::OkStatus();
}

absl::Status RequestJournal::TakeScores(RequestId id, const pb::TargetLogprobs& scores, Entry* entry,
                                        SessionEvent* event) {
  const int64_t start = scores.start();
  if (start < 0 || (start > entry->next_scored_row && entry->scores_missing())) {
    return EngineError(id, absl::StrCat("scores from row ", start, ", expected ", entry->next_scored_row));
  }
  const int64_t end = std::min(start + scores.logprobs_size(), entry->end_scored_row());
  if (end <= entry->next_scored_row) return absl::OkStatus();  // known, or rows that were not asked for
  const int64_t tops = int64_t{scores.logprobs_size()} * entry->request.sampling.prompt_logprobs;
  if (scores.top_tokens_size() != tops || scores.top_logprobs_size() != tops) {
    return EngineError(id, absl::StrCat(scores.top_tokens_size(), " tokens and ", scores.top_logprobs_size(),
                                        " log-probabilities beside the ", scores.logprobs_size(), " scores from row ",
                                        start, ", expected ", tops));
  }
  event->scores.push_back(FromProto(scores).Rows(entry->next_scored_row, end));
  entry->next_scored_row = end;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SessionEvent>> RequestJournal::RecordFinished(const pb::RequestFinished& finished) {
  ASSIGN_OR_RETURN(Entry * entry, Find(finished.request()));
  if (entry == nullptr) return std::nullopt;
  using Finished = pb::RequestFinished;
  const auto reason = finished.reason();
  if (reason < Finished::REASON_STOP || reason > Finished::REASON_FAILED) {
    return EngineError(finished.request(), absl::StrCat("it ended with the unknown reason ", static_cast<int>(reason)));
  }
  const bool in_order =
      reason != Finished::REASON_CANCELLED && reason != Finished::REASON_REJECTED && reason != Finished::REASON_FAILED;
  if (in_order && entry->scores_missing()) {
    return EngineError(finished.request(), absl::StrCat("it ended without the scores from row ", entry->next_scored_row,
                                                        " to ", entry->end_scored_row() - 1));
  }
  if (reason == Finished::REASON_STOP && !entry->stopped()) {
    return EngineError(finished.request(), "it ended with a stop token that did not arrive");
  }
  if (finished.has_cost()) TakeCost(finished.cost(), entry);
  SessionEvent event;
  event.request = finished.request();
  event.finished = finished;
  *event.finished->mutable_cost() = entry->cost;
  entries_.erase(finished.request());
  ++progress_;
  return event;
}

bool RequestJournal::Cancel(RequestId request) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) return false;
  found->second.cancelled = true;
  return true;
}

pb::SubmitRequest RequestJournal::Submission(RequestId request) const {
  const auto found = entries_.find(request);
  CHECK(found != entries_.end());
  const Entry& entry = found->second;
  pb::SubmitRequest submission;
  submission.set_request(request);
  submission.mutable_prompt()->Add(entry.request.prompt.begin(), entry.request.prompt.end());
  submission.mutable_output()->Add(entry.output.begin(), entry.output.end());
  *submission.mutable_sampling() = ToProto(entry.request.sampling);
  if (entry.request.min_new_tokens > 0) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    pb::SamplingParams* sampling = submission.mutable_sampling();
    sampling->set_min_new_tokens(static_cast<int32_t>(std::min(entry.request.min_new_tokens, kMost)));
    sampling->mutable_end_tokens()->Assign(entry.request.stop_tokens.begin(), entry.request.stop_tokens.end());
  }
  submission.set_report_progress(entry.request.report_progress && entry.output.empty());
  submission.set_max_new_tokens(entry.request.max_new_tokens);
  submission.mutable_stop_tokens()->Add(entry.request.stop_tokens.begin(), entry.request.stop_tokens.end());
  if (entry.request.conversation_tokens >= 0) submission.set_conversation_tokens(entry.request.conversation_tokens);
  submission.set_cache_salt(entry.request.cache_salt);
  if (entry.request.grammar != nullptr) submission.set_grammar(*entry.request.grammar);
  if (const auto& prediction = entry.request.prediction; prediction != nullptr) {
    submission.mutable_prediction()->Add(prediction->begin(), prediction->end());
  }
  submission.set_tenant(entry.request.tenant);
  submission.set_weight(entry.request.weight);
  submission.set_priority_class(static_cast<int32_t>(entry.request.priority_class));
  if (entry.scores_missing() || (entry.request.score_from >= 0 && entry.request.max_new_tokens == 0)) {
    submission.set_score_prompt(true);
    // The row before this position is the first one wanted.
    submission.set_score_from(std::max(entry.request.score_from, entry.next_scored_row + 1));
  }
  return submission;
}

SessionEvent RequestJournal::Finish(RequestId request, pb::RequestFinished::Reason reason) {
  SessionEvent event = FinishedEvent(request, reason);
  *event.finished->mutable_cost() = entries_.at(request).cost;
  entries_.erase(request);
  return event;
}

std::vector<SessionEvent> RequestJournal::FinishComplete(int64_t context) {
  using Finished = pb::RequestFinished;
  std::vector<SessionEvent> events;
  for (auto& [id, entry] : entries_) {
    entry.earlier_preemptions = entry.cost.preemptions();
    entry.timed = !entry.output.empty();
  }
  for (const RequestId id : unfinished()) {
    const Entry& entry = entries_.at(id);
    // A prompt that never ran is the engine's to judge, even one that leaves no room.
    const bool no_room = context > 0 && !entry.output.empty() && entry.tokens() >= context;
    if (entry.cancelled) {
      events.push_back(Finish(id, Finished::REASON_CANCELLED));
    } else if (entry.scores_missing()) {
      continue;
    } else if (entry.stopped()) {
      events.push_back(Finish(id, Finished::REASON_STOP));
    } else if (entry.request.max_new_tokens > 0 && (entry.full() || no_room)) {
      events.push_back(Finish(id, Finished::REASON_LENGTH));
    } else if (entry.request.max_new_tokens == 0 && entry.request.score_from >= 0 && entry.end_scored_row() > 0) {
      events.push_back(Finish(id, Finished::REASON_SCORED));
    }
  }
  return events;
}

SessionEvent RequestJournal::FinishFailed(RequestId request, absl::string_view error) {
  CHECK(unfinished(request));
  SessionEvent event = Finish(request, pb::RequestFinished::REASON_FAILED);
  event.finished->set_error(std::string(error));
  event.finished->set_code(pb::RequestFinished::CODE_ENDED_STAGES);
  return event;
}

bool RequestJournal::answered(RequestId request) const {
  const auto found = entries_.find(request);
  return found != entries_.end() && !found->second.output.empty();
}

std::optional<SessionEvent> RequestJournal::FinishCancelled(RequestId request) {
  if (entries_.count(request) == 0) return std::nullopt;
  return Finish(request, pb::RequestFinished::REASON_CANCELLED);
}

int64_t RequestJournal::LargestNeed(int64_t context, int64_t most) const {
  int64_t largest = 0;
  for (const auto& [id, entry] : entries_) {
    const int64_t prompt = static_cast<int64_t>(entry.request.prompt.size());
    if (prompt > context) continue;
    const int64_t need = MostKvTokens(prompt, std::min(entry.request.max_new_tokens, context - prompt));
    if (need <= most) largest = std::max(largest, need);
  }
  return largest;
}

std::vector<RequestId> RequestJournal::unfinished() const {
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

std::vector<RequestId> RequestJournal::OrderOfResubmission() const {
  std::vector<RequestId> ids = unfinished();
  const auto place = [this](RequestId id) { return entries_.at(id).began - 1; };  // of those that wait: the last
  std::stable_sort(ids.begin(), ids.end(), [&](RequestId a, RequestId b) { return place(a) < place(b); });
  return ids;
}

}  // namespace stagecoach
