#ifndef STAGECOACH_COORDINATOR_BENCH_SWEEP_PLAN_H_
#define STAGECOACH_COORDINATOR_BENCH_SWEEP_PLAN_H_

// The points of a sweep: the product of its lists, in order of measurement, grouped into launches. Pure, except
// RequestsOf and ArrivalsHash.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/emulated_link.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

// The lists of the command line, each in the user's order and with at least one value, except `max_num_seqs`.
struct SweepLists {
  SweepConfig base;  // what all points share
  // Of a job.
  std::vector<int64_t> stages = {0}, threads = {0}, decode_groups = {0}, micro_batches = {0};
  std::vector<int64_t> prefill_chunks = {JobSettings().prefill_chunk}, block_tokens = {JobSettings().block_tokens};
  std::vector<int64_t> max_num_batched_tokens = {JobSettings().max_num_batched_tokens};
  std::vector<int64_t> max_num_seqs;  // empty: the most of `concurrency`, at least kFewestSeqs
  std::vector<Policy> policies = {JobSettings().policy};
  std::vector<Chunking> chunkings = {JobSettings().chunking};
  std::vector<WireType> wire_types = {JobSettings().wire_type};
  std::vector<KvType> kv_types = {JobSettings().kv_type};
  std::vector<EmulatedLink> links = {EmulatedLink()};
  std::vector<Speculate> speculations = {SweepConfig().speculate};
  std::vector<double> acceptances = {0};  // one above 0 makes its job speculate, by kAuto where the list says kOff
  // Of the load.
  std::vector<std::string> arrivals = {"closed"};                 // as ParseArrivals takes them
  std::map<std::string, std::string> arrivals_hashes;             // of those that are traces: of their files
  std::vector<int64_t> concurrency = {8};                         // of a closed loop; an open one is measured once
  std::vector<std::string> prompts = {"512"}, outputs = {"128"};  // as ParseLengths takes them; a trace has its own
  int64_t repetitions = 1;
  static constexpr int64_t kFewestSeqs = 8;
};

// All points, without duplicates. Repetitions are outermost, so that drift (heat, other users) affects all points
// alike; then what needs its own launch, then the loads. If the base gives neither `requests` nor `duration_s`, a
// closed loop has kRoundsOfClosedLoop requests per slot of its concurrency (at least kFewestRequests), Poisson arrivals
// have kRequestsOfPoisson, and a trace has all of its own.
std::vector<SweepConfig> PointsOf(const SweepLists& lists);
// kInvalidArgument: the lists make more than kMostPoints points.
absl::Status CheckPointCount(const SweepLists& lists);
inline constexpr double kMostPoints = 100'000;
inline constexpr int64_t kRoundsOfClosedLoop = 4, kFewestRequests = 8, kRequestsOfPoisson = 64;

// What is most telling of a point, for people: "pp 2, t 1, throttled/512, f32, closed x8, 128 -> 64, run 1".
// coordinator/report/sweep_cells.h has names that tell the points of a directory apart.
std::string PointName(const SweepConfig& point);

// The configuration of a point's job: the point without its load. Points whose jobs are equal can share a launch.
SweepConfig JobOf(const SweepConfig& point);

// Points that one launch measures, in their order: points that follow each other and have equal jobs and repetitions.
using SweepLaunch = std::vector<SweepConfig>;
std::vector<SweepLaunch> LaunchesOf(const std::vector<SweepConfig>& points);

// Of the file of arrivals that are a trace (SweepConfig::arrivals_hash); else empty. kNotFound: it cannot be read.
absl::StatusOr<std::string> ArrivalsHash(const std::string& arrivals);

// The requests of a point's load, equal for all its repetitions; with a duration at most kMostTimedRequests. Errors:
// those of the trace; kInvalidArgument if no request is left.
absl::StatusOr<std::vector<ArrivingRequest>> RequestsOf(const SweepConfig& point);
inline constexpr int64_t kMostTimedRequests = 100'000;

// Tokens of context that the longest of them needs.
int64_t ContextOf(const std::vector<ArrivingRequest>& requests);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SWEEP_PLAN_H_
