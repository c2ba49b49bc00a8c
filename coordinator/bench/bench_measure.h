#ifndef STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_
#define STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_

// Times tests on a running job, from the front: what a user of the pipeline would see.

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/bench/bench_plan.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {

// Token `position` of an endless random prompt; below `vocab`.
TokenId RandomToken(uint64_t seed, uint64_t position, int64_t vocab);

// What one repetition gave.
struct BenchSample {
  int64_t us = 0;
  int64_t tokens = 0;     // counted in that time
  int64_t passes = 0;     // decode: results in that time; each read all weights once
  int64_t positions = 0;  // decode: sum over the tokens of the positions that they attended to
  int64_t begin_us = 0;   // of that time, by the engine's clock
};

// The window in which all sequences decode together: from the last one's first token until `tokens` more have come or
// the first one ends (some are always a few tokens ahead). Tokens of one result share one time and count together.
// Pure.
class DecodeWindow {
 public:
  // A sequence that has more than `most_before` tokens when the last one has its first would end too soon.
  DecodeWindow(int64_t sequences, int64_t tokens, int64_t most_before)
      : sequences_(sequences), wanted_(tokens), most_before_(most_before) {}

  // Tokens of one sequence, as they arrive: at_us never decreases. `position` is that of the last of them.
  void Note(uint64_t sequence, int64_t at_us, int64_t tokens, int64_t position);
  void Ended();  // a sequence, after its last token

  bool done() const { return done_; }
  // There was no window: a sequence was too far ahead or ended before the last one had begun, or before half of the
  // tokens had come.
  bool missed() const { return missed_; }
  const BenchSample& sample() const { return sample_; }  // once done

 private:
  struct Arrival {
    int64_t at_us = 0, tokens = 0, positions = 0;
  };
  void Close(const Arrival& arrival);

  const int64_t sequences_;
  const int64_t wanted_;
  const int64_t most_before_;
  absl::flat_hash_map<uint64_t, int64_t> started_;  // tokens of each before the stretch
  int64_t start_us_ = -1;                           // -1: not all have their first token
  Arrival open_;                                    // the result that may still grow
  BenchSample sample_;
  bool done_ = false, missed_ = false;
};

// Runs tests on a session. Prompts are always the same random tokens; `sampling` chooses what they decode, with one
// seed for all. Errors: kCancelled after a signal; kUnavailable if the sequences never decoded together
// (kMostAttempts); kInvalidArgument if the job refused a request; others are the session's.
class BenchRunner {
 public:
  // How often a test is repeated if this process gets so little CPU time that the first requests end before the last
  // have begun.
  static constexpr int kMostAttempts = 20;

  BenchRunner(ClusterRun* cluster, const JobSettings& settings, int64_t vocab, SamplingParams sampling)
      : cluster_(cluster), settings_(settings), vocab_(vocab), sampling_(std::move(sampling)) {}

  absl::StatusOr<BenchSample> Run(const BenchTest& test);

  // Warms up the test's code and data, with a short test: of a prompt one chunk, and without a deep context.
  absl::Status WarmUp(const BenchTest& test);

 private:
  absl::StatusOr<BenchSample> RunPrefill(const BenchTest& test);
  absl::StatusOr<BenchSample> RunDecode(const BenchTest& test);
  absl::Status SubmitAll(const BenchTest& test);
  absl::Status Await(DecodeWindow* window);  // until it is done or missed
  absl::StatusOr<SessionEvent> NextEvent();
  absl::Status EndAll();

  ClusterRun* const cluster_;
  const JobSettings settings_;
  const int64_t vocab_;
  const SamplingParams sampling_;
  uint64_t drawn_ = 0;  // random tokens so far
  absl::flat_hash_set<RequestId> running_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_
