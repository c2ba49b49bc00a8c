#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_OPTIONS_H_

// The options of a sweep: lists that make points, and what all points share. From them the points, and from a point the
// options of its job and the command line that measures it alone.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/cli/options/cluster_options.h"

namespace stagecoach {

// Bounds of sweep --trace: points of a directory, and bytes of a timeline that is kept.
inline constexpr int64_t kMostSweepTraces = 16;
inline constexpr uint64_t kMostSweepTraceBytes = uint64_t{64} << 20;

struct SweepOptions {
  ClusterOptions cluster;  // what all points share; its model is set by ResolveSweep
  SweepLists lists;
  PlaceSources sources;   // what predictions rest on
  bool no_probe = false;  // where these are not given
  bool trace = false;     // keep a timeline of points
  std::string directory;
};

// What --arrivals takes, also for simulate.
inline constexpr char kArrivalsHelp[] =
    "closed: a new request when one ends; poisson:RATE: so many a second on average; trace:FILE: as a file of "
    "{\"arrival_s\", \"prompt_tokens\", \"output_tokens\"} lines says, each with \"tenant\", \"weight\" and \"class\" "
    "where it is of one user of several";
absl::StatusOr<Arrivals> ParseArrivalsOption(absl::string_view text);  // the trace's path becomes absolute

void AddSweepOptions(CLI::App* app, SweepOptions* options);

// Checks what was given and fills options->cluster.model and options->lists, names and texts in their one form; of
// files their content. The lists of what a saved plan (--plan) fixes have its values. Returns the model.
absl::StatusOr<std::shared_ptr<const ModelDescription>> ResolveSweep(const RunContext& context, SweepOptions* options);

// What the points have in common, in a line: load and split of the layers.
std::string LoadAndSplitText(const SweepOptions& options);

// The options of a job that probes the hosts of all points, over their real links.
ClusterOptions ProbeOptionsOf(const SweepOptions& options);

// The options of the job that measures this point. `context`: tokens that its longest sequence may have.
ClusterOptions ClusterOptionsOf(const SweepOptions& options, const SweepConfig& point, int64_t context);

// "coordinator sweep ...": measures this point alone, into a directory of that name.
std::string CommandOf(const SweepOptions& options, const SweepConfig& point);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_SWEEP_OPTIONS_H_
