#include "coordinator/serve/metrics/service_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;

constexpr size_t kMostTenants = 64;
constexpr int64_t kRateUs = 30000000;
constexpr int64_t kKeptUs = 60000000, kGapUs = 100000;  // of BubbleWindow
constexpr double kMostSeconds = 2560, kMostGapSeconds = 80, kMostCompileSeconds = 10, kMostTokens = 1e6;

double SecondsOf(int64_t us) { return static_cast<double>(std::max<int64_t>(us, 0)) / 1e6; }

const char* ReasonName(const Finished& finished) {
  if (finished.code() == Finished::CODE_DEADLINE) return "deadline";
  switch (finished.reason()) {
    case Finished::REASON_STOP: return "stop";
    case Finished::REASON_LENGTH: return "length";
    case Finished::REASON_CANCELLED: return "cancelled";
    case Finished::REASON_REJECTED: return "rejected";
    case Finished::REASON_SCORED: return "scored";
    default: return "failed";
  }
}

}  // namespace

void BubbleWindow::Take(const pb::JobStatistics& statistics, int64_t now_us) {
  Point point = {.at_us = now_us, .prompt_rows = static_cast<double>(statistics.prefill_rows())};
  point.stages = statistics.stages_size();
  point.busy_s = statistics.busy_s() * point.stages;
  for (const pb::StageSummary& stage : statistics.stages()) point.compute_s += stage.compute_s();
  if (statistics.bubble_floor() < 1) point.ideal_s = point.compute_s / (1 - statistics.bubble_floor());
  // A job with other stages counts in another measure; so does a session that begins.
  if (!points_.empty() && (point.stages != points_.back().stages || point.busy_s < points_.back().busy_s ||
                           point.compute_s < points_.back().compute_s)) {
    points_.clear();
  }
  // The latest is always the latest; those before it are some way apart.
  if (points_.size() >= 2 && points_.back().at_us - points_[points_.size() - 2].at_us < kGapUs) points_.pop_back();
  points_.push_back(point);
  if (points_.size() >= 2) {
    const double rate = WorkBetween(points_[points_.size() - 2], point).rate();
    if (rate > 0) last_rate_ = rate;
  }
  while (points_.size() > 2 && points_[1].at_us <= now_us - kKeptUs) points_.pop_front();
}

const BubbleWindow::Point* BubbleWindow::Before(int64_t at_us) const {
  if (points_.size() < 2) return nullptr;
  // The latest point that is as old, or the oldest that there is.
  const auto younger =
      std::find_if(points_.begin(), points_.end() - 1, [at_us](const Point& point) { return point.at_us > at_us; });
  return younger == points_.begin() ? &points_.front() : &*(younger - 1);
}

double BubbleWindow::IdleShare(int64_t span_us, double Point::*time) const {
  const Point* before = points_.empty() ? nullptr : Before(points_.back().at_us - span_us);
  if (before == nullptr) return 0;
  const double time_s = points_.back().*time - before->*time;
  if (time_s <= 0) return 0;
  return std::clamp(1 - (points_.back().compute_s - before->compute_s) / time_s, 0.0, 1.0);
}

double BubbleWindow::Over(int64_t span_us) const { return IdleShare(span_us, &Point::busy_s); }
double BubbleWindow::FloorOver(int64_t span_us) const { return IdleShare(span_us, &Point::ideal_s); }

// An engine that had no other work was at these prompts as long as it was at anything.
BubbleWindow::PromptWork BubbleWindow::WorkBetween(const Point& before, const Point& after) {
  const double rows = after.prompt_rows - before.prompt_rows;
  if (rows <= 0 || after.stages == 0) return {};
  return {rows, (after.busy_s - before.busy_s) / after.stages};
}

double BubbleWindow::PromptRate(int64_t span_us, int64_t now_us) const {
  PromptWork sum;
  for (size_t i = 1; i < points_.size(); ++i) {
    if (points_[i].at_us <= now_us - span_us) continue;
    const PromptWork work = WorkBetween(points_[i - 1], points_[i]);
    sum.rows += work.rows;
    sum.seconds += work.seconds;
  }
  return sum.rate() > 0 ? sum.rate() : last_rate_;
}

ProcessUse ReadProcessUse() {
  ProcessUse use;
  int64_t pages = 0, resident = 0;
  if (std::ifstream statm("/proc/self/statm"); statm >> pages >> resident) {
    use.resident_bytes = static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  rusage times = {};
  if (getrusage(RUSAGE_SELF, &times) == 0) {
    use.cpu_seconds = static_cast<double>(times.ru_utime.tv_sec + times.ru_stime.tv_sec) +
                      static_cast<double>(times.ru_utime.tv_usec + times.ru_stime.tv_usec) / 1e6;
  }
  return use;
}

ServiceMetrics::ServiceMetrics(ServiceFacts facts)
    : facts_(std::move(facts)),
      ttft_(SecondsBounds(kMostSeconds)),
      itl_(SecondsBounds(kMostGapSeconds)),
      e2e_(SecondsBounds(kMostSeconds)),
      queue_(SecondsBounds(kMostSeconds)),
      prefill_(SecondsBounds(kMostSeconds)),
      decode_(SecondsBounds(kMostSeconds)),
      prompt_sizes_(CountBounds(kMostTokens)),
      generation_sizes_(CountBounds(kMostTokens)),
      grammar_compile_(SecondsBounds(kMostCompileSeconds)),
      recovery_(SecondsBounds(kMostSeconds)) {}

void ServiceMetrics::Answered(absl::string_view route, int status) { ++answered_[{std::string(route), status}]; }

void ServiceMetrics::SetConnections(int64_t active, int64_t idle, int64_t closing) {
  active_ = active;
  idle_ = idle;
  closing_ = closing;
}

void ServiceMetrics::CompiledGrammar(int64_t us) { grammar_compile_.Observe(SecondsOf(us)); }

void ServiceMetrics::RecordEvent(const SessionEvent& event, int64_t now_us, MeteredRequest* request) {
  if (!event.tokens.empty()) {
    const int64_t at_us = event.at_us > 0 ? event.at_us : now_us;
    const uint64_t count = event.tokens.size();
    uint64_t gaps = count;
    if (request->first_token_us == 0) {
      request->first_token_us = at_us;
      FirstToken(*request);
      CountPrompt(*request, event.cost.has_value() ? event.cost->cached_tokens() : 0);
      --gaps;
    } else {
      itl_.Observe(SecondsOf(at_us - request->last_token_us));
      --gaps;
    }
    itl_.Observe(0, gaps);  // those that came together
    request->last_token_us = at_us;
    request->tokens += static_cast<int64_t>(count);
    tokens_.generated += static_cast<double>(count);
    TokensOf(request->tenant).generated += static_cast<double>(count);
  }
  if (event.finished.has_value()) Ended(event, now_us, *request);
}

void ServiceMetrics::FirstToken(const MeteredRequest& request) {
  const double seconds = SecondsOf(request.first_token_us - request.accepted_us);
  ttft_.Observe(seconds);
  if (facts_.slo_ttft_s > 0 && seconds <= facts_.slo_ttft_s) slo_met_.Add("ttft");
  unstarted_tokens_ -= request.prompt_tokens;
}

// When its first token says that it was computed: whoever asks for much is seen while he does.
void ServiceMetrics::CountPrompt(const MeteredRequest& request, int64_t cached_tokens) {
  if (request.prompt_tokens == 0) return;
  const auto prompt_tokens = static_cast<double>(request.prompt_tokens);
  tokens_.prompt += prompt_tokens;
  TokensOf(request.tenant).prompt += prompt_tokens;
  cache_queries_ += prompt_tokens;
  cache_hits_ += std::clamp(static_cast<double>(cached_tokens), 0.0, prompt_tokens);
  prompt_sizes_.Observe(prompt_tokens);
}

void ServiceMetrics::Ended(const SessionEvent& event, int64_t now_us, const MeteredRequest& request) {
  const Finished& finished = *event.finished;
  ++finished_[{request.api, ReasonName(finished)}];
  if (request.tokens == 0) unstarted_tokens_ -= request.prompt_tokens;
  if (finished.reason() == Finished::REASON_REJECTED) return;
  e2e_.Observe(SecondsOf(now_us - request.accepted_us));
  // Whether any of its prompt was computed.
  const pb::RequestCost& cost = finished.cost();
  if (request.tokens == 0 && cost.prefill_us() <= 0) return;
  if (request.tokens == 0) CountPrompt(request, cost.cached_tokens());
  generation_sizes_.Observe(static_cast<double>(request.tokens));
  prefill_.Observe(SecondsOf(cost.prefill_us()));
  if (request.tokens == 0) return;
  // All that it waited for, a lost job's work too.
  queue_.Observe(SecondsOf(request.first_token_us - request.accepted_us - cost.prefill_us()));
  const double decode_s = SecondsOf(request.last_token_us - request.first_token_us);
  decode_.Observe(decode_s);
  if (facts_.slo_itl_s <= 0 || request.tokens < 2) return;
  if (decode_s / static_cast<double>(request.tokens - 1) <= facts_.slo_itl_s) slo_met_.Add("itl");
}

ServiceMetrics::Tokens& ServiceMetrics::TokensOf(const std::string& tenant) {
  const auto found = tokens_of_.find(tenant);
  if (found != tokens_of_.end()) return found->second;
  return tokens_of_[tokens_of_.size() < kMostTenants ? tenant : "other"];
}

void ServiceMetrics::TakeStatus(const SessionStatus& status, int64_t now_us) {
  status_ = status;
  bubble_.Take(status.statistics, now_us);
  TakeLosses(status);
}

void ServiceMetrics::TakeLosses(const SessionStatus& status) {
  for (const StageLoss& loss : status.losses) {
    if (loss.number > losses_seen_) {
      losses_seen_ = loss.number;
      if (!loss.host.empty()) stage_losses_.Add(loss.host);
    }
    if (loss.recovered_us > 0 && loss.number > recoveries_seen_) {
      recoveries_seen_ = loss.number;
      recovery_.Observe(SecondsOf(loss.recovered_us - loss.at_us));
    }
  }
}

double ServiceMetrics::PromptRate(int64_t now_us) const { return bubble_.PromptRate(kRateUs, now_us); }

}  // namespace stagecoach
