#include "coordinator/bench/sweep_measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"
#include "coordinator/bench/bench_measure.h"
#include "coordinator/guess/prediction_guesser.h"
#include "coordinator/session/run_summary.h"

namespace stagecoach {
namespace {

constexpr int64_t kWarmUpPrompt = 64, kWarmUpOutput = 8, kWarmUpRequests = 2;
// The engine reports once a second; longer than this it never takes while it lives.
constexpr int64_t kSettleUs = 5'000'000;
// After this long its latest report is later than what happened before.
constexpr int64_t kTwoReportsUs = 2'100'000;

double SecondsOf(int64_t us) { return static_cast<double>(us) / 1e6; }
double RateOf(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

// Rows that the stages have computed, once nothing is in flight: the known ones, and guesses that held.
uint64_t RowsOf(const pb::JobStatistics& statistics) {
  return statistics.prefill_rows() + statistics.decode_rows() + statistics.guesses() - statistics.guesses_void();
}

double ShareIdle(double compute_s, double span_s) {
  return span_s > 0 ? std::clamp(1 - compute_s / span_s, 0.0, 1.0) : 0;
}

// Over the cores of all hosts that have stages; 0 where one's are not known.
double TokensPerCoreHour(double output_tokens_per_s, const std::vector<SweepStage>& stages) {
  std::map<std::string, int64_t> cores;  // by host
  for (const SweepStage& stage : stages) cores[stage.host] = std::max(cores[stage.host], stage.cores);
  int64_t sum = 0;
  for (const auto& [host, of_host] : cores) {
    if (of_host == 0) return 0;
    sum += of_host;
  }
  return sum > 0 ? 3600 * output_tokens_per_s / static_cast<double>(sum) : 0;
}

SweepStage StageOf(const pb::StageSummary& before, const pb::StageSummary& after, double busy_s, int64_t blocks) {
  SweepStage stage;
  stage.host = after.host();
  stage.processor = after.processor();
  stage.cores = after.cores();
  stage.memory_bytes = after.memory_bytes();
  stage.rank = after.rank();
  stage.first_layer = after.first_layer();
  stage.last_layer = after.last_layer();
  stage.threads = after.threads();
  stage.isa = InstructionSetName(after.isa());
  stage.cpus = CpuList(after);
  stage.weight_bytes = after.weight_bytes();
  stage.kv_bytes = after.kv_bytes();
  stage.scratch_bytes = after.scratch_bytes();
  stage.resident_bytes = after.resident_bytes();
  stage.blocks = blocks;
  stage.blocks_used_peak = after.blocks_used_peak();
  stage.compute_s = std::max(0.0, after.compute_s() - before.compute_s());
  stage.send_s = std::max(0.0, after.send_s() - before.send_s());
  stage.wait_s = std::max(0.0, busy_s - stage.compute_s);
  stage.bubble = ShareIdle(stage.compute_s, busy_s);
  return stage;
}

}  // namespace

void RequestMeter::Arrived(RequestId request, int64_t at_us, int64_t prompt_tokens) {
  first_arrival_us_ = arrived_ == 0 ? at_us : std::min(first_arrival_us_, at_us);
  ++arrived_;
  running_[request] = {.arrived_us = at_us, .prompt_tokens = prompt_tokens, .token_us = {}};
}

void RequestMeter::Tokens(RequestId request, int64_t at_us, int64_t tokens) {
  const auto found = running_.find(request);
  if (found == running_.end()) return;
  found->second.token_us.insert(found->second.token_us.end(), static_cast<size_t>(tokens), at_us);
  last_token_us_ = std::max(last_token_us_, at_us);
}

void RequestMeter::Ended(RequestId request) {
  const auto node = running_.extract(request);
  if (node.empty()) return;
  const Request& ended = node.mapped();
  ++sums_.requests;
  sums_.prompt_tokens += ended.prompt_tokens;
  if (ended.token_us.empty()) return;
  const int64_t tokens = static_cast<int64_t>(ended.token_us.size());
  sums_.output_tokens += tokens;
  const double ttft_s = SecondsOf(ended.token_us.front() - ended.arrived_us);
  ttft_s_.push_back(ttft_s);
  latency_s_.push_back(SecondsOf(ended.token_us.back() - ended.arrived_us));
  for (size_t i = 1; i < ended.token_us.size(); ++i) {
    itl_s_.push_back(SecondsOf(ended.token_us[i] - ended.token_us[i - 1]));
  }
  const double span_s = SecondsOf(ended.token_us.back() - ended.token_us.front());
  const double mean_itl_s = tokens > 1 ? span_s / static_cast<double>(tokens - 1) : 0;
  if ((slo_ttft_s_ > 0 && ttft_s > slo_ttft_s_) || (slo_itl_s_ > 0 && mean_itl_s > slo_itl_s_)) return;
  ++sums_.slo_requests;
  slo_output_tokens_ += tokens;
}

void RequestMeter::Failed(RequestId request) {
  if (running_.erase(request) > 0) ++sums_.failed;
}

SweepResult RequestMeter::Result() const {
  SweepResult result = sums_;
  result.unfinished = static_cast<int64_t>(running_.size());
  result.wall_s = std::max(0.0, SecondsOf(last_token_us_ - first_arrival_us_));
  result.prompt_tokens_per_s = RateOf(result.prompt_tokens, result.wall_s);
  result.output_tokens_per_s = RateOf(result.output_tokens, result.wall_s);
  result.ttft_s = PercentilesOf(ttft_s_);
  result.itl_s = PercentilesOf(itl_s_);
  result.latency_s = PercentilesOf(latency_s_);
  result.slo_share = RateOf(result.slo_requests, static_cast<double>(arrived_));
  result.goodput_requests_per_s = RateOf(result.slo_requests, result.wall_s);
  result.goodput_tokens_per_s = RateOf(slo_output_tokens_, result.wall_s);
  return result;
}

std::vector<TokenId> PredictionOf(const std::vector<TokenId>& answer, double acceptance, uint64_t seed, int64_t vocab) {
  // Behind a wrong token there is no guess for so many more, until the output's end is found in the prediction again:
  // of aligned places the share `wrong` costs 1 + kLeastMatch tokens each.
  constexpr int64_t kLost = PredictionGuesser::kLeastMatch;
  const double wrong = (1 - acceptance) / (1 + static_cast<double>(kLost) * acceptance);
  std::vector<TokenId> prediction = answer;
  for (int64_t place = 1; place < std::ssize(answer); ++place) {  // the first token is the prompt's
    if (UniformAt(seed, static_cast<uint64_t>(place)) >= wrong) continue;
    TokenId& token = prediction[static_cast<size_t>(place)];
    token = static_cast<TokenId>((token + 1) % vocab);
    place += kLost;
  }
  return prediction;
}

void TakeStatistics(const pb::JobStatistics& before, const pb::JobStatistics& after, int64_t blocks,
                    SweepResult* result, std::vector<SweepStage>* stages) {
  result->micro_batches = static_cast<int64_t>(after.micro_batches() - before.micro_batches());
  result->prefill_rows = static_cast<int64_t>(after.prefill_rows() - before.prefill_rows());
  result->decode_rows = static_cast<int64_t>(after.decode_rows() - before.decode_rows());
  result->guesses = static_cast<int64_t>(after.guesses() - before.guesses());
  result->guesses_right = static_cast<int64_t>(after.guesses_right() - before.guesses_right());
  result->guesses_void = static_cast<int64_t>(after.guesses_void() - before.guesses_void());
  result->accepted_share = AcceptedShare(after, before);
  result->void_s = std::max(0.0, after.void_s() - before.void_s());
  result->rows_per_pass = RateOf(result->prefill_rows + result->decode_rows + result->guesses_right,
                                 static_cast<double>(result->micro_batches));
  result->preemptions = static_cast<int64_t>(after.preemptions() - before.preemptions());
  result->busy_s = std::max(0.0, after.busy_s() - before.busy_s());
  const IdealTime first = IdealOf(before, after.stages_size()), last = IdealOf(after, after.stages_size());
  const double work_s = last.compute_s - first.compute_s;
  result->bubble = ShareIdle(work_s, result->busy_s * after.stages_size());
  result->bubble_floor = ShareIdle(work_s, last.span_s - first.span_s);
  stages->clear();
  const pb::StageSummary none;
  for (int s = 0; s < after.stages_size(); ++s) {
    stages->push_back(
        StageOf(s < before.stages_size() ? before.stages(s) : none, after.stages(s), result->busy_s, blocks));
  }
  result->tokens_per_core_hour = TokensPerCoreHour(result->output_tokens_per_s, *stages);
}

absl::StatusOr<std::optional<SessionEvent>> SweepRunner::Next(absl::Duration most) {
  absl::StatusOr<std::optional<SessionEvent>> event = cluster_->Next(most);
  alive_ = event.ok();
  return event;
}

absl::Status SweepRunner::Begin(const SweepConfig& point, const std::vector<ArrivingRequest>& requests) {
  const absl::Status ready = cluster_->AwaitReady();
  alive_ = ready.ok();
  RETURN_IF_ERROR(ready);
  std::vector<ArrivingRequest> small(requests.begin(),
                                     requests.begin() + std::min<int64_t>(kWarmUpRequests, std::ssize(requests)));
  for (ArrivingRequest& request : small) {
    request.arrival_s = 0;
    request.prompt_tokens = std::min(request.prompt_tokens, kWarmUpPrompt);
    request.output_tokens = std::min(request.output_tokens, kWarmUpOutput);
  }
  RequestMeter unused(0, 0);
  RequestFeed feed(std::move(small), 0);
  SweepConfig warm_up = point;
  warm_up.duration_s = 0;
  return Serve(warm_up, &feed, &unused);
}

absl::Status SweepRunner::Run(const SweepConfig& point, std::vector<ArrivingRequest> requests, SweepResult* result,
                              std::vector<SweepStage>* stages) {
  answers_.clear();
  if (point.acceptance > 0) RETURN_IF_ERROR(LearnAnswers(point, requests));
  ASSIGN_OR_RETURN(const pb::JobStatistics before, AwaitStatistics());
  RequestMeter meter(point.slo_ttft_s, point.slo_itl_s);
  RequestFeed feed(std::move(requests), point.concurrency);
  const absl::Status served = Serve(point, &feed, &meter);
  *result = meter.Result();
  if (alive_) RETURN_IF_ERROR(CancelAll());
  RETURN_IF_ERROR(served);
  ASSIGN_OR_RETURN(const pb::JobStatistics after, AwaitStatistics());
  TakeStatistics(before, after, cluster_->ready()->blocks(), result, stages);
  return absl::OkStatus();
}

absl::Status SweepRunner::LearnAnswers(const SweepConfig& point, const std::vector<ArrivingRequest>& requests) {
  const uint64_t drawn = drawn_;
  answers_.resize(requests.size());
  learning_ = true;
  RequestMeter unused(0, 0);
  RequestFeed feed(requests, point.concurrency);
  const absl::Status served = Serve(point, &feed, &unused);
  if (!served.ok() && alive_) RETURN_IF_ERROR(CancelAll());
  learning_ = false;
  drawn_ = drawn;  // the same prompts again
  return served;
}

absl::Status SweepRunner::Serve(const SweepConfig& point, RequestFeed* feed, RequestMeter* meter) {
  const bool open_loop = point.concurrency == 0;
  const int64_t begin_us = MonotonicUs();
  while (true) {
    const double now_s = SecondsOf(MonotonicUs() - begin_us);
    // An open loop ends with its last request: those that come within the duration, however late this loop is.
    const bool over = !open_loop && point.duration_s > 0 && now_s > point.duration_s;
    while (!over) {
      const std::optional<size_t> number = feed->Take(now_s);
      if (!number.has_value()) break;
      const ArrivingRequest& request = feed->requests()[*number];
      const int64_t meant_us = begin_us + std::llround(request.arrival_s * 1e6);
      RETURN_IF_ERROR(Submit(point, *number, request, open_loop ? meant_us : MonotonicUs(), meter));
    }
    if (running_.empty() && (over || feed->AllTaken())) return absl::OkStatus();
    if (open_loop && point.duration_s > 0 && now_s > 2 * point.duration_s) return absl::OkStatus();
    absl::Duration most = absl::Seconds(1);
    if (const std::optional<double> next = feed->NextAt(); next.has_value() && !over) {
      most = std::clamp(absl::Seconds(*next - now_s), absl::ZeroDuration(), most);
    }
    RETURN_IF_ERROR(Await(most, meter, feed));
  }
}

absl::Status SweepRunner::Submit(const SweepConfig& point, size_t number, const ArrivingRequest& request,
                                 int64_t arrived_us, RequestMeter* meter) {
  GenerationRequest generation;
  if (point.acceptance > 0) {
    generation.sampling = {.temperature = 1, .seed = MixBits(point.seed + drawn_)};
    if (learning_) generation.cache_salt = "answers";  // which guesses for the measured requests must not know
    if (!learning_ && number < answers_.size()) {
      generation.prediction = std::make_shared<const std::vector<TokenId>>(
          PredictionOf(answers_[number], point.acceptance, MixBits(generation.sampling.seed), vocab_));
    }
  }
  for (int64_t i = 0; i < request.prompt_tokens; ++i) {
    generation.prompt.push_back(RandomToken(point.seed, drawn_++, vocab_));
  }
  generation.max_new_tokens = request.output_tokens;
  generation.tenant = request.tenant;
  generation.weight = request.weight;
  generation.priority_class = request.priority_class;
  ASSIGN_OR_RETURN(const RequestId id, cluster_->Submit(std::move(generation)));
  running_[id] = {.number = number, .prompt_tokens = request.prompt_tokens};
  meter->Arrived(id, arrived_us, request.prompt_tokens);
  return absl::OkStatus();
}

absl::Status SweepRunner::Await(absl::Duration most, RequestMeter* meter, RequestFeed* feed) {
  if (cluster_->StopRequested()) return absl::CancelledError(kInterrupted);
  ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, Next(most));
  if (!event.has_value() || !running_.contains(event->request)) return absl::OkStatus();
  const SessionEvent& happened = *event;
  if (!happened.tokens.empty()) {
    const int64_t tokens = static_cast<int64_t>(happened.tokens.size());
    Running& running = running_[happened.request];
    running.output_tokens += tokens;
    for (const SampledToken& token : happened.tokens) {
      if (learning_) answers_[running.number].push_back(token.token);
    }
    meter->Tokens(happened.request, happened.at_us, tokens);
  }
  if (!happened.finished.has_value()) return absl::OkStatus();
  const Running ended = running_[happened.request];
  running_.erase(happened.request);
  // The last token is sampled, but never a row itself.
  if (ended.output_tokens > 0) rows_ += static_cast<uint64_t>(ended.prompt_tokens + ended.output_tokens - 1);
  feed->Finished();
  switch (happened.finished->reason()) {
    case pb::RequestFinished::REASON_REJECTED:
      return absl::OutOfRangeError(absl::StrCat("a request was rejected: ", happened.finished->error()));
    case pb::RequestFinished::REASON_FAILED: meter->Failed(happened.request); break;
    default: meter->Ended(happened.request);
  }
  return absl::OkStatus();
}

absl::Status SweepRunner::CancelAll() {
  // How many rows of these were computed, only the engine knows.
  if (!running_.empty()) rest_until_us_ = MonotonicUs() + kTwoReportsUs;
  for (const auto& [id, running] : running_) cluster_->Cancel(id);
  while (!running_.empty() && !cluster_->GiveUp()) {
    ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, Next(absl::Seconds(1)));
    if (event.has_value() && event->finished.has_value()) running_.erase(event->request);
  }
  return absl::OkStatus();
}

absl::StatusOr<pb::JobStatistics> SweepRunner::AwaitStatistics() {
  const int64_t deadline_us = MonotonicUs() + kSettleUs;
  while (true) {
    const pb::EngineStatus& status = cluster_->engine_status();
    const pb::JobStatistics& statistics = status.statistics();
    const bool idle =
        status.requests_running() == 0 && status.requests_waiting() == 0 && status.micro_batches_in_flight() == 0;
    const uint64_t rows = RowsOf(statistics);
    if (idle && statistics.stages_size() > 0 && rows >= rows_ && MonotonicUs() >= rest_until_us_) {
      rows_ = rows;  // with those that were computed twice, or for requests that did not end
      return statistics;
    }
    if (cluster_->StopRequested()) return absl::CancelledError(kInterrupted);
    if (MonotonicUs() > deadline_us) {
      return absl::DeadlineExceededError(absl::StrCat("the engine has not reported ", rows_, " rows after ",
                                                      kSettleUs / 1'000'000, " s of rest, but ", RowsOf(statistics)));
    }
    RETURN_IF_ERROR(Next(absl::Milliseconds(100)).status());
  }
}

}  // namespace stagecoach
