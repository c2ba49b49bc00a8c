#ifndef STAGECOACH_COORDINATOR_CLI_PROBE_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_PROBE_OPTIONS_H_

// The options of verbs that look at a cluster, with a model or without one.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/cli/cluster_options.h"
#include "coordinator/cli/dummy_options.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct ProbeOptions {
  ClusterOptions cluster;
  DummyOptions dummy;
};

// -m or --load-format dummy with what belongs to it, and the options of places. `without`: what the verb does when no
// model is given.
void AddProbeOptions(CLI::App* app, ProbeOptions* options, const std::string& without);

// Sets options->cluster.model and opens the model; nullptr without one. Failures carry their exit code.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenProbeModel(ProbeOptions* options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PROBE_OPTIONS_H_
