#include "coordinator/cli/verify_job.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/request/request_room.h"

namespace stagecoach {
namespace {

// One run's requests on their way.
class RequestsInFlight {
 public:
  RequestsInFlight(const std::vector<VerifyRequest>& requests, ClusterRun* cluster)
      : requests_(requests), cluster_(cluster), answers_(requests.size()) {}

  // `kept`: by request, tokens that it comes with.
  absl::Status SubmitAll(size_t first, size_t end, const std::vector<std::vector<TokenId>>& kept) {
    std::vector<GenerationRequest> batch;
    for (size_t i = first; i < end; ++i) {
      GenerationRequest& request = batch.emplace_back();
      request.prompt = requests_[i].prompt;
      request.output = kept[i];
      request.sampling = requests_[i].sampling;
      request.max_new_tokens = requests_[i].new_tokens;
      request.score_from = 1;
    }
    ASSIGN_OR_RETURN(const RequestId id, cluster_->SubmitAll(std::move(batch)));
    for (size_t i = first; i < end; ++i) running_[id + (i - first)] = i;
    return absl::OkStatus();
  }

  absl::Status AwaitAll() {
    while (!running_.empty()) {
      if (cluster_->StopRequested()) return absl::CancelledError("interrupted");
      ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, cluster_->Next());
      if (event.has_value()) RETURN_IF_ERROR(Take(*event));
    }
    return absl::OkStatus();
  }

  std::vector<VerifyAnswer>& answers() { return answers_; }

 private:
  absl::Status Take(const SessionEvent& event) {
    const auto found = running_.find(event.request);
    if (found == running_.end()) return absl::OkStatus();
    VerifyAnswer& answer = answers_[found->second];
    // Each row comes once and in order.
    for (const TargetLogprobs& scores : event.scores) {
      answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
    }
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const RowChecksums& rows : event.checksums) answer.Take(rows);
    if (!event.finished.has_value()) return absl::OkStatus();
    const std::string& name = requests_[found->second].name;
    running_.erase(found);
    switch (event.finished->reason()) {
      case pb::RequestFinished::REASON_LENGTH: return absl::OkStatus();
      case pb::RequestFinished::REASON_FAILED:
        return absl::UnavailableError(absl::StrCat(name, " could not be computed: ", event.finished->error()));
      case pb::RequestFinished::REASON_REJECTED:
        return UsageError(absl::StrCat(name, " was refused: ", event.finished->error()));
      default: return absl::InternalError(absl::StrCat(name, " ended before all of its tokens were there"));
    }
  }

  const std::vector<VerifyRequest>& requests_;
  ClusterRun* const cluster_;
  std::vector<VerifyAnswer> answers_;
  absl::flat_hash_map<RequestId, size_t> running_;
};

}  // namespace

absl::Status AwaitReadyJob(ClusterRun* cluster) {
  while (cluster->ready() == nullptr) {
    if (cluster->StopRequested()) return absl::CancelledError("interrupted while the stages were loading");
    RETURN_IF_ERROR(cluster->Next().status());
  }
  return absl::OkStatus();
}

std::vector<int64_t> LayersOf(const pb::JobReady& ready) {
  std::vector<int64_t> layers;
  for (const pb::StageSummary& stage : ready.stages()) layers.push_back(stage.last_layer() - stage.first_layer());
  return layers;
}

absl::Status CheckRoomForRequests(const std::vector<VerifyRequest>& requests, const pb::JobReady& ready) {
  for (const VerifyRequest& request : requests) {
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    const int64_t kept = MostKvTokens(prompt, request.new_tokens);
    const int64_t pool = int64_t{ready.blocks()} * ready.block_tokens();
    if (kept <= pool) continue;
    return absl::OutOfRangeError(absl::StrCat(
        request.name, ": ", prompt, " prompt tokens and ", request.new_tokens, " new ones need KV for ", kept,
        " tokens, the pool holds ", pool, " (", ready.blocks(), " blocks of ", ready.block_tokens(),
        "); give it more with --kv-cache-memory, or ask for less with --predict and, to which verify cuts its own "
        "prompts, --ctx-size ", pool));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VerifyAnswer>> RunRequests(const VerifyRun& run, const std::vector<VerifyRequest>& requests,
                                                      const std::vector<VerifyAnswer>& earlier, int64_t layers,
                                                      ClusterRun* cluster) {
  std::vector<std::vector<TokenId>> kept(requests.size());
  if (run.restarted) {
    CHECK_EQ(earlier.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const int64_t tokens = KeptTokens(i, requests.size(), requests[i].new_tokens);
      for (int64_t t = 0; t < tokens; ++t) kept[i].push_back(earlier[i].tokens[static_cast<size_t>(t)].token);
    }
  }
  RequestsInFlight in_flight(requests, cluster);
  for (size_t i = 0; i < requests.size(); i = run.one_by_one ? i + 1 : requests.size()) {
    RETURN_IF_ERROR(in_flight.SubmitAll(i, run.one_by_one ? i + 1 : requests.size(), kept));
    RETURN_IF_ERROR(in_flight.AwaitAll());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    RETURN_IF_ERROR(
        CheckAnswer(requests[i], in_flight.answers()[i], static_cast<int64_t>(kept[i].size()), layers));
  }
  return std::move(in_flight.answers());
}

}  // namespace stagecoach
