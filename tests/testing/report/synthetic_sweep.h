#ifndef STAGECOACH_TESTS_TESTING_REPORT_SYNTHETIC_SWEEP_H_
#define STAGECOACH_TESTS_TESTING_REPORT_SYNTHETIC_SWEEP_H_

// Points of a sweep that never was, for tests of its report: made by a formula, on a host and a processor that say so.
// Nobody measured these numbers.

#include <cstdint>
#include <vector>

#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

struct SyntheticMatrix {
  std::vector<int64_t> stages = {1, 2, 4};
  std::vector<int64_t> threads = {1};
  std::vector<int64_t> concurrency = {1, 2, 4, 8, 16, 32};
  std::vector<Policy> policies = {Policy::kDecodePriority};
  std::vector<WireType> wire_types = {WireType::kF32};
  std::vector<int64_t> decode_groups = {0};
  std::vector<int64_t> chunks = {256};
  int64_t repetitions = 3;
  double link_latency_s = 0;
  bool simulated = false;
  bool prefill_only = false;
  bool predicted = true;
};

// Every combination, each with all its repetitions, which scatter by a few percent.
std::vector<SweepPoint> SyntheticSweep(const SyntheticMatrix& matrix);

// One of everything that a report shows: scaling, load, choices, emulated links, simulated clusters, prefill and
// failures.
std::vector<SweepPoint> SyntheticExperiment();

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_TESTING_REPORT_SYNTHETIC_SWEEP_H_
