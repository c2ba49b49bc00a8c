#ifndef STAGECOACH_COORDINATOR_BENCH_SWEEP_POINT_H_
#define STAGECOACH_COORDINATOR_BENCH_SWEEP_POINT_H_

// One finished point of a sweep: what was asked for, what reproduces it, what came out, and what had been predicted.
// One JSON object a line (points.jsonl), written by `coordinator sweep` and `coordinator simulate`, read by the report.
//
// Units: seconds, bytes, tokens; rates a second; shares from 0 to 1. Empty texts and zeros mean what the fields'
// comments say. Every time of a request is measured at the front: a request arrives when its client means to send it
// (whatever the pipeline is doing then), and a token when the result that brings it reaches the engine, in the front's
// host.
//
//   TTFT     arrival -> first token
//   ITL      between two tokens of one request that follow each other; all of them, of all requests, are one sample
//   latency  arrival -> last token
//   SLO      a request meets it when its TTFT is at most slo_ttft_s and the mean of its ITLs at most slo_itl_s; a bound
//            of 0 is none. Goodput is the rate of those that do (DistServe, Zhong et al. 2024, section 2).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_settings.h"

namespace stagecoach {

inline constexpr int kSweepPointVersion = 2;
inline constexpr char kSweepFileName[] = "points.jsonl";  // in a sweep's directory

// Of a sample of `count` values; all 0 where it is empty. A percentile is the smallest value that at least that share
// of the values is not above (nearest rank).
struct Percentiles {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
  friend bool operator==(const Percentiles&, const Percentiles&) = default;
};
Percentiles PercentilesOf(std::vector<double> values);  // finite ones

// What a point asks for, and all else that decides its value. Files count by their content, so that neither a changed
// file nor another machine gives two values one key. Of the job's settings the record has those that decide a value.
struct SweepConfig : JobSettings {
  SweepConfig() { speculate = Speculate::kOff; }  // made-up texts foretell nothing, or everything

  std::string model;  // absolute path, or dummy://<shape>/<type>
  std::string hosts;  // with their slots, in their order: "node1:2,node2:2"; empty: this host

  std::string program_version;  // of a record of an earlier version: "0.1.0 (record 1)"
  std::string launch;           // what was asked of the launch: "mpirun's arguments --bind-to core"
  std::string machine;          // of a measured point: processor and cores of the coordinator's host
  uint64_t file_bytes = 0;      // of all shards; 0: the model has no file
  int64_t file_time_us = 0;     // since the epoch: when a shard was last changed
  std::string header_hash;      // of the first shard, 16 hexadecimal digits
  std::string arrivals_hash;    // of a trace's file (ContentHash)
  std::string cluster;          // of a simulated point: what its hosts are known from, "cluster hosts.json"
  std::string cluster_hash;     // of these hosts
  std::string world;            // of a simulated point: what was asked of its world, "wake 50 us, a stage lost at 3 s"

  std::string arrivals = "closed";  // "closed", "poisson:<requests a second>", "trace:<file>"
  int64_t concurrency = 0;          // closed loop: requests under way at any time; 0: open loop
  std::string prompt;               // tokens: "128", or a distribution as its option names it
  std::string output;               // "
  int64_t requests = 0;             // that arrive; 0: as many as do in duration_s
  double duration_s = 0;            // after which no more arrive; 0: no such limit
  double slo_ttft_s = 0;            // slo_itl_s is a setting of the job, too
  uint64_t seed = 0;                // of arrivals, lengths and prompts
  int64_t repetition = 0;           // from 0
  double acceptance = 0;            // share of tokens that are guessed right, made so (SweepRunner, or by chance where
                                    // simulated); 0: whatever the job's guessers reach
  friend bool operator==(const SweepConfig&, const SweepConfig&) = default;
};

// 16 hexadecimal digits: a hash of all fields, the same in every program of this version of the record. No file is
// read.
std::string SweepKey(const SweepConfig& config);
// The same without the repetition: values under one such key are repetitions of each other, others are not.
std::string RepetitionsKey(SweepConfig config);
// Where a point's timeline is kept, in the sweep's directory: "traces/<key>.json".
std::string SweepTraceName(const SweepConfig& config);
// Of a file's text or a document: 16 hexadecimal digits.
std::string ContentHash(absl::string_view text);

// On what it ran, and how to run it again.
struct SweepOrigin {
  std::string command;       // a command line that measures this point
  std::string started_at;    // UTC, 2026-11-22T16:00:00Z
  std::string model_type;    // "qwen3 0.6B Q8_0"
  uint64_t model_bytes = 0;  // of all tensors
  uint64_t model_elements = 0;
  std::string host;         // of the coordinator
  std::string processor;    // of that host
  int64_t cores = 0;        // that the coordinator's host allows
  double load_average = 0;  // of that host before the point: runnable threads, over a minute
  bool bf16_dot = false;    // the bit class of the answers
  friend bool operator==(const SweepOrigin&, const SweepOrigin&) = default;
};

// One stage. Times are sums over the point; peaks and resident memory are those of the job up to its end, in which
// other points may have run before.
struct SweepStage {
  std::string host;
  std::string processor;      // of the host; empty: not known
  int64_t cores = 0;          // that the host allows; 0: not known
  uint64_t memory_bytes = 0;  // of the host; 0: not known
  int64_t rank = 0;
  int64_t first_layer = 0, last_layer = 0;  // the last one exclusive
  int64_t threads = 0;
  std::string isa;
  std::string cpus;  // that its threads are bound to, "0-3,8"; "any"
  uint64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0, resident_bytes = 0;
  int64_t blocks = 0, blocks_used_peak = 0;  // of the KV pool
  double compute_s = 0;
  double send_s = 0;
  double wait_s = 0;  // with work in the pipeline, but not computing: busy_s - compute_s
  double bubble = 0;  // wait_s / busy_s
  friend bool operator==(const SweepStage&, const SweepStage&) = default;
};

struct SweepResult {
  double load_s = 0;       // from the launch until the job was ready; the launch may be shared with other points
  double wall_s = 0;       // from the first arrival to the last token
  int64_t requests = 0;    // that ended with all their tokens
  int64_t failed = 0;      // that could not be computed
  int64_t unfinished = 0;  // that were still running when the time was over
  int64_t prompt_tokens = 0, output_tokens = 0;             // of the first
  double prompt_tokens_per_s = 0, output_tokens_per_s = 0;  // these over wall_s
  Percentiles ttft_s, itl_s, latency_s;
  int64_t slo_requests = 0;           // that met both bounds
  double slo_share = 0;               // of all that arrived
  double goodput_requests_per_s = 0;  // slo_requests over wall_s
  double goodput_tokens_per_s = 0;    // their output tokens over wall_s
  double busy_s = 0;                  // with at least one micro-batch in flight
  double bubble = 0;                  // share of the stages' time in busy_s that they did not compute, or in vain
  double bubble_floor = 0;            // the same work could not have had less (coordinator/engine/bubble_meter.h)
  int64_t micro_batches = 0, prefill_rows = 0, decode_rows = 0;
  double tokens_per_core_hour = 0;  // output tokens an hour over the cores of all hosts with stages; 0: not known
  double rows_per_pass = 0;         // rows of a micro-batch on average: each reads all weights once
  int64_t guesses = 0, guesses_right = 0, guesses_void = 0;  // rows sent ahead; a right one saves a step
  double accepted_share = 0;                                 // AcceptedShare (coordinator/session/run_summary.h)
  double void_s = 0;                                         // of the stages' compute_s, for rows that proved void
  int64_t preemptions = 0, relaunches = 0;
  friend bool operator==(const SweepResult&, const SweepResult&) = default;
};

// What the planner says of the same point (coordinator/plan/prediction.h).
struct SweepPrediction {
  std::string source;  // of the facts: "probe" (by the sweep itself), "profile <file>", "cluster <file>", "assumed"
  bool measured_steps = false;  // rests on measured steps of this very model
  int64_t sequences = 0;        // that it reckons with at once
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;
  // Of the whole load, prompts included: what result.output_tokens_per_s should be. Of an open loop no more than
  // arrives.
  double output_tokens_per_s = 0;
  double ttft_s = 0;  // of a prompt alone
  double itl_s = 0;
  int64_t decode_groups = 0;
  double bubble = 0;  // in decode; the sum of the next three
  double bubble_few = 0, bubble_imbalance = 0, bubble_hop = 0;
  double prefill_bubble = 0;        // of a prompt alone
  int64_t bottleneck_stage = 0;     // in decode
  bool bottleneck_is_link = false;  // the link behind it
  friend bool operator==(const SweepPrediction&, const SweepPrediction&) = default;
};

struct SweepPoint {
  SweepConfig config;
  SweepOrigin origin;
  bool simulated = false;  // by a model of the cluster; nothing ran
  std::string error;       // empty: it succeeded; otherwise it failed so, and the results are 0
  SweepResult result;
  std::vector<SweepStage> stages;  // in pipeline order; none where the job never was ready
  std::optional<SweepPrediction> prediction;
  std::string trace;  // the SweepTraceName of its timeline, as of when it was measured; empty: there is none

  bool ok() const { return error.empty(); }
  bool link_emulated() const { return config.emulated_link != EmulatedLink(); }
  friend bool operator==(const SweepPoint&, const SweepPoint&) = default;
};

// The point as one line, with its newline, which ParseSweepPoint reads whatever the point has: numbers that are not
// finite are written as 0, others out of range as the nearest that is in it, texts that are too long without their end.
std::string SweepPointLine(const SweepPoint& point);

// Reads such a line, with or without its newline; whatever stands in it, nothing but this point's texts takes memory.
// Absent fields have their defaults, but for `version`, `key` and `config`; fields of other names are passed over.
// Earlier versions of the record are read, too. A prediction with an error is left out, and a timeline's name that none
// has (it must not lead out of the directory); `left_out` says why. kInvalidArgument: the field, what was expected and
// what was found; also where the key is not that of the configuration.
absl::StatusOr<SweepPoint> ParseSweepPoint(absl::string_view line, std::vector<std::string>* left_out = nullptr);

// The file of a sweep's points: one line each, added as they finish and never changed. Whoever stops half-way leaves
// whole lines and at most a part of one at the end.
struct SweepRecords {
  std::vector<SweepPoint> points;    // of each key the line that came last, measured and simulated each for
                                     // itself; in the order in which they came first
  std::vector<std::string> refused;  // "line 3: <why>": lines that are no points
  std::vector<std::string> remarks;  // sentences about points that are here: what was left out of one, and how many are
                                     // of another version of the program
  bool cut = false;                  // the last line lacks its end and is no point
};

// kNotFound: there is no such file. kDataLoss: it cannot be read.
absl::StatusOr<SweepRecords> ReadSweepFile(const std::string& path);

// Not thread-safe.
class SweepFile {
 public:
  // Opens or makes the file, for this process alone, and takes the part of a line at its end away. kFailedPrecondition:
  // another process writes to it; kNotFound: it cannot be opened.
  static absl::StatusOr<std::unique_ptr<SweepFile>> Open(const std::string& path);
  ~SweepFile();

  // On the disk when it returns. kDataLoss: it is not; the file then ends as it did before, or in a part of the line.
  absl::Status Append(const SweepPoint& point);

 private:
  SweepFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status Write(absl::string_view text);
  absl::Status EndLastLine();

  const std::string path_;
  const int descriptor_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_SWEEP_POINT_H_
