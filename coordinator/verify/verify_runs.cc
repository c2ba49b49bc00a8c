#include "coordinator/verify/verify_runs.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "common/wire/job_proto.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {
namespace {

constexpr const char* kRounded =
    "hidden states are rounded between stages here (--wire-dtype), so that other splits give other bits; with f32 they "
    "do not";

// One run's requests on their way.
class RequestsInFlight {
 public:
  RequestsInFlight(const std::vector<VerifyRequest>& requests, ClusterRun* cluster)
      : requests_(requests), cluster_(cluster), answers_(requests.size()) {}

  // `batch`: the requests from index `first` on.
  absl::Status SubmitAll(size_t first, std::vector<GenerationRequest> batch) {
    const size_t count = batch.size();
    ASSIGN_OR_RETURN(const RequestId id, cluster_->SubmitAll(std::move(batch)));
    for (size_t i = 0; i < count; ++i) running_[id + i] = first + i;
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

// Rows of each sequence in flight where guesses are sent: behind a wrong guess there are others that stand on it.
constexpr int32_t kRowsWithGuesses = 4;

GenerationRequest RequestFor(const VerifyRequest& asked) {
  GenerationRequest request;
  request.prompt = asked.prompt;
  request.sampling = asked.sampling;
  request.max_new_tokens = asked.new_tokens;
  request.score_from = 1;
  return request;
}

}  // namespace

std::vector<std::vector<int64_t>> OtherSplits(const std::vector<int64_t>& planned, int64_t most) {
  const size_t stages = planned.size();
  const int64_t layers = std::accumulate(planned.begin(), planned.end(), int64_t{0});
  std::vector<std::vector<int64_t>> splits;
  const auto add = [&](std::vector<int64_t> split) {
    const bool known = split == planned || std::find(splits.begin(), splits.end(), split) != splits.end();
    const bool whole = std::all_of(split.begin(), split.end(), [](int64_t part) { return part > 0; });
    if (!known && whole && static_cast<int64_t>(splits.size()) < most) splits.push_back(std::move(split));
  };
  const auto shifted = [&](size_t to, size_t from) {
    std::vector<int64_t> split = planned;
    ++split[to];
    --split[from];
    return split;
  };
  const auto uneven = [&](size_t heavy) {
    std::vector<int64_t> split(stages, 1);
    split[heavy] = layers - static_cast<int64_t>(stages) + 1;
    return split;
  };
  if (stages < 2) return splits;
  const size_t before = (stages - 1) / 2;  // of the stages in the middle
  add(shifted(before, before + 1));
  add(uneven(stages - 1));
  add(uneven(0));
  add(shifted(before + 1, before));
  for (size_t fewer = stages - 1; fewer > 1; --fewer) {
    std::vector<int64_t> split(fewer, layers / static_cast<int64_t>(fewer));
    for (int64_t i = 0; i < layers % static_cast<int64_t>(fewer); ++i) ++split[static_cast<size_t>(i)];
    add(std::move(split));
  }
  return splits;
}

int64_t LargestChunk(const pb::ConfigureJob& job) {
  return std::min<int64_t>(job.prefill_chunk(), job.max_num_batched_tokens());
}

std::vector<VerifyRun> RunsBeside(const std::vector<int64_t>& planned, const pb::ConfigureJob& job,
                                  const VerifyWays& ways) {
  std::vector<VerifyRun> runs;
  VerifyRun one_by_one = {.name = "one after the other"};
  one_by_one.one_by_one = one_by_one.same_job = true;
  runs.push_back(one_by_one);
  const int64_t planned_chunk = LargestChunk(job), most = job.max_num_batched_tokens();
  std::vector<int64_t> known = {job.prefill_chunk()};
  for (const int64_t chunk : ways.chunks) {
    if (std::find(known.begin(), known.end(), chunk) != known.end()) continue;
    known.push_back(chunk);
    runs.push_back({.name = absl::StrCat("chunks of ", chunk)});
    runs.back().prefill_chunk = chunk;
    if (std::min(chunk, most) == planned_chunk) {
      runs.back().left_out = absl::StrCat("no step has more than ", most, " rows (--max-num-batched-tokens)");
    } else if (std::min(chunk, planned_chunk) >= ways.longest_prompt) {  // both cut nothing
      runs.back().left_out =
          absl::StrCat("the longest prompt has ", ways.longest_prompt, " tokens, which are one chunk anyway");
    }
  }
  runs.push_back({.name = "restarted"});
  runs.back().restarted = true;
  if (Speculates(job) && planned.size() > 1) {  // one stage guesses nothing
    runs.push_back({.name = "without guesses"});
    runs.back().guesses = VerifyRun::Guesses::kNone;
  }
  runs.push_back({.name = "with guesses"});
  runs.back().guesses = VerifyRun::Guesses::kSent;
  for (std::vector<int64_t>& split : OtherSplits(planned, ways.splits)) {
    runs.push_back({.name = "another split"});
    runs.back().layer_split = std::move(split);
    if (!ways.exact_wire) runs.back().left_out = kRounded;
  }
  if (planned.size() > 1) {
    runs.push_back({.name = "one stage"});
    runs.back().one_stage = true;
    if (!ways.exact_wire) runs.back().left_out = kRounded;
  }
  return runs;
}

LaunchOptions LaunchOfRun(const VerifyRun& run, LaunchOptions launch, const std::vector<int64_t>& planned) {
  const std::vector<int64_t>& split = run.layer_split.empty() ? planned : run.layer_split;
  launch.stages = run.one_stage ? 1 : static_cast<int>(split.size());
  launch.job.clear_layer_split();
  if (!run.one_stage) launch.job.mutable_layer_split()->Add(split.begin(), split.end());
  if (run.optional()) launch.job.clear_planned_for();  // it is another one on purpose
  if (run.prefill_chunk > 0) launch.job.set_prefill_chunk(static_cast<int32_t>(run.prefill_chunk));
  if (run.guesses == VerifyRun::Guesses::kNone) launch.job.set_speculate(NameOf(kSpeculations, Speculate::kOff));
  if (run.guesses == VerifyRun::Guesses::kSent) {
    launch.job.set_speculate(NameOf(kSpeculations, Speculate::kSuffix));
    launch.job.set_guess_rows(kRowsWithGuesses);
    launch.job.set_micro_batches(std::max({kRowsWithGuesses, launch.job.micro_batches(), launch.stages}));
    launch.job.set_decode_groups(1);  // others would take the places of guesses
  }
  return launch;
}

int64_t KeptTokens(size_t index, size_t count, int64_t new_tokens) {
  const int64_t most = std::max<int64_t>(new_tokens - 1, 0);
  if (count < 2 || most < 2) return std::min<int64_t>(most, 1);
  return 1 + static_cast<int64_t>(index) * (most - 1) / static_cast<int64_t>(count - 1);
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
        "prompts, --ctx-size ",
        pool));
  }
  return absl::OkStatus();
}

std::vector<TokenId> PredictionOf(const std::vector<SampledToken>& tokens) {
  std::vector<TokenId> prediction;
  for (const SampledToken& token : tokens) {
    const bool wrong = (prediction.size() + 1) % kWrongPredictionPeriod == 0;
    prediction.push_back(!wrong ? token.token : token.token == 0 ? 1 : token.token - 1);
  }
  return prediction;
}

absl::StatusOr<std::vector<VerifyAnswer>> RunRequests(const VerifyRun& run, const std::vector<VerifyRequest>& requests,
                                                      const std::vector<VerifyAnswer>& earlier, int64_t layers,
                                                      ClusterRun* cluster) {
  if (run.needs_answers()) CHECK_EQ(earlier.size(), requests.size());
  std::vector<int64_t> kept(requests.size(), 0);
  RequestsInFlight in_flight(requests, cluster);
  std::vector<GenerationRequest> batch;
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerationRequest& request = batch.emplace_back(RequestFor(requests[i]));
    if (run.restarted) {
      kept[i] = KeptTokens(i, requests.size(), requests[i].new_tokens);
      for (int64_t t = 0; t < kept[i]; ++t) request.output.push_back(earlier[i].tokens[static_cast<size_t>(t)].token);
    }
    if (run.guesses == VerifyRun::Guesses::kSent) {
      request.prediction = std::make_shared<const std::vector<TokenId>>(PredictionOf(earlier[i].tokens));
    }
    if (!run.one_by_one && i + 1 < requests.size()) continue;
    const size_t first = i + 1 - batch.size();
    RETURN_IF_ERROR(in_flight.SubmitAll(first, std::exchange(batch, {})));
    RETURN_IF_ERROR(in_flight.AwaitAll());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    RETURN_IF_ERROR(CheckAnswer(requests[i], in_flight.answers()[i], kept[i], layers));
  }
  return std::move(in_flight.answers());
}

}  // namespace stagecoach
