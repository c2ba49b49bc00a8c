#ifndef STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_
#define STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_

// Times one test on a running job, from the front: what a user of the pipeline would see.

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

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
};

// The stretch of time in which sequences decode together: from the last one's first token until `tokens` more have
// come, or the first one ends (some are always a few tokens ahead). All tokens of a result share one time, and count
// together. Pure.
class DecodeWindow {
 public:
  // A sequence that has more than `most_before` tokens when the last one has its first would end too soon.
  DecodeWindow(int64_t sequences, int64_t tokens, int64_t most_before)
      : sequences_(sequences), wanted_(tokens), most_before_(most_before) {}

  // Tokens of one sequence, as they arrive: at_us never decreases. `position` is that of the last of them.
  void Note(uint64_t sequence, int64_t at_us, int64_t tokens, int64_t position);
  void Ended();  // a sequence, after its last token

  bool done() const { return done_; }
  // There was none: one was too far ahead, or ended, before the last had begun, or before half of the tokens had come.
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

// Runs tests on a session. Prompts are random tokens, always the same ones; what they decode is chosen by `sampling`,
// of which all have the same seed. Errors: kCancelled after a signal, kUnavailable when the sequences never decoded
// together (kMostAttempts), kInvalidArgument when the job refused one, and what the session says.
class BenchRunner {
 public:
  // Where this process gets so little time that what it submits first ends before the rest is there, a test is run
  // again: as often as this.
  static constexpr int kMostAttempts = 20;

  BenchRunner(ClusterRun* cluster, const BenchScheduling& scheduling, int64_t vocab, SamplingParams sampling)
      : cluster_(cluster), scheduling_(scheduling), vocab_(vocab), sampling_(std::move(sampling)) {}

  // Waits until the job is ready.
  absl::Status AwaitReady();

  absl::StatusOr<BenchSample> Run(const BenchTest& test);

  // So that the test's code and data are warm; a short one, for a deep context costs a whole prefill.
  absl::Status WarmUp(const BenchTest& test);

 private:
  absl::StatusOr<BenchSample> RunPrefill(const BenchTest& test);
  absl::StatusOr<BenchSample> RunDecode(const BenchTest& test);
  absl::Status SubmitAll(const BenchTest& test);
  absl::Status Await(DecodeWindow* window);  // until it is done or missed
  absl::StatusOr<SessionEvent> NextEvent();
  absl::Status EndAll();

  ClusterRun* const cluster_;
  const BenchScheduling scheduling_;
  const int64_t vocab_;
  const SamplingParams sampling_;
  uint64_t drawn_ = 0;  // random tokens so far
  absl::flat_hash_set<RequestId> running_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_BENCH_MEASURE_H_
