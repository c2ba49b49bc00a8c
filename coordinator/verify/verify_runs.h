#ifndef STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_
#define STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_

// Which runs `verify` compares (the job as it was planned, and the same requests by other ways that must not matter),
// and one run on its job: requests go in, whole answers come out.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/session/cluster_run.h"
#include "coordinator/verify/verify_requests.h"

namespace stagecoach {

struct VerifyRun {
  std::string name;                  // "as planned", "chunks of 7"
  std::vector<int64_t> layer_split;  // empty: as the planned job
  bool one_stage = false;
  int64_t prefill_chunk = 0;  // 0: as the planned job
  bool one_by_one = false;    // each request when the one before it has ended, otherwise all at once
  bool restarted = false;     // requests come with a part of their answers, as after a loss
  bool same_job = false;      // as the run before
  std::string left_out;       // why it says nothing here; empty: it is run
  // Without the memory for it a job of this kind is left out, and that is no failure.
  bool optional() const { return one_stage || !layer_split.empty(); }
};

// Up to `most` splits of the layers of `planned` other than that one: a layer to the stage before, all layers but the
// fewest to the last stage, to the first, a layer to the stage behind, then even ones over fewer stages (2 at least).
std::vector<std::vector<int64_t>> OtherSplits(const std::vector<int64_t>& planned, int64_t most);

struct VerifyWays {
  std::vector<int64_t> chunks;  // a size that is named twice is compared once
  int64_t splits = 0;
  int64_t longest_prompt = 0;  // tokens
  bool exact_wire = true;      // hidden states travel as they are, otherwise splits may matter
};

// Rows of the largest chunk that `job` computes of a prompt.
int64_t LargestChunk(const pb::ConfigureJob& job);

// The runs that follow the first, whose job has `planned` layers on its stages. Ones that would compare nothing, or
// what may differ, are among them as left out.
std::vector<VerifyRun> RunsBeside(const std::vector<int64_t>& planned, const pb::ConfigureJob& job,
                                  const VerifyWays& ways);

// The launch of `run`, from that of the planned job, which had `planned` layers on its stages. The planned job's stages
// get the layers that it gave them, even if memory or speeds look different by now.
LaunchOptions LaunchOfRun(const VerifyRun& run, LaunchOptions launch, const std::vector<int64_t>& planned);

// Output tokens that request `index` of `count` comes with after a restart: each another number of its `new_tokens`, at
// least one, and not all.
int64_t KeptTokens(size_t index, size_t count, int64_t new_tokens);

// Waits until the job is ready. kCancelled after a signal; others are what the session says.
absl::Status AwaitReadyJob(ClusterRun* cluster);

// Layers of each stage of a job that is ready.
std::vector<int64_t> LayersOf(const pb::JobReady& ready);

// OK, or kOutOfRange with the first request that the job cannot hold and the options that help.
absl::Status CheckRoomForRequests(const std::vector<VerifyRequest>& requests, const pb::JobReady& ready);

// `earlier`: the answers that a restarted run goes on with, of whole runs; otherwise not looked at. `layers`: of the
// checksums that each row must have; 0: it need not. Errors: kCancelled after a signal; kUnavailable where a request
// cannot be computed; kInvalidArgument where one is refused; others are what the session says.
absl::StatusOr<std::vector<VerifyAnswer>> RunRequests(const VerifyRun& run, const std::vector<VerifyRequest>& requests,
                                                      const std::vector<VerifyAnswer>& earlier, int64_t layers,
                                                      ClusterRun* cluster);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_VERIFY_VERIFY_RUNS_H_
