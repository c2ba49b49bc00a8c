// Who waits for whom, in whole simulated runs.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "coordinator/sim/simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

constexpr int kSlots = 8;

SimOptions TenantRun(const TestCluster& cluster, std::vector<ArrivingRequest> requests, int slots = kSlots) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const ArrivingRequest& a, const ArrivingRequest& b) { return a.arrival_s < b.arrival_s; });
  SimOptions options = RunOf(cluster, 1, 1, 1, slots);
  options.requests = std::move(requests);
  return options;
}

void Append(std::vector<ArrivingRequest>* requests, int count, const ArrivingRequest& request) {
  requests->insert(requests->end(), static_cast<size_t>(count), request);
}

// How long each request of `tenant` waits for its first token, in order of arrival.
std::vector<double> WaitsOf(const SimOptions& options, const std::string& tenant) {
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  std::vector<double> waits;
  for (size_t i = 0; outcome.ok() && i < options.requests.size(); ++i) {
    const SimulatedRequest& request = outcome->requests[i];
    EXPECT_TRUE(request.ended);
    if (options.requests[i].tenant == tenant) waits.push_back(SecondsOf(request.first_ns - request.arrived_ns));
  }
  return waits;
}

TEST(Tenants, OneThatFloodsTheQueueTakesNobodysShare) {
  const TestCluster cluster({0, 1});
  std::vector<ArrivingRequest> both, alone;
  Append(&both, 500, {0, 100, 30, "flood"});
  for (std::vector<ArrivingRequest>* requests : {&both, &alone}) Append(requests, 24, {0.5, 100, 30, "other"});
  const std::vector<double> waits = WaitsOf(TenantRun(cluster, both), "other");
  const std::vector<double> shares = WaitsOf(TenantRun(cluster, alone, kSlots / 2), "other");  // half of the cluster
  // Nobody's turn comes before one that runs has ended.
  const double one_request_s = *std::upper_bound(shares.begin(), shares.end(), shares[0] + 1e-6);
  ASSERT_EQ(waits.size(), 24u);
  for (size_t i = 0; i < waits.size(); ++i) EXPECT_LT(waits[i], 2 * std::max(shares[i], one_request_s)) << i;
}

TEST(Tenants, HaveServiceByTheirWeights) {
  const TestCluster cluster({0, 1});
  const std::map<std::string, double> weights = {{"one", 1}, {"two", 2}, {"four", 4}};
  std::vector<ArrivingRequest> requests;
  for (int i = 0; i < 300; ++i) {
    for (const auto& [tenant, weight] : weights) {
      requests.push_back({0, 20 + i * 37 % 150, 10 + i * 13 % 40, tenant, weight});
    }
  }
  const SimOptions options = TenantRun(cluster, requests);
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  std::map<std::string, int64_t> last_begun_ns;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    int64_t& last_ns = last_begun_ns[options.requests[i].tenant];
    last_ns = std::max(last_ns, outcome->requests[i].first_ns);
  }
  // As long as all three have something waiting.
  const int64_t until_ns = last_begun_ns["four"];
  EXPECT_LT(until_ns, last_begun_ns["two"]);
  std::map<std::string, double> service;
  double all = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    if (outcome->requests[i].first_ns > until_ns) continue;
    const ArrivingRequest& request = options.requests[i];
    const auto had = static_cast<double>(request.prompt_tokens + 2 * request.output_tokens);
    service[request.tenant] += had;
    all += had;
  }
  for (const auto& [tenant, weight] : weights) EXPECT_NEAR(service[tenant] / all * 7 / weight, 1, 0.1) << tenant;
}

TEST(Tenants, WhoComesBackHasNoMoreThanWhoStayed) {
  const TestCluster cluster({0, 1});
  std::vector<ArrivingRequest> requests;
  Append(&requests, 400, {0, 100, 30, "stayed"});
  Append(&requests, 5, {0, 100, 30, "away"});
  Append(&requests, 100, {0.7, 100, 30, "away"});
  const SimOptions options = TenantRun(cluster, requests);
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const int64_t back_ns = NsOf(0.7);
  int64_t last_ns = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    if (options.requests[i].tenant == "away") last_ns = std::max(last_ns, outcome->requests[i].first_ns);
  }
  int stayed = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    const int64_t first_ns = outcome->requests[i].first_ns;
    stayed += options.requests[i].tenant == "stayed" && first_ns > back_ns && first_ns <= last_ns ? 1 : 0;
  }
  EXPECT_NEAR(stayed, 100, 10) << "requests that began while the other had a hundred";
}

// Of four batch requests beside hundreds of interactive ones: how many of those begin before each.
std::vector<int64_t> BegunBefore(int32_t blocks, int64_t output) {
  const TestCluster cluster({0, 1});
  std::vector<ArrivingRequest> requests;
  Append(&requests, 4, {0, 100, output, "b", 1, PriorityClass::kBatch});
  Append(&requests, 400, {0, 100, output, "a", 1, PriorityClass::kInteractive});
  SimOptions options = TenantRun(cluster, requests);
  options.scheduler.group_blocks = {blocks};
  options.scheduler.context = 512;
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok()) return {};
  EXPECT_EQ(outcome->jobs[0].counters.preemptions > 0, blocks < 100);
  std::vector<int64_t> before;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(outcome->requests[i].ended);
    before.push_back(std::count_if(
        outcome->requests.begin() + 4, outcome->requests.end(),
        [&](const SimulatedRequest& request) { return request.first_ns < outcome->requests[i].first_ns; }));
  }
  return before;
}

TEST(Tenants, ALowerClassIsServedAfterTheBoundAndNotBefore) {
  const std::vector<int64_t> before = BegunBefore(/*blocks=*/512, /*output=*/30);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(before[i], static_cast<double>(i + 1) * kClassStarvationBound, kSlots) << i;
  }
}

TEST(Tenants, ALowerClassIsServedAfterTheBoundWhereBlocksRunOut) {
  const std::vector<int64_t> before = BegunBefore(/*blocks=*/60, /*output=*/300);
  ASSERT_FALSE(before.empty());
  EXPECT_LE(before[0], kClassStarvationBound + kSlots);
}

TEST(Tenants, SurviveALossWithTheirClasses) {
  const TestCluster cluster({0, 1});
  std::vector<ArrivingRequest> requests;
  Append(&requests, 40, {0, 100, 60, "b", 1, PriorityClass::kBatch});
  Append(&requests, 20, {0.3, 100, 60, "a", 1, PriorityClass::kInteractive});
  SimOptions options = TenantRun(cluster, requests);
  options.failures = {.at_s = {0.32}, .detect_s = 1, .relaunch_s = 1};
  const absl::StatusOr<SimOutcome> outcome = Simulate(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->relaunches(), 1);
  int64_t last_of_a = 0;
  for (size_t i = 40; i < 60; ++i) last_of_a = std::max(last_of_a, outcome->requests[i].first_ns);
  // What had begun goes on; what waited of the lower class waits on.
  for (size_t i = 0; i < 40; ++i) {
    const int64_t first_ns = outcome->requests[i].first_ns;
    EXPECT_TRUE(first_ns < NsOf(0.32) || first_ns > last_of_a) << i;
  }
}

}  // namespace
}  // namespace stagecoach
