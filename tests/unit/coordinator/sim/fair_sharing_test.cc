#include "coordinator/sim/fair_sharing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/base/counter_rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

// When each flow ends, by its name.
std::map<uint64_t, int64_t> Ends(FairSharing* sharing) {
  std::map<uint64_t, int64_t> ends;
  for (int64_t at_ns = sharing->NextEndNs(); at_ns != kNeverNs; at_ns = sharing->NextEndNs()) {
    for (const uint64_t flow : sharing->TakeEnded(at_ns)) ends[flow] = at_ns;
  }
  return ends;
}

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

TEST(FairSharing, ThreeThatBeginOneAfterTheOtherEndAsReckonedByHand) {
  FairSharing sharing;
  const int kind = sharing.AddKind(1e6, {sharing.AddWire(1e6)});
  sharing.Begin(kind, 0, 4000, 0);
  sharing.Begin(kind, 1, 4000, 2 * kMs);  // 0 has 2000 bytes left; then half each
  sharing.Begin(kind, 2, 1000, 3 * kMs);  // 1500 and 3500 left; then a third each: 2 is through at 6 ms
  // 500 and 2500 left: 0 is through at 7 ms. 1 has 2000 left, alone.
  const auto ends = Ends(&sharing);
  EXPECT_EQ(ends.at(2), 6 * kMs);
  EXPECT_EQ(ends.at(0), 7 * kMs);
  EXPECT_EQ(ends.at(1), 9 * kMs);  // 9000 bytes at 1 MB/s: nothing is lost and nothing comes by itself
}

TEST(FairSharing, WhatASlowLinkCannotTakeIsTheOthers) {
  FairSharing sharing;
  const int wire = sharing.AddWire(1e6);
  sharing.Begin(sharing.AddKind(2e5, {wire}), 0, 200, 0);
  const int fast = sharing.AddKind(1e6, {wire});
  sharing.Begin(fast, 1, 400, 0);
  sharing.Begin(fast, 2, 800, 0);
  const auto ends = Ends(&sharing);
  EXPECT_EQ(ends.at(0), kMs);
  EXPECT_EQ(ends.at(1), kMs);
  EXPECT_EQ(ends.at(2), 1'400'000);  // the last 400 bytes alone
}

TEST(FairSharing, AFlowHeldByOneWireLeavesTheOtherWireToThoseThatCrossOnlyThat) {
  FairSharing sharing;
  const int narrow = sharing.AddWire(1e6), wide = sharing.AddWire(2e6);
  sharing.Begin(sharing.AddKind(1e9, {narrow}), 0, 500, 0);
  sharing.Begin(sharing.AddKind(1e9, {narrow, wide}), 1, 500, 0);
  sharing.Begin(sharing.AddKind(1e9, {wide}), 2, 1500, 0);
  const auto ends = Ends(&sharing);
  for (uint64_t flow = 0; flow < 3; ++flow) EXPECT_EQ(ends.at(flow), kMs) << flow;
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
