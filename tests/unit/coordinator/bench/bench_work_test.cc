#include "coordinator/bench/bench_work.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr char kReport[] = R"({"valid": true, "isa": "avx2", "cpu": "X", "comparisons": 7, "differences": [],
  "peak_of_type": {"Q8_0": "int8", "F32": "f32"}, "peaks": [
  {"threads": 1, "read_gbps": 10, "int8_gops": 100, "bf16_gops": 0, "f32_gops": 50},
  {"threads": 4, "read_gbps": 20, "int8_gops": 400, "bf16_gops": 0, "f32_gops": 200}]})";

TEST(KernelReport, IsReadFromTheLineOfTheStageProgram) {
  const KernelReport report = ParseKernelReport(kReport).value();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(report.isa, "avx2");
  EXPECT_EQ(report.comparisons, 7);
  ASSERT_EQ(report.peaks.size(), 2u);
  EXPECT_EQ(report.peaks[1].gops.at("int8"), 400);
  EXPECT_EQ(report.peak_of_type.at("Q8_0"), "int8");
}

TEST(KernelReport, ThatCannotBeReadIsAnError) {
  for (const char* text : {"", "{}", "no report", R"({"valid": "yes"})"}) {
    const absl::Status status = ParseKernelReport(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be read"));
  }
}

TEST(KernelReport, GivesThePeaksOfAsManyThreads) {
  const KernelReport report = ParseKernelReport(kReport).value();
  EXPECT_EQ(report.PeaksOf(1)->threads, 1);
  EXPECT_EQ(report.PeaksOf(3), nullptr);
  EXPECT_EQ(report.PeaksOf(4)->threads, 4);
  EXPECT_EQ(KernelReport().PeaksOf(1), nullptr);
}

// 1 GB of weights, 2 GOP of int8 matrices and 0.5 GOP of a float head a row, 1 MOP of attention a position.
ModelWork Work() {
  ModelWork work;
  work.weights = {.bytes_kept = 1e9};
  work.kv_token_bytes = 1e5;
  work.layer_ops = {{"Q8_0", 2e9}};
  work.head_ops = {{"F32", 0.5e9}};
  work.attention_ops = 1e6;
  return work;
}

TEST(Rates, OfDecodeCountTheWeightsOncePerPassAndTheContextOncePerToken) {
  const KernelReport report = ParseKernelReport(kReport).value();
  const BenchTest test = {.generated = 5, .depth = 100, .sequences = 2};
  const BenchSample sample = {1'000'000, 10, 5, 1000};
  const Rates rates = RatesOf(Work(), test, sample, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.read_gbps, 5 + 0.1);
  EXPECT_DOUBLE_EQ(rates.read_share, 0.51);
  EXPECT_DOUBLE_EQ(rates.gops, 20 + 5 + 1);
  EXPECT_DOUBLE_EQ(rates.peak_share, 20.0 / 100 + 5.0 / 50 + 1.0 / 50);
}

TEST(Rates, OfExpertsCountThoseThatTheRowsOfAPassChoose) {
  const KernelReport report = ParseKernelReport(kReport).value();
  ModelWork work = Work();
  work.weights = {.bytes_kept = 1e9, .expert_bytes = 0.8e9, .expert_share = 0.25};
  const BenchTest test = {.generated = 5, .sequences = 2};
  const Rates rates = RatesOf(work, test, {1'000'000, 10, 5, 0}, report, report.PeaksOf(1));  // 2 rows a pass
  EXPECT_DOUBLE_EQ(rates.read_gbps, 5 * (0.2 + 0.8 * (1 - 0.75 * 0.75)));
}

TEST(Rates, OfLayersWithAWindowEndThere) {
  const KernelReport report = ParseKernelReport(kReport).value();
  ModelWork work = Work();
  work.weights = {};
  work.window = 50;
  work.window_kv_token_bytes = 1e6;
  const BenchTest test = {.generated = 10, .depth = 100, .sequences = 1};
  const Rates rates = RatesOf(work, test, {1'000'000, 10, 10, 1000}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.read_gbps, 0.1 + 10 * 50 * 1e-3);
}

TEST(Rates, OfAPromptRunTheHeadOnceAndAttendToWhatCameBefore) {
  const KernelReport report = ParseKernelReport(kReport).value();
  const BenchTest test = {.prompt = 4};
  const Rates rates = RatesOf(Work(), test, {1'000'000, 4}, report, report.PeaksOf(1));
  EXPECT_DOUBLE_EQ(rates.gops, 8 + 0.5 + 0.01);
  EXPECT_DOUBLE_EQ(rates.peak_share, 8.0 / 100 + 0.51 / 50);
  EXPECT_EQ(rates.read_gbps, 0);
}

TEST(Rates, HaveNoSharesWithoutPeaks) {
  const Rates rates = RatesOf(Work(), {.generated = 1}, {1'000'000, 1, 1, 10}, KernelReport(), nullptr);
  EXPECT_GT(rates.gops, 0);
  EXPECT_EQ(rates.read_share, 0);
  EXPECT_EQ(rates.peak_share, 0);
}

}  // namespace
}  // namespace stagecoach
