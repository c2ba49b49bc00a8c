#ifndef STAGECOACH_COORDINATOR_BENCH_SWEEP_MEASURE_H_
#define STAGECOACH_COORDINATOR_BENCH_SWEEP_MEASURE_H_

// Measures the points of a sweep on a running job, from the front: what a client of the pipeline would see.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/session/cluster_run.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Turns the events of requests into the figures of a result. Pure; times are microseconds of one clock; not
// thread-safe.
class RequestMeter {
 public:
  // The bounds of a good request; 0: none.
  RequestMeter(double slo_ttft_s, double slo_itl_s) : slo_ttft_s_(slo_ttft_s), slo_itl_s_(slo_itl_s) {}

  void Arrived(RequestId request, int64_t at_us, int64_t prompt_tokens);
  void Tokens(RequestId request, int64_t at_us, int64_t tokens);  // never before the ones ahead of them
  void Ended(RequestId request);                                  // with all its tokens
  void Failed(RequestId request);

  // The result without the job's statistics. Requests that neither ended nor failed count as unfinished.
  SweepResult Result() const;

 private:
  struct Request {
    int64_t arrived_us = 0;
    int64_t prompt_tokens = 0;
    std::vector<int64_t> token_us;
  };

  const double slo_ttft_s_, slo_itl_s_;
  absl::flat_hash_map<RequestId, Request> running_;
  int64_t arrived_ = 0;
  int64_t first_arrival_us_ = 0, last_token_us_ = 0;
  std::vector<double> ttft_s_, itl_s_, latency_s_;  // of those that ended
  int64_t slo_output_tokens_ = 0;
  SweepResult sums_;  // its counts
};

// What a request says beforehand that it expects (GenerationRequest::prediction), given its answer: so much of it right
// that of all tokens behind the first about the share `acceptance` is guessed right. Others are replaced by a neighbour
// in the vocabulary, by `seed`.
std::vector<TokenId> PredictionOf(const std::vector<TokenId>& answer, double acceptance, uint64_t seed, int64_t vocab);

// Adds the statistics of a job between two moments in which only the measured requests ran. The result has its rates.
void TakeStatistics(const pb::JobStatistics& before, const pb::JobStatistics& after, int64_t blocks,
                    SweepResult* result, std::vector<SweepStage>* stages);

// Runs the points of one launch. Where a point has an acceptance, its requests sample at temperature 1, which no text
// of theirs foretells, and are sent twice: for their answers, and again to be measured, each with a prediction of its
// answer. Errors: kCancelled after a signal; the session's, after which the job is gone; others
// concern only the point.
class SweepRunner {
 public:
  SweepRunner(ClusterRun* cluster, int64_t vocab) : cluster_(cluster), vocab_(vocab) {}

  // Waits until the job is ready, and warms it up: two short requests of this point.
  absl::Status Begin(const SweepConfig& point, const std::vector<ArrivingRequest>& requests);

  // An open loop sends each request at its time. A closed loop sends one whenever another has ended, until the
  // duration, if any, is over. With a duration, an open loop cancels what has not ended after twice the duration.
  absl::Status Run(const SweepConfig& point, std::vector<ArrivingRequest> requests, SweepResult* result,
                   std::vector<SweepStage>* stages);

  // Whether the job can still run another point.
  bool alive() const { return alive_; }

 private:
  absl::StatusOr<std::optional<SessionEvent>> Next(absl::Duration most);  // notes whether the job is gone
  absl::Status LearnAnswers(const SweepConfig& point, const std::vector<ArrivingRequest>& requests);
  // number: the request's in its load.
  absl::Status Submit(const SweepConfig& point, size_t number, const ArrivingRequest& request, int64_t arrived_us,
                      RequestMeter* meter);
  absl::Status Await(absl::Duration most, RequestMeter* meter, RequestFeed* feed);
  absl::Status Serve(const SweepConfig& point, RequestFeed* feed, RequestMeter* meter);
  absl::Status CancelAll();
  // The job's statistics once it is idle and they cover at least `rows_` rows.
  absl::StatusOr<pb::JobStatistics> AwaitStatistics();

  ClusterRun* const cluster_;
  const int64_t vocab_;
  struct Running {
    size_t number = 0;
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;  // so far
  };
  absl::flat_hash_map<RequestId, Running> running_;
  bool learning_ = false;                      // answers_
  std::vector<std::vector<TokenId>> answers_;  // of the point's requests, by number; none without an acceptance
  uint64_t drawn_ = 0;                         // random tokens so far: no two prompts of a launch begin alike
  uint64_t rows_ = 0;                          // that the stages must have computed for what ended, at least
  int64_t rest_until_us_ = 0;  // what the engine reported before says nothing of requests that were cancelled
  bool alive_ = true;
};

// What a signal ended, in the words of the command line's end.
inline constexpr absl::string_view kInterrupted = "interrupted";

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SWEEP_MEASURE_H_
