// Offsets of clocks from messages whose true times are known.

#include "coordinator/trace/clock_estimate.h"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr int64_t kSpanUs = 3000000;

// A ring of hops over hosts 0, 1, .., n - 1, 0, whose clocks are what `clock` says at a true time.
struct Ring {
  int clocks;
  std::function<double(int host, double at_us)> offset;
  std::function<double(int hop)> latency_us;  // a draw
  int64_t every_us = 4000;

  std::optional<std::vector<ClockCurve>> Estimate(double drift_ppm = kDriftPpm) const {
    std::vector<HopBounds> hops;
    for (int hop = 0; hop < clocks; ++hop) {
      const int to = (hop + 1) % clocks;
      HopBounds& bounds = hops.emplace_back(hop, to, 0, kSpanUs, drift_ppm);
      for (double at = hop * 500.0; at + 20000 < kSpanUs; at += static_cast<double>(every_us)) {
        const double there = at + latency_us(hop);
        const auto read = [&](int host, double us) { return static_cast<int64_t>(std::floor(us + offset(host, us))); };
        bounds.Add(static_cast<int64_t>(at), read(to, there) - read(hop, at));
      }
    }
    return EstimateClocks(clocks, hops);
  }

  void ExpectTheBoundsHold(double most_error_us) const {
    const auto curves = Estimate();
    ASSERT_TRUE(curves.has_value());
    for (int host = 1; host < clocks; ++host) {
      const ClockCurve& curve = (*curves)[static_cast<size_t>(host)];
      EXPECT_LE(curve.error_us, most_error_us) << host;
      for (int64_t at = 0; at < kSpanUs; at += 10007) {
        const double truth = offset(host, static_cast<double>(at));
        ASSERT_LE(std::abs(curve.At(at) - truth), curve.error_us) << "host " << host << " at " << at;
        EXPECT_NEAR(static_cast<double>(curve.ToFirst(at + std::llround(truth))), static_cast<double>(at),
                    curve.error_us + 2);
      }
    }
  }
};

TEST(ClockEstimate, IsRightWithinItsErrorWhateverTheOffsets) {
  std::mt19937 random(1);
  for (const int clocks : {2, 3, 5, 9}) {
    std::vector<double> offsets;
    for (int i = 0; i < clocks; ++i)
      offsets.push_back(i == 0 ? 0 : std::uniform_real_distribution<>(-1e12, 1e12)(random));
    const Ring ring{clocks, [&](int host, double) { return offsets[static_cast<size_t>(host)]; },
                    [&](int) { return 50 + std::exponential_distribution<>(0.01)(random); }};
    ring.ExpectTheBoundsHold(clocks * 80.0 + 20);
  }
}

TEST(ClockEstimate, EqualHopsLeaveNoErrorInTheOffsetButTheReading) {
  const Ring ring{4, [](int host, double) { return host * 1e6; }, [](int) { return 80.0; }};
  const auto curves = ring.Estimate();
  ASSERT_TRUE(curves.has_value());
  for (int host = 1; host < 4; ++host) {
    EXPECT_NEAR((*curves)[static_cast<size_t>(host)].At(kSpanUs / 2), host * 1e6, 2) << host;
  }
}

TEST(ClockEstimate, AnUnevenHopIsCoveredByTheError) {
  const Ring ring{3, [](int host, double) { return -5e5 * host; }, [](int hop) { return hop == 1 ? 900.0 : 20.0; }};
  ring.ExpectTheBoundsHold(1000);
}

TEST(ClockEstimate, FollowsClocksThatDrift) {
  std::mt19937 random(2);
  const Ring ring{3, [](int host, double at) { return host * 1e9 + host * 40e-6 * at + 30 * std::sin(at / 1e6); },
                  [&](int) { return 60 + std::exponential_distribution<>(0.02)(random); }};
  ring.ExpectTheBoundsHold(260);
}

TEST(ClockEstimate, SaysThatTimesContradictEachOther) {
  std::vector<HopBounds> hops = {{0, 1, 0, kSpanUs}, {1, 0, 0, kSpanUs}};
  hops[0].Add(1000, 100);
  hops[1].Add(1000, -300);  // the whole round took less than no time
  EXPECT_FALSE(EstimateClocks(2, hops).has_value());
}

TEST(ClockEstimate, AWayThatLeadsOverAHostTwiceBoundsItTheMore) {
  // 0 -> 1 -> 2 -> 1 -> 0, where the ways to and from host 2 are slow.
  std::vector<HopBounds> hops = {{0, 1, 0, kSpanUs}, {1, 2, 0, kSpanUs}, {2, 1, 0, kSpanUs}, {1, 0, 0, kSpanUs}};
  for (int64_t at = 0; at < kSpanUs; at += 10000) {
    hops[0].Add(at, 7000 + 30);
    hops[1].Add(at, -7000 + 100 + 5000);
    hops[2].Add(at, -100 + 7000 + 5000);
    hops[3].Add(at, -7000 + 30);
  }
  const auto curves = EstimateClocks(3, hops);
  ASSERT_TRUE(curves.has_value());
  EXPECT_LT((*curves)[1].error_us, 80);
  EXPECT_GT((*curves)[2].error_us, 4900);
  EXPECT_NEAR((*curves)[1].At(0), 7000, 2);
  EXPECT_NEAR((*curves)[2].At(0), 100, 20);
}

TEST(ClockEstimate, OneHostNeedsNone) {
  const auto curves = EstimateClocks(1, {});
  ASSERT_TRUE(curves.has_value());
  EXPECT_EQ((*curves)[0].At(123), 0);
  EXPECT_EQ((*curves)[0].ToFirst(123), 123);
  EXPECT_EQ((*curves)[0].error_us, 0);
}

}  // namespace
}  // namespace stagecoach
