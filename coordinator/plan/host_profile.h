#ifndef STAGECOACH_COORDINATOR_PLAN_HOST_PROFILE_H_
#define STAGECOACH_COORDINATOR_PLAN_HOST_PROFILE_H_

// Facts about the hosts of a cluster and their links: measured by `coordinator probe`, or written by hand. Both are one
// JSON document, described at ParseHostProfile. Pure; thread-safe.
//
// Units: memory in bytes; memory rates in 10^9 bytes a second; arithmetic in 10^9 operations a second (a multiply-add
// of one element counts as two); times in microseconds; links in 10^9 bits a second.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_choices.h"

namespace stagecoach {

inline constexpr int kHostProfileVersion = 1;

// The summed speed of `stages` processes on a host that run at the same time with `threads` threads each.
struct HostSpeed {
  int stages = 1;
  int threads = 1;       // of each
  double read_gbps = 0;  // from memory; > 0
  double int8_gops = 0;  // > 0
  double bf16_gops = 0;  // 0: the instruction set has no dot instruction for it
  double f32_gops = 0;   // > 0
  friend bool operator==(const HostSpeed&, const HostSpeed&) = default;
};
void SortSpeeds(std::vector<HostSpeed>* speeds);  // by stages, then threads; of equal ones the first stays first

// The time of a step in one process that has the host to itself. Each of `sequences` sequences has the same number of
// `rows`: rows == sequences is decode, otherwise sequences == 1 is a chunk of a prompt. The last row of every sequence
// sees `context` positions, itself included; a chunk from position 0 has context == rows.
struct StepTime {
  int rows = 1;
  int sequences = 1;
  int64_t context = 1;
  int threads = 1;
  double layer_us = 0;  // one layer, all rows
  double head_us = 0;   // norm, output matrix and sampling of one row of every sequence; 0: not measured
  friend bool operator==(const StepTime&, const StepTime&) = default;
};

struct HostFacts {
  std::string name;  // unique in a profile
  int slots = 1;     // stages that it had (or may have); 0: the coordinator's host, no stage runs there
  int cores = 1;     // threads that can compute at once: allowed cores, a CPU quota respected
  int hardware_threads = 1;
  int numa_nodes = 1;
  uint64_t memory_bytes = 0;      // all of the host's
  uint64_t available_bytes = 0;   // that can be taken without swapping, limits respected
  std::string huge_pages;         // "always", "madvise", "never"; empty: not known
  std::vector<std::string> isas;  // instruction sets that its kernels can use, best first; empty: not known
  std::string isa;                // that speeds and steps were measured with; empty: not known
  std::vector<HostSpeed> speeds;  // by ascending stages, then threads; never empty where slots > 0
  std::vector<StepTime> steps;    // of the profile's model; empty: not measured
  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};

// The link from one host to another, or between two processes of one (from == to). Indices into HostProfile::hosts.
struct LinkFacts {
  int from = 0;
  int to = 0;
  double latency_us = 0;        // one way, of a small frame: half of the fastest round trip
  double bandwidth_gbit_s = 0;  // > 0; of frames of 1 MiB
  int from_stage = kNoStage;    // what was measured; kCoordinator is one end of its own, kNoStage: written by hand
  int to_stage = kNoStage;
  double jitter_us = 0;  // what comes on top of the latency by chance, on average; known to simulations alone
  static constexpr int kCoordinator = -1;
  static constexpr int kNoStage = -2;

  double bytes_per_s() const { return bandwidth_gbit_s * 1e9 / 8; }
  friend bool operator==(const LinkFacts&, const LinkFacts&) = default;
};

// An uplink that some hosts share to all others, such as a rack's: in each direction its bandwidth is shared by all
// frames that leave, or enter, these hosts.
struct UplinkFacts {
  std::string name;             // unique in a profile
  double bandwidth_gbit_s = 0;  // > 0; of each direction
  std::vector<int> hosts;       // indices into HostProfile::hosts, each of one uplink at most
  double bytes_per_s() const { return bandwidth_gbit_s * 1e9 / 8; }
  friend bool operator==(const UplinkFacts&, const UplinkFacts&) = default;
};

// A stage of the job that measured, in pipeline order.
struct ProbedStage {
  int host = 0;  // index into HostProfile::hosts
  int rank = 0;
  int threads = 1;             // that a job would give it by default
  double clock_offset_us = 0;  // its clock minus the coordinator's ...
  double clock_error_us = 0;   // ... which is right to within this much
  friend bool operator==(const ProbedStage&, const ProbedStage&) = default;
};

// Which model the step times are of, and which part of it ran.
struct ProbedModel {
  std::string name;          // as it was given: a path, or dummy:<shape>:<type>
  uint64_t file_bytes = 0;   // of all shards
  uint64_t header_hash = 0;  // FileFingerprint::header_hash of the first shard
  int64_t layer = 0;         // the one layer that was timed
  uint64_t layer_bytes = 0;  // its weights as stored
  uint64_t head_bytes = 0;   // output norm, output matrix and bias
  std::string kv_type;       // a name of common/job/job_choices.h
  friend bool operator==(const ProbedModel&, const ProbedModel&) = default;
};

struct HostProfile {
  std::string measured_at;  // UTC, 2026-11-22T16:00:00Z; empty: written by hand
  int coordinator = 0;      // index into hosts: where rank 0 runs
  int draft = -1;           // likewise a job's draft, if it has one; -1: where the coordinator does
  std::vector<HostFacts> hosts;
  std::vector<ProbedStage> stages;        // empty: written by hand
  std::vector<LinkFacts> links;           // each direction for itself where both were measured
  std::optional<LinkFacts> default_link;  // of two different hosts that `links` do not name; from and to mean nothing
  std::vector<UplinkFacts> uplinks;       // empty: no hosts share any
  std::optional<ProbedModel> model;       // of the hosts' step times
  friend bool operator==(const HostProfile&, const HostProfile&) = default;
};

// Where neither a link nor a default says it: two processes of one host.
inline constexpr double kLocalLatencyUs = 2;
inline constexpr double kLocalBandwidthGbitS = 40;

// The link from one host to another (indices): the worst latency and the worst bandwidth of the links that name this
// direction; else of the other one; else within a host the numbers above, between hosts the default. Absent: unknown.
std::optional<LinkFacts> LinkBetween(const HostProfile& profile, int from, int to);

// The host's speed with the most stages not above `stages`, and of these the one with the most threads not above
// `threads`; if all are larger, the smallest. nullptr: the host has no speeds.
const HostSpeed* SpeedOf(const HostFacts& host, int stages, int threads);

// Assumptions for hosts and links that were neither measured nor described: round, conservative numbers of recent
// servers. Good for comparing plans, not for promising speeds. Their ratios decide how layers are split: prompts are
// bound by arithmetic and hardly use the output head; decoding is bound by reading and pays for the head in every step.
inline constexpr double kAssumedReadGbpsOfCore = 10, kAssumedReadGbpsOfHost = 80;  // the lesser of cores' and host's
inline constexpr double kAssumedLinkGbitS = 10, kAssumedLinkLatencyUs = 50;        // between two hosts

// The coordinator's time per micro-batch: 11 to 43 us were seen on two cores of a Sapphire Rapids. The time from a
// frame's arrival until its receiver wakes: a guess. simulate_bench.py --calibrate measures both in a run.
inline constexpr double kAssumedTurnUs = 25, kAssumedWakeUs = 50;

// A host with assumed speeds. `isa`: the instruction set of its stages.
HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes, InstructionSet isa);

LinkFacts AssumedLink();

// The host as its stages are with an instruction set that is not its best one: of a described host, whose rates are
// those of the first of its `isas`, with arithmetic rates in the ratio of the assumed ones. A host that was measured,
// or that does not name its sets, stays as it is.
HostFacts HostWith(const HostFacts& host, InstructionSet isa);

// A cluster file as short as it can be.
inline constexpr char kClusterFileExample[] =
    R"({"hosts": [{"name": "n1", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000}], )"
    R"("link": {"latency_us": 30, "bandwidth_gbit_s": 10}})";

// Reads the document; `file` is for the messages. A profile that was saved has all fields. One written by hand (a
// cluster file) may leave out those that have a default, in parentheses:
//
// Top: version (1), measured_at, coordinator (a host's name; the first host), draft (likewise; the coordinator's),
// hosts (required, at least one), stages, links, link (the default one), uplinks, model.
// A host: name, cores, memory_gib (required); slots (1), hardware_threads (cores), numa_nodes (1), available_gib
// (memory_gib), huge_pages, isas, isa, steps; and its speed: either `speeds`, a list of {stages, threads, read_gb_s,
// int8_gops, bf16_gops, f32_gops}, or these last four at the host itself, for one stage with all cores. There read_gb_s
// and int8_gops are required, bf16_gops is 0 and f32_gops a quarter of int8_gops unless given.
// A link: from, to (names of hosts), latency_us, bandwidth_gbit_s (required; the default link has no names);
// jitter_us (0), from_stage, to_stage. An uplink: name, bandwidth_gbit_s, hosts (names). A field that is not known is
// refused by its name, as is one that stands twice, and what no machine is: more memory available than there is, fewer
// hardware threads than cores, instruction sets of two processors, rates a hundred times those of any.
//
// kInvalidArgument: `file`, the field, what was expected and what was found.
absl::StatusOr<HostProfile> ParseHostProfile(absl::string_view file, absl::string_view text);

// The document of a profile, with every field; parsing it returns the same profile.
std::string HostProfileJson(const HostProfile& profile);

// Reads the file and parses it. kNotFound as of ReadDocument.
absl::StatusOr<HostProfile> ReadHostProfile(const std::string& file);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_HOST_PROFILE_H_
