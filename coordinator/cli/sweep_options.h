#ifndef STAGECOACH_COORDINATOR_CLI_SWEEP_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SWEEP_OPTIONS_H_

// The options of a sweep: lists that make points, and what all points share. From them the points, and from a point the
// options of its job and the command line that measures it alone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/dummy_options.h"
#include "coordinator/cli/plan_places.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct SweepOptions {
  ClusterOptions cluster;  // what all points share; its model is set by ResolveSweepLists
  DummyOptions dummy;
  SweepLists lists;
  std::vector<std::string> policies, chunkings, wire_types, kv_types, arrivals, prompts,
      outputs;                     // as given, with commas
  std::vector<std::string> links;  // as given, one each
  std::optional<uint64_t> seed;
  PlaceSources sources;   // what predictions rest on
  bool no_probe = false;  // where these are not given
  std::string directory;
};

void AddSweepOptions(CLI::App* app, SweepOptions* options);

// Checks what was given and fills options->cluster.model and options->lists, names and texts in their one form.
absl::Status ResolveSweepLists(SweepOptions* options);

// The options of a job that probes the hosts of all points, over their real links.
ClusterOptions ProbeOptionsOf(const SweepOptions& options);

// The options of the job that measures this point. `context`: tokens that its longest sequence may have.
ClusterOptions ClusterOptionsOf(const SweepOptions& options, const SweepConfig& point, int64_t context);

// "coordinator sweep ...": measures this point alone, into a directory of that name.
std::string CommandOf(const SweepOptions& options, const SweepConfig& point);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SWEEP_OPTIONS_H_
