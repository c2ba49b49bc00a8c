// Who waits for whom: the fair share alone, and in whole simulated runs.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/base/counter_rng.h"
#include "coordinator/sim/fair_sharing.h"
#include "coordinator/sim/simulation.h"
#include "tests/testing/matchers.h"
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
  const SimOutcome outcome = Simulate(options).value();
  std::vector<double> waits;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    const SimulatedRequest& request = outcome.requests[i];
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
  const SimOutcome outcome = Simulate(options).value();
  std::map<std::string, int64_t> last_begun_ns;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    int64_t& last_ns = last_begun_ns[options.requests[i].tenant];
    last_ns = std::max(last_ns, outcome.requests[i].first_ns);
  }
  // As long as all three have something waiting.
  const int64_t until_ns = last_begun_ns["four"];
  EXPECT_LT(until_ns, last_begun_ns["two"]);
  std::map<std::string, double> service;
  double all = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    if (outcome.requests[i].first_ns > until_ns) continue;
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
  const SimOutcome outcome = Simulate(options).value();
  const int64_t back_ns = NsOf(0.7);
  int64_t last_ns = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    if (options.requests[i].tenant == "away") last_ns = std::max(last_ns, outcome.requests[i].first_ns);
  }
  int stayed = 0;
  for (size_t i = 0; i < options.requests.size(); ++i) {
    const int64_t first_ns = outcome.requests[i].first_ns;
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
  const SimOutcome outcome = Simulate(options).value();
  EXPECT_EQ(outcome.jobs[0].counters.preemptions > 0, blocks < 100);
  std::vector<int64_t> before;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(outcome.requests[i].ended);
    before.push_back(std::count_if(
        outcome.requests.begin() + 4, outcome.requests.end(),
        [&](const SimulatedRequest& request) { return request.first_ns < outcome.requests[i].first_ns; }));
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
  const SimOutcome outcome = Simulate(options).value();
  EXPECT_EQ(outcome.relaunches(), 1);
  int64_t last_of_a = 0;
  for (size_t i = 40; i < 60; ++i) last_of_a = std::max(last_of_a, outcome.requests[i].first_ns);
  // What had begun goes on; what waited of the lower class waits on.
  for (size_t i = 0; i < 40; ++i) {
    const int64_t first_ns = outcome.requests[i].first_ns;
    EXPECT_TRUE(first_ns < NsOf(0.32) || first_ns > last_of_a) << i;
  }
}

constexpr int64_t kMs = 1'000'000;

TEST(FairSharing, TwoThatCrossOneWireAtOnceEachTakeTwiceAsLongAndEndTogether) {
  FairSharing sharing;
  const int kind = sharing.AddKind(1e6, {sharing.AddWire(1e6)});
  sharing.Begin(kind, 7, 4000, 0);
  EXPECT_EQ(sharing.NextEndNs(), 4 * kMs);
  sharing.Begin(kind, 5, 4000, 0);
  EXPECT_EQ(sharing.NextEndNs(), 8 * kMs);
  EXPECT_THAT(sharing.TakeEnded(8 * kMs), ElementsAre(7, 5));
  EXPECT_EQ(sharing.NextEndNs(), kNeverNs);
}

TEST(FairSharing, FlowsOfOneLinkAndTheSameWiresAreOfOneKind) {
  FairSharing sharing;
  const int wire = sharing.AddWire(1e6);
  const int kind = sharing.AddKind(1e6, {wire});
  EXPECT_EQ(sharing.AddKind(1e6, {wire}), kind);
  EXPECT_NE(sharing.AddKind(2e6, {wire}), kind);
  EXPECT_NE(sharing.AddKind(1e6, {wire, sharing.AddWire(1e6)}), kind);
}

TEST(FairSharing, AFlowWithoutBytesEndsAtOnce) {
  FairSharing sharing;
  const int kind = sharing.AddKind(1e6, {sharing.AddWire(1e6)});
  sharing.Begin(kind, 0, 4000, 0);
  sharing.Begin(kind, 1, 0, kMs);
  EXPECT_EQ(sharing.NextEndNs(), kMs);
  EXPECT_THAT(sharing.TakeEnded(kMs), ElementsAre(1));
  EXPECT_EQ(sharing.NextEndNs(), 4 * kMs);
}

// Each flow for itself, all rates raised by the same little by little: what the class is to come to.
struct PlainFlow {
  double link = 0;
  std::vector<int> wires;
  double bytes = 0, begin_s = 0;
  double rate = 0, end_s = -1;
};

void FillPlainly(const std::vector<double>& wires, const std::vector<PlainFlow*>& flows) {
  std::vector<PlainFlow*> growing = flows;
  std::vector<double> left = wires;
  for (PlainFlow* flow : flows) flow->rate = 0;
  while (!growing.empty()) {
    std::vector<double> crossing(wires.size(), 0);
    double step = std::numeric_limits<double>::infinity();
    for (const PlainFlow* flow : growing) {
      step = std::min(step, flow->link - flow->rate);
      for (const int wire : flow->wires) ++crossing[static_cast<size_t>(wire)];
    }
    for (size_t w = 0; w < wires.size(); ++w) {
      if (crossing[w] > 0) step = std::min(step, left[w] / crossing[w]);
    }
    for (PlainFlow* flow : growing) flow->rate += step;
    for (size_t w = 0; w < wires.size(); ++w) left[w] -= step * crossing[w];
    std::erase_if(growing, [&](const PlainFlow* flow) {
      return flow->link - flow->rate < 1e-6 * flow->link ||
             std::any_of(flow->wires.begin(), flow->wires.end(), [&](int wire) {
               return left[static_cast<size_t>(wire)] < 1e-6 * wires[static_cast<size_t>(wire)];
             });
    });
  }
}

void RunPlainly(const std::vector<double>& wires, std::vector<PlainFlow>* flows) {
  double now_s = 0;
  for (;;) {
    std::vector<PlainFlow*> under_way;
    double next_s = std::numeric_limits<double>::infinity();
    for (PlainFlow& flow : *flows) {
      if (flow.begin_s > now_s) {
        next_s = std::min(next_s, flow.begin_s);
      } else if (flow.end_s < 0) {
        under_way.push_back(&flow);
      }
    }
    if (under_way.empty() && std::isinf(next_s)) return;
    FillPlainly(wires, under_way);
    for (const PlainFlow* flow : under_way) next_s = std::min(next_s, now_s + flow->bytes / flow->rate);
    for (PlainFlow* flow : under_way) {
      flow->bytes -= flow->rate * (next_s - now_s);
      if (flow->bytes < 1e-6) flow->end_s = next_s;
    }
    now_s = next_s;
  }
}

TEST(FairSharing, IsWhatRaisingAllRatesAlikeGivesWhateverTheFlows) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t draws = 0;
    const auto draw = [&](int below) {
      return static_cast<int>(UniformAt(MixBits(seed), draws++) * static_cast<double>(below));
    };
    const std::vector<double> wires = {1e6, 1.5e6, 4e6, 0.7e6};
    FairSharing sharing;
    for (const double wire : wires) sharing.AddWire(wire);
    std::vector<PlainFlow> flows(60);
    double begin_us = 0;
    for (PlainFlow& flow : flows) {
      flow.link = 1e5 * (1 + draw(12));
      flow.wires = {draw(2)};
      if (draw(2) > 0) flow.wires.push_back(2 + draw(2));
      flow.bytes = 100 * (1 + draw(40));
      begin_us += draw(400);
      flow.begin_s = begin_us * 1e-6;
    }
    std::vector<PlainFlow> plain = flows;
    RunPlainly(wires, &plain);
    std::vector<int64_t> ends(flows.size(), -1);
    const auto run_until = [&](int64_t limit_ns) {
      for (int64_t at_ns = sharing.NextEndNs(); at_ns <= limit_ns && at_ns != kNeverNs; at_ns = sharing.NextEndNs()) {
        for (const uint64_t flow : sharing.TakeEnded(at_ns)) ends[flow] = at_ns;
      }
    };
    for (size_t i = 0; i < flows.size(); ++i) {
      const int64_t begin_ns = NsOf(flows[i].begin_s);
      run_until(begin_ns);
      sharing.Begin(sharing.AddKind(flows[i].link, flows[i].wires), i, flows[i].bytes, begin_ns);
    }
    run_until(kNeverNs - 1);
    for (size_t i = 0; i < flows.size(); ++i) {
      // Ends are rounded to nanoseconds, and each may move those after it by as much.
      EXPECT_NEAR(static_cast<double>(ends[i]), plain[i].end_s * 1e9, 200) << "seed " << seed << ", flow " << i;
    }
  }
}

TEST(FairSharing, AWireThatIsNeverIdleCarriesAllItsBytesInTheTimeTheyTake) {
  FairSharing sharing;
  const int wire = sharing.AddWire(1.25e9);
  const std::vector<int> kinds = {sharing.AddKind(1.25e9, {wire}), sharing.AddKind(0.9e9, {wire})};
  double bytes = 0;
  int64_t last_ns = 0;
  uint64_t flow = 0;
  for (; flow < 8; ++flow) {
    sharing.Begin(kinds[flow % 2], flow, 1e6, 0);
    bytes += 1e6;
  }
  while (sharing.NextEndNs() != kNeverNs) {
    last_ns = sharing.NextEndNs();
    for (const uint64_t ended : sharing.TakeEnded(last_ns)) {
      if (flow == 5000) continue;
      const double size = 1 + 1e7 * UniformAt(1, flow);
      sharing.Begin(kinds[ended % 2], flow++, size, last_ns);
      bytes += size;
    }
  }
  // The last one alone may be held by its link; each end is off by half a nanosecond at most.
  EXPECT_GE(last_ns, NsOf(bytes / 1.25e9) - 5000);
  EXPECT_LE(last_ns, NsOf(bytes / 1.25e9) + 5000 + NsOf(1e7 / 0.9e9));
}

}  // namespace
}  // namespace stagecoach
