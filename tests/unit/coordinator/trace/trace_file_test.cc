#include "coordinator/trace/trace_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/trace/clock_estimate.h"
#include "coordinator/trace/trace_job.h"
#include "coordinator/trace/trace_lines.h"
#include "coordinator/trace/trace_summary.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/trace_check.h"
#include "tests/unit/coordinator/trace/made_up_run.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::MadeUpRun;

struct TraceFile : ::testing::Test {
  // What an engine writes of a run.
  void Log(const MadeUpRun& run, bool append, uint64_t most_bytes = kMostRecordedTraceBytes) {
    const TraceJob job = run.Recorded();
    auto log = OpenTraceLog(path_, append, job.header, most_bytes).value();
    for (const TraceStep& step : job.steps) {
      StepRecord record;
      record.number = step.number;
      record.slices = {{.sequence = 1, .start = 9, .count = step.number == 0 ? 30 : 1, .sample = true}};
      record.ready_us = step.ready_us;
      record.submit_us = step.submit_us;
      record.confirm_us = step.confirm_us;
      record.queues = step.queues;
      for (const TraceSpan& span : step.stages) {
        record.times.push_back({.received_us = span.received_us,
                                .start_us = span.start_us,
                                .end_us = span.end_us,
                                .send_us = span.send_end_us - span.send_start_us,
                                .send_start_us = span.send_start_us});
      }
      log->Write(record);
    }
    closed_ = log->Close();
    ASSERT_EQ(closed_.ok(), most_bytes == kMostRecordedTraceBytes) << closed_;
  }
  std::string Text() const { return testing::ReadFileOrDie(path_); }
  void Replace(const std::string& text) { testing::WriteFileOrDie(path_, text); }

  const testing::TempDir dir_;
  const std::string path_ = dir_.File("trace.json");
  absl::Status closed_;
  const MadeUpRun run_{.compute_us = {900, 700},
                       .in_flight = 2,
                       .micro_batches = 20,
                       .turn_us = 5,
                       .hop_us = 60,
                       .send_us = 20,
                       .offset_us = {5000000, -5000000}};
};

TEST_F(TraceFile, WhatARunLeavesIsFinishedAndStaysSo) {
  Log(run_, false);
  const auto raw = ReadTrace(path_).value();
  EXPECT_FALSE(raw.front().aligned);
  EXPECT_EQ(raw.front().steps.size(), 20u);
  ASSERT_TRUE(FinishTrace(path_).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
  const auto finished = ReadTrace(path_).value();
  ASSERT_EQ(finished.size(), 1u);
  const TraceJob& job = finished.front();
  EXPECT_TRUE(job.aligned);
  EXPECT_EQ(job.header.coordinator_host, "front");
  EXPECT_EQ(job.steps[0].prefill_rows, 30);
  EXPECT_EQ(job.steps[1].decode_rows, 1);
  EXPECT_EQ(job.steps[1].queues, (QueueCounts{.running = 2, .blocks_used = {3}, .blocks_free = {5}, .in_flight = 1}));
  EXPECT_NEAR(static_cast<double>(job.clocks[0].offset_us), 5000000, 100);
  TraceJob expected = raw.front();
  ASSERT_TRUE(AlignTrace(&expected).ok());
  for (size_t i = 0; i < job.steps.size(); ++i) {
    EXPECT_EQ(job.steps[i].stages[1].start_us, expected.steps[i].stages[1].start_us);
  }
  const std::string text = Text();
  ASSERT_TRUE(FinishTrace(path_).ok());
  EXPECT_EQ(Text(), text);
  EXPECT_FALSE(std::ifstream(path_ + ".new").is_open());
}

TEST(TraceStepOf, CountsGuessesNeitherAsPromptRowsNorAsDecodeRows) {
  StepRecord record;
  record.slices = {{.sequence = 1, .start = 0, .count = 30}, {.sequence = 2, .start = 9, .count = 1, .sample = true}};
  for (const GuessRecord guess : {GuessRecord::kRight, GuessRecord::kVoid}) {
    record.slices.push_back({.sequence = 3, .start = 9, .count = 1, .sample = true, .guess = guess});
  }
  const TraceStep step = TraceStepOf(record);
  EXPECT_EQ(step.prefill_rows, 30);
  EXPECT_EQ(step.decode_rows, 1);
  EXPECT_EQ(step.guessed_rows(), 2);
  EXPECT_EQ(step.void_rows(), 1);
  EXPECT_EQ(step.rows(), record.rows());
}

TEST_F(TraceFile, AKilledJobLeavesAFileThatCanBeReadFinishedAndGoneOnWith) {
  Log(run_, false);
  const std::string whole = Text();
  Replace(whole.substr(0, whole.size() - 40));  // in the middle of its last line
  EXPECT_EQ(ReadTrace(path_).value().front().steps.size(), 20u);
  MadeUpRun later = run_;
  later.start_us += 10000000;
  Log(later, true);  // it was launched again
  ASSERT_TRUE(FinishTrace(path_).ok());
  later.start_us += 10000000;
  Log(later, true);  // and another job follows
  const auto jobs = ReadTrace(path_).value();
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_TRUE(jobs[1].aligned);
  EXPECT_FALSE(jobs[2].aligned);
  ASSERT_TRUE(FinishTrace(path_).ok());
  const json events = json::parse(Text());
  testing::ExpectWellFormedTrace(events);
  std::vector<std::string> begins;
  for (const json& event : events) {
    if (event["ph"] == "i") begins.push_back(event["name"]);
  }
  EXPECT_EQ(begins, (std::vector<std::string>{"the job begins", "job 2 begins", "job 3 begins"}));
}

TEST_F(TraceFile, ARecordingEndsAtItsBoundAndIsCutThere) {
  Log(run_, false, 4096);
  EXPECT_THAT(closed_.message(), HasSubstr("' lacks "));
  EXPECT_LE(Text().size(), 4096u);
  ASSERT_TRUE(FinishTrace(path_).ok());
  const TraceJob job = ReadTrace(path_).value().front();
  EXPECT_TRUE(job.cut);
  EXPECT_GT(job.steps.size(), 0u);
  EXPECT_LT(job.steps.size(), 20u);
  testing::ExpectWellFormedTrace(json::parse(Text()));
}

TEST_F(TraceFile, AFinishedFileThatLacksItsEndIsCut) {
  TraceJob whole = run_.Recorded();
  whole.header.simulated = true;
  ASSERT_TRUE(AlignTrace(&whole).ok());
  ASSERT_TRUE(WriteTrace(path_, {whole}).ok());
  const std::string text = Text();
  EXPECT_FALSE(ReadTrace(path_).value().front().cut);
  Replace(text.substr(0, text.size() - 1));
  EXPECT_FALSE(ReadTrace(path_).value().front().cut) << "the array ends, if not the line";
  for (const size_t bytes : {text.size() - 3, text.size() / 12, text.find('\n', 2) + 1}) {  // the last: a header alone
    Replace(text.substr(0, bytes));
    const TraceJob job = ReadTrace(path_).value().front();
    EXPECT_TRUE(job.cut) << bytes;
    EXPECT_EQ(SummarizeTrace(job).micro_batches, std::ssize(job.steps));
  }
}

TEST_F(TraceFile, AJobThatDidNothingIsOne) {
  Log({.compute_us = {1}, .micro_batches = 0}, false);
  ASSERT_TRUE(FinishTrace(path_).ok());
  EXPECT_EQ(SummarizeTrace(ReadTrace(path_).value().front()).wall_us, 0);
}

TEST_F(TraceFile, FramesWhoseSendsOverlapAreDrawnOneAfterTheOther) {
  Log({.compute_us = {100, 100}, .in_flight = 4, .micro_batches = 20, .send_us = 170}, false);
  ASSERT_TRUE(FinishTrace(path_).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
}

TEST_F(TraceFile, NamesComeThroughWhateverIsInThem) {
  TraceJob job = run_.Recorded();
  job.header.coordinator_host = "a\"b\\c\n\xff";
  job.header.options = {{"model_path", "/tmp/\"x\".gguf"}};
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_TRUE(WriteTrace(path_, {job}).ok());
  testing::ExpectWellFormedTrace(json::parse(Text()));
  const auto jobs = ReadTrace(path_).value();
  EXPECT_EQ(jobs.front().header.options, job.header.options);
  EXPECT_EQ(jobs.front().header.coordinator_host, "a\"b\\c\n\xEF\xBF\xBD");
}

TEST_F(TraceFile, WhatIsNoTraceIsRefusedInOneSentence) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no job is in it"},
      {"[\n]\n", "line 2: it does not begin with a job"},
      {"{\"traceEvents\":[]}\n", "line 1: it does not begin with a job"},
      {std::string(20 << 20, 'x'), "longer than"},
      {std::string("\0\1\2\n", 4), "line 1"},
  };
  for (const auto& [text, expected] : cases) {
    Replace(text);
    const absl::Status status = ReadTrace(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("'", path_, "' is no trace of this program: ")));
    EXPECT_THAT(status.message(), HasSubstr(expected));
  }
  EXPECT_EQ(ReadTrace(dir_.File("none.json")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTrace(dir_.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TraceFile, EveryFactIsChecked) {
  Log(run_, false);
  const std::string good = Text();
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"format\":1", "\"format\":2", "this program reads 1"},
      {"\"number\":3,", "\"number\":1,", "micro-batch 1 comes after 2"},
      {"\"number\":3,", "\"number\":-3,", "`number`"},
      {"\"decode_rows\":1,", "\"decode_rows\":1e99,", "`decode_rows`"},
      {"\"decode_rows\":1,", "\"decode_rows\":18446744073709551615,", "`decode_rows`"},
      {"\"decode_rows\":1,", "", "`decode_rows` is not there"},
      {"\"blocks_used\":[3]", "\"blocks_used\":[3000000000]", "`blocks_used`"},
      {"\"blocks_used\":[3]", "\"blocks_used\":{}", "`blocks_used`"},
      {"\"stages\":[[", "\"stages\":[[1,2,3],[", "`stages` is not 2 long"},
      {"\"stages\":[[", "\"stages\":[\"x\",[", "lists of 3 or 5"},
      {"\"rank\":2", "\"rank\":\"two\"", "`rank`"},
      {"\"rank\":2", "\"rank\":2147483647", "`rank`"},
      {"\"aligned\":false", "\"aligned\":true", "`clocks`"},
      {"\"args\":{\"number\":3", "\"args\":[{\"number\":3", "not a JSON object"},
  };
  for (const auto& [from, to, expected] : cases) {
    const size_t at = good.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::string bad = good;
    Replace(bad.replace(at, from.size(), to));
    EXPECT_THAT(ReadTrace(path_).status().message(), HasSubstr(expected)) << to;
  }
}

// Whatever a byte becomes: a trace, or one error.
TEST_F(TraceFile, DamageIsNeverMoreThanAnError) {
  Log(run_, false);
  const std::string good = Text();
  for (size_t at = 0; at < std::min<size_t>(good.size(), 3000); at += 17) {
    for (const char wrong : {'\0', '9', '"', '-', '[', '\n'}) {
      std::string bad = good;
      bad[at] = wrong;
      Replace(bad);
      auto jobs = ReadTrace(path_);
      if (!jobs.ok()) continue;
      for (TraceJob& job : *jobs) {
        if (AlignTrace(&job).ok()) SummarizeTrace(job);
      }
    }
  }
}

TEST(AlignTrace, BringsTheTimesOfEveryStageToTheEnginesClock) {
  const MadeUpRun truth{
      .compute_us = {3000, 4000, 2000}, .in_flight = 3, .micro_batches = 400, .turn_us = 30, .hop_us = 80};
  MadeUpRun seen = truth;
  seen.offset_us = {987654321, -400000, 86400000000};
  const TraceJob expected = truth.Recorded();
  TraceJob job = seen.Recorded();
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_EQ(job.clocks.size(), 3u);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(static_cast<double>(job.clocks[s].offset_us), static_cast<double>(seen.offset_us[s]), 3) << s;
    EXPECT_LE(std::abs(job.clocks[s].offset_us - seen.offset_us[s]), job.clocks[s].error_us) << s;
    EXPECT_LT(job.clocks[s].error_us, 400) << s;
    for (size_t i = 0; i < job.steps.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(job.steps[i].stages[s].start_us),
                  static_cast<double>(expected.steps[i].stages[s].start_us), 3);
    }
  }
}

TEST(AlignTrace, StagesOfTheCoordinatorsHostHaveItsClock) {
  TraceJob job = MadeUpRun{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 10, .hop_us = 50}.Recorded();
  for (TraceStage& stage : job.header.stages) stage.host = "front";
  const std::vector<TraceStep> before = job.steps;
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_EQ(job.clocks[0].error_us, 0);
  EXPECT_EQ(job.clocks[1].offset_us, 0);
  EXPECT_EQ(job.steps[7].stages[1].start_us, before[7].stages[1].start_us);
}

TEST(AlignTrace, HostsOfOneNameWhoseClocksDifferAreToldApart) {
  MadeUpRun run{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 50, .hop_us = 50};
  run.offset_us = {0, -7000000};
  TraceJob job = run.Recorded();
  for (TraceStage& stage : job.header.stages) stage.host = "front";
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_NEAR(static_cast<double>(job.clocks[1].offset_us), -7000000, 100);
  EXPECT_GT(job.clocks[1].error_us, 0);
}

TEST(AlignTrace, GivesEveryFrameItsOwnSend) {
  TraceJob job =
      MadeUpRun{.compute_us = {1000, 1000}, .in_flight = 1, .micro_batches = 4, .hop_us = 600, .send_us = 500}
          .Recorded();
  TraceStep last = job.steps.back();  // the shutdown tells of the last one
  last.number = 4;
  last.shutdown = true;
  last.decode_rows = 0;
  for (TraceSpan& span : last.stages) {
    span.send_start_us = span.end_us;
    span.send_end_us = span.end_us + 500;
    for (int64_t* us : {&span.received_us, &span.start_us, &span.end_us}) *us += 100000;
  }
  last.ready_us = last.submit_us += 100000;
  last.confirm_us += 100000;
  job.steps.push_back(last);
  ASSERT_TRUE(AlignTrace(&job).ok());
  ASSERT_EQ(job.steps.size(), 4u);
  for (const TraceStep& step : job.steps) {
    for (const TraceSpan& span : step.stages) {
      EXPECT_EQ(span.send_start_us, span.end_us) << step.number;
      EXPECT_EQ(span.send_end_us, span.end_us + 500) << step.number;
    }
  }
}

TEST(AlignTrace, ASendThatNobodyToldOfIsUnknown) {
  TraceJob job =
      MadeUpRun{.compute_us = {1000}, .in_flight = 1, .micro_batches = 3, .hop_us = 600, .send_us = 500}.Recorded();
  job.steps[2].stages[0].send_start_us = job.steps[1].stages[0].send_start_us;  // still the one before
  job.steps[2].stages[0].send_end_us = job.steps[1].stages[0].send_end_us;
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_EQ(job.steps[0].stages[0].send_end_us - job.steps[0].stages[0].send_start_us, 500);
  EXPECT_EQ(job.steps[1].stages[0].send_end_us, job.steps[1].stages[0].send_start_us);
  EXPECT_EQ(job.steps[2].stages[0].send_end_us, job.steps[2].stages[0].send_start_us);
}

TEST(AlignTrace, MicroBatchesThatWereLeftOutLeaveTheOthersAsTheyWere) {
  TraceJob whole =
      MadeUpRun{.compute_us = {1000, 900}, .in_flight = 2, .micro_batches = 30, .hop_us = 60, .send_us = 50}.Recorded();
  TraceJob job = whole;
  job.steps.erase(job.steps.begin() + 10, job.steps.begin() + 13);
  ASSERT_TRUE(AlignTrace(&whole).ok());
  const absl::Status aligned = AlignTrace(&job);
  ASSERT_TRUE(aligned.ok()) << aligned;
  for (const TraceStep& step : job.steps) {
    const TraceSpan& expected = whole.steps[step.number].stages[0];
    const int64_t took_us = step.stages[0].send_end_us - step.stages[0].send_start_us;
    EXPECT_EQ(took_us, step.number == 9 ? 0 : expected.send_end_us - expected.send_start_us) << step.number;
  }
}

TEST(AlignTrace, RefusesTimesThatNoClocksCanHave) {
  TraceJob job = MadeUpRun{.compute_us = {3000}, .micro_batches = 3, .hop_us = 50}.Recorded();
  job.steps[1].stages[0].end_us += 100000;  // longer than it was away
  EXPECT_THAT(AlignTrace(&job).message(), HasSubstr("contradict"));
  job = MadeUpRun{.compute_us = {3000}, .micro_batches = 3, .hop_us = 50}.Recorded();
  job.steps[1].stages[0].end_us = 0;
  EXPECT_THAT(AlignTrace(&job).message(), HasSubstr("micro-batch 1 has times that go back"));
}

TEST(AlignTrace, NoNumbersOverflow) {
  constexpr int64_t kMost = int64_t{1} << 53;
  for (const int64_t far_us : {kMost, -kMost}) {
    MadeUpRun run{.compute_us = std::vector<int64_t>(600, 1), .micro_batches = 2, .hop_us = 50};
    for (size_t s = 0; s < 600; ++s) run.offset_us[s] = s % 2 == 0 ? far_us : -far_us;
    TraceJob job = run.Recorded();
    EXPECT_TRUE(AlignTrace(&job).ok());
    for (size_t s = 0; s < 600; ++s) {  // a job that cannot be
      for (TraceStep& step : job.steps) {
        TraceSpan& span = step.stages[s];
        span.received_us = -kMost;
        span.start_us = span.end_us = span.send_start_us = span.send_end_us = kMost;
      }
    }
    job.aligned = false;
    EXPECT_FALSE(AlignTrace(&job).ok());
  }
}

TEST(AlignTrace, WhatIsSimulatedHasOneClock) {
  MadeUpRun run{.compute_us = {3000, 4000}, .in_flight = 2, .micro_batches = 5};
  TraceJob job = run.Recorded();
  job.header.simulated = true;
  const TraceSpan before = job.steps[3].stages[1];
  ASSERT_TRUE(AlignTrace(&job).ok());
  EXPECT_TRUE(job.aligned);
  EXPECT_EQ(job.steps[3].stages[1].end_us, before.end_us);
  EXPECT_EQ(job.clocks[1].error_us, 0);
}

// Offsets of clocks from messages whose true times are known.

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
    const auto curves = Estimate().value();
    for (int host = 1; host < clocks; ++host) {
      const ClockCurve& curve = curves[static_cast<size_t>(host)];
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
  const auto curves = ring.Estimate().value();
  for (int host = 1; host < 4; ++host) {
    EXPECT_NEAR(curves[static_cast<size_t>(host)].At(kSpanUs / 2), host * 1e6, 2) << host;
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
  const auto curves = EstimateClocks(3, hops).value();
  EXPECT_LT(curves[1].error_us, 80);
  EXPECT_GT(curves[2].error_us, 4900);
  EXPECT_NEAR(curves[1].At(0), 7000, 2);
  EXPECT_NEAR(curves[2].At(0), 100, 20);
}

TEST(ClockEstimate, OneHostNeedsNone) {
  const auto curves = EstimateClocks(1, {}).value();
  EXPECT_EQ(curves[0].At(123), 0);
  EXPECT_EQ(curves[0].ToFirst(123), 123);
  EXPECT_EQ(curves[0].error_us, 0);
}

}  // namespace
}  // namespace stagecoach
