#ifndef STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_
#define STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_

// The runs that `verify` compares (the planned job, and the same requests computed in ways that must not matter), and
// the execution of one run on its job.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/session/cluster_run.h"
#include "coordinator/verify/verify_requests.h"

namespace stagecoach {

struct VerifyRun {
  // What a run sends ahead of the tokens that are known. kSent: suffix guesses, and of every request a prediction of
  // its answer that is right in most places, with several rows of a sequence in flight whatever that costs.
  enum class Guesses : uint8_t { kAsPlanned, kNone, kSent };

  std::string name;                  // "as planned", "chunks of 7"
  std::vector<int64_t> layer_split;  // empty: as the planned job
  bool one_stage = false;
  int64_t prefill_chunk = 0;  // 0: as the planned job
  bool one_by_one = false;    // each request when the one before it has ended, otherwise all at once
  bool restarted = false;     // requests come with a part of their answers, as after a loss
  Guesses guesses = Guesses::kAsPlanned;
  bool same_job = false;  // as the run before
  std::string left_out;   // why it says nothing here; empty: it is run
  bool needs_answers() const { return restarted || guesses == Guesses::kSent; }  // of an earlier run
  // Left out without a failure if there is no memory for it.
  bool optional() const { return one_stage || !layer_split.empty(); }
};

// Up to `most` other splits of the layers of `planned`: one layer moved to the stage before; all but the minimum on the
// last stage, then on the first; one layer moved to the stage behind; then even splits over fewer stages (2 at least).
std::vector<std::vector<int64_t>> OtherSplits(const std::vector<int64_t>& planned, int64_t most);

struct VerifyWays {
  std::vector<int64_t> chunks;  // a size that is named twice is compared once
  int64_t splits = 0;
  int64_t longest_prompt = 0;  // tokens
  bool exact_wire = true;      // hidden states travel as they are, otherwise splits may matter
};

// The largest chunk of a prompt that `job` computes, in rows.
int64_t LargestChunk(const pb::ConfigureJob& job);

// The runs after the first, whose job has `planned` layers on its stages. Includes, as left out, runs that would
// compare nothing or may differ.
std::vector<VerifyRun> RunsBeside(const std::vector<int64_t>& planned, const pb::ConfigureJob& job,
                                  const VerifyWays& ways);

// The launch of `run`, derived from the planned job's, whose stages had `planned` layers. Keeps those layers for the
// planned job's stages even if memory or speeds have changed.
LaunchOptions LaunchOfRun(const VerifyRun& run, LaunchOptions launch, const std::vector<int64_t>& planned);

// Output tokens that request `index` of `count` comes with after a restart: a different number for each, at least one
// and less than `new_tokens`.
int64_t KeptTokens(size_t index, size_t count, int64_t new_tokens);

// Layers of each stage of a job that is ready.
std::vector<int64_t> LayersOf(const pb::JobReady& ready);

// kOutOfRange: the first request that the job cannot hold, and the options that help.
absl::Status CheckRoomForRequests(const std::vector<VerifyRequest>& requests, const pb::JobReady& ready);

// A prediction of the answer `tokens` that is wrong in every kWrongPredictionPeriod-th place.
inline constexpr size_t kWrongPredictionPeriod = 4;
std::vector<TokenId> PredictionOf(const std::vector<SampledToken>& tokens);

// `earlier`: whole answers, which a restarted run continues and one that sends guesses predicts; otherwise unused.
// `layers`: checksums that each row must have; 0: none required. Errors: kCancelled after a signal; kUnavailable if a
// request cannot be computed; kInvalidArgument if one is refused; others are the session's.
absl::StatusOr<std::vector<VerifyAnswer>> RunRequests(const VerifyRun& run, const std::vector<VerifyRequest>& requests,
                                                      const std::vector<VerifyAnswer>& earlier, int64_t layers,
                                                      ClusterRun* cluster);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_
