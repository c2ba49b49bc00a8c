#ifndef STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_
#define STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_

// What a service counts of itself. It is told what happens by plain calls and gives its text on demand. Times are
// MonotonicUs(). Not thread-safe: one thread calls everything.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "coordinator/serve/metrics/bubble_window.h"
#include "coordinator/serve/metrics/metric_text.h"
#include "coordinator/session/session.h"
#include "coordinator/session/session_thread.h"

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

// One request of the engine, while it runs; of a call with several choices each is one. Kept by whoever gets its
// events: the first four are set by it, the others by ServiceMetrics.
struct MeteredRequest {
  std::string api;            // ApiDialect::name
  std::string tenant;         // the key's name
  int64_t prompt_tokens = 0;  // 0: an earlier choice has the same prompt, which is counted once
  int64_t accepted_us = 0;    // when the call had its place in the queue

  int64_t first_token_us = 0, last_token_us = 0;
  int64_t tokens = 0;
};

class ServiceMetrics {
 public:
  explicit ServiceMetrics(ServiceFacts facts);

  // HTTP. `route`: one of the service's own, "other" for what is none; never what a client wrote.
  void Answered(absl::string_view route, int status);  // of a stream: when its head is written
  // With a request under way, without one, and with nothing but the client's own closing left to wait for.
  void SetConnections(int64_t active, int64_t idle, int64_t closing);
  void SetStreams(int64_t open) { streams_ = open; }  // of server-sent events
  void SlowClient() { ++slow_clients_; }              // one was cut off for not reading
  // A part of a request that means nothing here ("parameter", ...).
  void Ignored(absl::string_view kind) { ignored_.Add(kind); }
  void Refused(absl::string_view code) { refused_.Add(code); }  // a generating call that was not taken

  // Requests. Every one that was Submitted ends by an event with `finished`.
  void Submitted(const MeteredRequest& request) { unstarted_tokens_ += request.prompt_tokens; }
  void Took(const SessionEvent& event, int64_t now_us, MeteredRequest* request);

  // The session's state and the engine's, at least once a second. One that was seen already is nothing new.
  void TakeStatus(const SessionStatus& status, int64_t now_us);

  const BubbleWindow& bubble() const { return bubble_; }
  // Tokens of prompts per second of work on prompts, of about the last 30 s, else of the last ones: how long a queue
  // takes. 0 before the first.
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

  // The session.
  SessionStatus status_;
  BubbleWindow bubble_;
  LabelledCounts stage_losses_;
  int losses_seen_ = 0, recoveries_seen_ = 0;  // their numbers
  MetricHistogram recovery_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_METRICS_SERVICE_METRICS_H_
