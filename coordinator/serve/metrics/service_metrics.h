#ifndef STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_
#define STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_

// The metrics of a service: events in by plain calls, text out on demand. Times: MonotonicUs(). Not thread-safe.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "coordinator/serve/metrics/metric_text.h"
#include "coordinator/session/session.h"
#include "coordinator/session/session_thread.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct ServiceFacts {
  std::string version;      // of the program
  std::string model;        // as the service shows it
  double start_time_s = 0;  // of the process, since 1970
  bool vllm_names = false;  // the most important ones also under the names of vLLM
  double slo_ttft_s = 0;    // wanted times: to the first token, between two; 0: none
  double slo_itl_s = 0;
};

// Of this process, now.
struct ProcessUse {
  double resident_bytes = 0;
  double cpu_seconds = 0;
};
ProcessUse ReadProcessUse();  // zeros where the system does not say

// A running request of the engine; a call with several choices has one for each. Kept by the receiver of its events,
// who sets the first four; ServiceMetrics sets the others.
struct MeteredRequest {
  std::string api;            // ApiDialect::name
  std::string tenant;         // the key's name
  int64_t prompt_tokens = 0;  // 0: an earlier choice has the same prompt, which is counted once
  int64_t accepted_us = 0;    // when the call had its place in the queue

  int64_t first_token_us = 0, last_token_us = 0;
  int64_t tokens = 0;
};

// Idle share of stages and speed of prompts in the last minute; the engine's sums begin with the job. Not thread-safe.
class BubbleWindow {
 public:
  // The statistics of the session at one moment: sums that grow. Kept for a minute, one each tenth of a second at most.
  void Take(const pb::JobStatistics& statistics, int64_t now_us);

  // 1 - computed / (stages x busy) of about the last `span_us` before the latest Take; 0 without work in it.
  double Over(int64_t span_us) const;
  // The least that the work in it allowed: the same with the time that an ideal pipeline has work for `busy`.
  double FloorOver(int64_t span_us) const;
  // Rows of prompts a second of the time in which there were any to compute, from about `span_us` before `now_us` on.
  // Where there were none then, as it was the last time; 0 before the first.
  double PromptRate(int64_t span_us, int64_t now_us) const;

 private:
  struct Point {
    int64_t at_us = 0;
    int stages = 0;
    double busy_s = 0;     // x stages
    double compute_s = 0;  // of all stages
    double ideal_s = 0;    // busy_s of the ideal pipeline, of which the statistics give the share that it idles
    double prompt_rows = 0;
  };
  // What was computed between two neighbours in which there were prompts.
  struct PromptWork {
    double rows = 0, seconds = 0;
    double rate() const { return seconds > 0 ? rows / seconds : 0; }
  };
  static PromptWork WorkBetween(const Point& before, const Point& after);
  const Point* Before(int64_t at_us) const;
  double IdleShare(int64_t span_us, double Point::*time) const;

  std::deque<Point> points_;
  double last_rate_ = 0;  // of the latest prompts
};

class ServiceMetrics {
 public:
  explicit ServiceMetrics(ServiceFacts facts);

  // HTTP. `route`: one of the service's own, "other" for what is none; never what a client wrote.
  void Answered(absl::string_view route, int status);  // of a stream: when its head is written
  // With a request under way, without one, and with nothing but the client's own closing left to wait for.
  void SetConnections(int64_t active, int64_t idle, int64_t closing);
  void SetStreams(int64_t open) { streams_ = open; }  // of server-sent events
  void CountSlowClient() { ++slow_clients_; }         // one was cut off for not reading
  // A part of a request that means nothing here ("parameter", ...).
  void CountIgnored(absl::string_view kind) { ignored_.Add(kind); }
  void Refused(absl::string_view code) { refused_.Add(code); }  // a generating call that was not taken
  void CompiledGrammar(int64_t us);                             // also in vain; not one that was kept from before

  // Requests. Every one that was Submitted ends by an event with `finished`.
  void Submitted(const MeteredRequest& request) { unstarted_tokens_ += request.prompt_tokens; }
  void RecordEvent(const SessionEvent& event, int64_t now_us, MeteredRequest* request);

  // The session's state and the engine's, at least once a second. One that was seen already is nothing new.
  void TakeStatus(const SessionStatus& status, int64_t now_us);

  const BubbleWindow& bubble() const { return bubble_; }
  // Prompt tokens per second of work on prompts in about the last 30 s, else in the last such work; 0 before any.
  double PromptRate(int64_t now_us) const;

  std::string Text(const ProcessUse& use) const;

 private:
  struct Tokens {
    double prompt = 0, generated = 0;
  };
  void FirstToken(const MeteredRequest& request);
  void CountPrompt(const MeteredRequest& request, int64_t cached_tokens);
  void Ended(const SessionEvent& event, int64_t now_us, const MeteredRequest& request);
  Tokens& TokensOf(const std::string& tenant);
  void TakeLosses(const SessionStatus& status);

  // The text (service_metrics_text.cc).
  void WriteProcess(const ProcessUse& use, MetricText* text) const;
  void WriteHttp(MetricText* text) const;
  void WriteRequests(MetricText* text) const;
  void WriteTokens(MetricText* text) const;
  void WriteTimes(MetricText* text) const;
  void WriteEngine(MetricText* text) const;
  void WriteGuesses(MetricText* text) const;
  void WriteStages(MetricText* text) const;
  void WriteJobs(MetricText* text) const;
  void WriteVllm(MetricText* text) const;
  double Waiting(PriorityClass priority_class) const;  // requests
  double Waiting() const;
  double KvUsage() const;  // of the fullest block group

  const ServiceFacts facts_;

  // HTTP.
  std::map<std::pair<std::string, int>, double> answered_;  // by route and status
  int64_t active_ = 0, idle_ = 0, closing_ = 0, streams_ = 0;
  double slow_clients_ = 0;
  LabelledCounts ignored_, refused_;

  // Requests.
  std::map<std::pair<std::string, std::string>, double> finished_;  // by API and reason
  LabelledCounts slo_met_;
  Tokens tokens_;
  std::map<std::string, Tokens> tokens_of_;  // by tenant
  double cache_queries_ = 0, cache_hits_ = 0;
  int64_t unstarted_tokens_ = 0;  // of the prompts of requests without a token
  MetricHistogram ttft_, itl_, e2e_, queue_, prefill_, decode_;
  MetricHistogram prompt_sizes_, generation_sizes_;
  MetricHistogram grammar_compile_;

  // The session.
  SessionStatus status_;
  BubbleWindow bubble_;
  LabelledCounts stage_losses_;
  int losses_seen_ = 0, recoveries_seen_ = 0;  // their numbers
  MetricHistogram recovery_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_
