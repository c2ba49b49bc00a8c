#ifndef STAGECOACH_COORDINATOR_CLI_SIMULATE_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SIMULATE_OPTIONS_H_

// The options of `coordinator simulate`, and the load that they ask for.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/cli/plan_places.h"
#include "coordinator/cli/probe_options.h"
#include "coordinator/plan/assumed_facts.h"
#include "coordinator/sim/simulation.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct SimulateOptions {
  ProbeOptions probe;  // the model, and all that makes a job
  PlaceSources sources;
  bool split_by_cost = false;

  // As given, and after ReadSimulatedLoad in full.
  std::string arrivals = "closed", prompt = "128", output = "64";
  std::optional<int64_t> request_count;
  RequestLoad load;
  std::vector<ArrivingRequest> requests;
  std::optional<int64_t> concurrency;
  double slo_ttft_s = 0;
  std::optional<uint64_t> seed;

  double coordinator_us = kAssumedTurnUs, wake_us = kAssumedWakeUs, front_us = kFrontUs;
  std::vector<std::string> fail_at;
  SimFailures failures;

  bool json = false;
  std::vector<std::string> policies;  // comma lists, as given
  std::string directory;              // of points; empty: none is kept
  std::string replay;

  // Requests under way at any time; 0: no limit.
  int64_t Concurrency() const;

  static constexpr int64_t kDefaultRequests = 64;
  static constexpr double kFrontUs = 50;  // a guess
};

void AddSimulateOptions(CLI::App* app, SimulateOptions* options);

// Fills load, requests and failures.at_s.
absl::Status ReadSimulatedLoad(SimulateOptions* options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SIMULATE_OPTIONS_H_
