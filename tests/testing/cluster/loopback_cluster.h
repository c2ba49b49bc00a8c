#ifndef STAGECOACH_TESTS_TESTING_CLUSTER_LOOPBACK_CLUSTER_H_
#define STAGECOACH_TESTS_TESTING_CLUSTER_LOOPBACK_CLUSTER_H_

// A whole job in one process: the real engine and the real stages as threads over the loopback transport, this test as
// the front.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/loopback.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/request/sequence.h"
#include "proto/engine.pb.h"

namespace stagecoach::testing {

struct ClusterRequest {
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;  // produced before
  pb::SamplingParams sampling;  // see GreedyParams
  int64_t max_new_tokens = 8;
  std::vector<int32_t> stop_tokens;
  std::vector<int32_t> prediction;
  int64_t score_from = -1;
  int cancel_after = -1;  // cancel once so many tokens have come
  std::string cache_salt, tenant;
  std::string grammar;
  double weight = 1;
  int32_t priority_class = 1;
  bool after_others = false;  // submitted once all requests before it have ended
};

struct ClusterAnswer {
  std::vector<pb::SampledToken> tokens;
  std::vector<pb::TargetLogprobs> scores;
  std::vector<pb::RowChecksums> checksums;
  pb::RequestFinished finished;
  // Tokens, log-probabilities and top lists with the exact bits of every float.
  std::string Bits() const;
};

struct ClusterRun {
  std::vector<ClusterAnswer> answers;  // by request
  pb::JobStatistics statistics;
  pb::JobReady ready;
};

// The stages are placed against the order of ranks: nothing may follow from a rank's number.
constexpr int RankOfStage(int stage, int stages) { return stages - stage; }

pb::SamplingParams GreedyParams();
pb::ConfigureJob DefaultJob(const std::string& model_path);

// Who guesses the tokens of a request, in place of the job's own guessers.
using GuesserHook = std::function<std::unique_ptr<Guesser>(const Sequence&)>;

// Runs all requests at once; the status is the JobFailed the engine reported, with its code and stage.
// preempt_at_output: every sequence is preempted once, at so many new tokens; 0: never.
absl::StatusOr<ClusterRun> RunCluster(int stages, const pb::ConfigureJob& job,
                                      const std::vector<ClusterRequest>& requests, FaultHook faults = nullptr,
                                      int64_t preempt_at_output = 0, GuesserHook guesser = nullptr);

// The front's side of a job that measures: sends the job over the socket, which it owns, waits for the complete report,
// and ends the job in order. The status is the JobFailed that the engine reported.
absl::StatusOr<pb::ProbeReport> RunProbeFront(int descriptor, const pb::ConfigureJob& job);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_CLUSTER_LOOPBACK_CLUSTER_H_
