#include "coordinator/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

RequestLoad Poisson(double rate, int64_t requests) {
  RequestLoad load;
  load.arrivals = {.kind = Arrivals::Kind::kPoisson, .rate_per_s = rate};
  load.prompt = *ParseLengths("lognormal:200:0.8:4096");
  load.output = *ParseLengths("16:64");
  load.requests = requests;
  load.seed = 7;
  return load;
}

TEST(Arrivals, AreTheSameForTheSameSeedAndOthersForAnother) {
  RequestLoad load = Poisson(3, 1000);
  const std::vector<ArrivingRequest> first = MakeRequests(load);
  EXPECT_EQ(MakeRequests(load), first);
  load.seed = 8;
  EXPECT_NE(MakeRequests(load), first);
}

TEST(Arrivals, ComeCloserTogetherAtAHigherRateWithTheSameLengths) {
  const std::vector<ArrivingRequest> slow = MakeRequests(Poisson(1, 500)), fast = MakeRequests(Poisson(4, 500));
  RequestLoad closed = Poisson(1, 500);
  closed.arrivals = {};
  const std::vector<ArrivingRequest> at_once = MakeRequests(closed);
  for (size_t i = 0; i < slow.size(); ++i) {
    EXPECT_DOUBLE_EQ(slow[i].arrival_s, 4 * fast[i].arrival_s);
    EXPECT_EQ(slow[i].prompt_tokens, fast[i].prompt_tokens);
    EXPECT_EQ(at_once[i].output_tokens, fast[i].output_tokens);
    EXPECT_EQ(at_once[i].arrival_s, 0);
  }
}

TEST(Arrivals, OfAPoissonProcessHaveExponentialGapsOfTheRate) {
  const std::vector<ArrivingRequest> requests = MakeRequests(Poisson(2, 20000));
  EXPECT_NEAR(requests.back().arrival_s, 10000, 300);  // 3 standard deviations are 212
  double last = 0;
  int64_t above_mean = 0;
  for (const ArrivingRequest& request : requests) {
    EXPECT_GE(request.arrival_s, last);
    above_mean += request.arrival_s - last > 0.5 ? 1 : 0;
    last = request.arrival_s;
  }
  EXPECT_NEAR(static_cast<double>(above_mean) / 20000, std::exp(-1), 0.015);
}

TEST(LengthDistribution, ReachesBothEndsOfAUniformOneAndNothingBeyond) {
  const LengthDistribution lengths = *ParseLengths("uniform:3:6");
  std::vector<int> seen(8, 0);
  for (uint64_t i = 0; i < 4000; ++i) ++seen.at(static_cast<size_t>(lengths.At(1, i, 1)));
  for (int length = 3; length <= 6; ++length) EXPECT_NEAR(seen[static_cast<size_t>(length)], 1000, 120);
  EXPECT_EQ(seen[2] + seen[7], 0);
}

TEST(LengthDistribution, HasTheMedianAndSpreadOfALogNormalOne) {
  const LengthDistribution lengths = *ParseLengths("lognormal:400:0.5:2000");
  std::vector<int64_t> drawn;
  for (uint64_t i = 0; i < 20001; ++i) drawn.push_back(lengths.At(5, i, 2));
  std::sort(drawn.begin(), drawn.end());
  EXPECT_NEAR(static_cast<double>(drawn[10000]), 400, 10);
  EXPECT_NEAR(static_cast<double>(drawn[16827]), 400 * std::exp(0.5), 25);  // one standard deviation above
  EXPECT_GE(drawn.front(), 1);
  EXPECT_LE(drawn.back(), 2000);
}

TEST(LengthDistribution, DrawsPromptsAndOutputsApart) {
  RequestLoad load;
  load.prompt = load.output = *ParseLengths("1:1000000");
  load.requests = 100;
  int64_t same = 0;
  for (const ArrivingRequest& request : MakeRequests(load)) same += request.prompt_tokens == request.output_tokens;
  EXPECT_EQ(same, 0);
}

TEST(LengthDistribution, ComesBackFromItsText) {
  for (const char* text : {"17", "uniform:1:9", "lognormal:100.25:0.75:512"}) {
    const LengthDistribution lengths = *ParseLengths(text);
    EXPECT_EQ(*ParseLengths(LengthsText(lengths)), lengths) << text;
  }
  EXPECT_EQ(*ParseLengths("3:9"), *ParseLengths("uniform:3:9"));
}

TEST(LengthDistribution, RefusesWhatIsNone) {
  for (const char* text : {"", "0", "-3", "x", "1:2:3", "uniform:5", "9:3", "lognormal", "lognormal:10",
                           "lognormal:0:1", "lognormal:10:nan", "lognormal:10:1:0", "99999999999", "uniform:1:x"}) {
    EXPECT_FALSE(ParseLengths(text).ok()) << text;
  }
  EXPECT_THAT(std::string(ParseLengths("9:3").status().message()), HasSubstr("3, is below the shortest, 9"));
}

TEST(Arrivals, ComeBackFromTheirText) {
  for (const char* text : {"closed", "poisson:2.5", "trace:a:b.jsonl"}) {
    EXPECT_EQ(ArrivalsText(*ParseArrivals(text)), text);
  }
  for (const char* text : {"", "open", "poisson", "poisson:0", "poisson:-1", "poisson:inf", "trace:"}) {
    EXPECT_FALSE(ParseArrivals(text).ok()) << text;
  }
}

absl::StatusOr<std::vector<ArrivingRequest>> TraceOf(const std::string& text) {
  const testing::TempDir directory;
  testing::WriteFileOrDie(directory.File("trace.jsonl"), text);
  return ReadArrivalTrace(directory.File("trace.jsonl"));
}

TEST(ArrivalTrace, IsReadLineByLine) {
  const auto requests = TraceOf(
      "{\"arrival_s\":0,\"prompt_tokens\":5,\"output_tokens\":2,\"user\":\"x\"}\n\n"
      "{\"arrival_s\":0.5,\"prompt_tokens\":7,\"output_tokens\":1}\r\n");
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_EQ(*requests, (std::vector<ArrivingRequest>{{0, 5, 2}, {0.5, 7, 1}}));
}

TEST(ArrivalTrace, CanSayWhoseARequestIs) {
  const auto requests = TraceOf(
      "{\"arrival_s\":0,\"prompt_tokens\":5,\"output_tokens\":2,\"tenant\":\"ann\",\"weight\":2.5,"
      "\"class\":\"batch\"}\n{\"arrival_s\":0,\"prompt_tokens\":5,\"output_tokens\":2,\"tenant\":\"ben\"}");
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_EQ(*requests, (std::vector<ArrivingRequest>{{0, 5, 2, "ann", 2.5, PriorityClass::kBatch},
                                                     {0, 5, 2, "ben", 1, PriorityClass::kDefault}}));
}

TEST(ArrivalTrace, NamesTheLineThatIsWrong) {
  const std::string good = "{\"arrival_s\":1,\"prompt_tokens\":5,\"output_tokens\":2}\n";
  const std::pair<const char*, const char*> wrong[] = {
      {"nonsense", "expected a JSON object"},
      {"[1]", "expected a JSON object"},
      {"{\"arrival_s\":1,\"prompt_tokens\":5}", "'output_tokens' is missing"},
      {"{\"arrival_s\":\"1\",\"prompt_tokens\":5,\"output_tokens\":2}", "'arrival_s': expected a number, found string"},
      {"{\"arrival_s\":1,\"prompt_tokens\":0,\"output_tokens\":2}", "'prompt_tokens': 0 is out of range"},
      {"{\"arrival_s\":1,\"prompt_tokens\":1.5,\"output_tokens\":2}", "expected whole tokens, found 1.5"},
      {"{\"arrival_s\":1,\"prompt_tokens\":1e300,\"output_tokens\":2}", "out of range"},
      {"{\"arrival_s\":1,\"prompt_tokens\":5,\"output_tokens\":2,\"tenant\":7}",
       "'tenant': expected a string, found number"},
      {"{\"arrival_s\":1,\"prompt_tokens\":5,\"output_tokens\":2,\"weight\":0}",
       "'weight': 0 is out of range, expected 0.001"},
      {"{\"arrival_s\":1,\"prompt_tokens\":5,\"output_tokens\":2,\"class\":\"vip\"}",
       "expected one of interactive, default, batch"},
      {"{\"arrival_s\":0.5,\"prompt_tokens\":5,\"output_tokens\":2}", "expected times in order"}};
  for (const auto& [line, message] : wrong) {
    const absl::Status status = TraceOf(good + "\n" + line).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("trace.jsonl', line 3: ")) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << line;
  }
  EXPECT_THAT(std::string(TraceOf("\n\n").status().message()), HasSubstr("trace.jsonl' holds no requests"));
  EXPECT_TRUE(absl::IsNotFound(ReadArrivalTrace("/nowhere/trace").status()));
  EXPECT_TRUE(absl::IsNotFound(ReadArrivalTrace("/").status())) << "a directory";
  const std::string endless(ReadArrivalTrace("/dev/zero").status().message());
  EXPECT_THAT(endless, HasSubstr("'/dev/zero': line 1 is longer than 65536 bytes"));
}

TEST(RequestFeed, HandsOutWhatHasArrivedWhileFewEnoughRun) {
  RequestFeed feed({{0, 1, 1}, {0.5, 1, 1}, {0.6, 1, 1}, {2, 1, 1}}, 2);
  EXPECT_EQ(feed.Take(0), 0u);
  EXPECT_EQ(feed.Take(0.4), std::nullopt);
  EXPECT_EQ(feed.NextAt(), 0.5);
  EXPECT_EQ(feed.Take(0.7), 1u);
  EXPECT_EQ(feed.Take(0.7), std::nullopt);  // two run
  EXPECT_EQ(feed.NextAt(), std::nullopt);
  feed.Finished();
  EXPECT_EQ(feed.NextAt(), 0.6);  // in the past: at once
  EXPECT_EQ(feed.Take(0.9), 2u);
  feed.Finished();
  EXPECT_EQ(feed.NextAt(), 2);
  EXPECT_FALSE(feed.AllTaken());
  EXPECT_EQ(feed.Take(2), 3u);
  EXPECT_TRUE(feed.AllTaken());
  EXPECT_EQ(feed.NextAt(), std::nullopt);
}

TEST(RequestFeed, WithoutALimitWaitsForTimeAlone) {
  RequestFeed feed({{0, 1, 1}, {0, 1, 1}, {0, 1, 1}}, 0);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(feed.Take(0), i);
  EXPECT_EQ(feed.Take(0), std::nullopt);
}

}  // namespace
}  // namespace stagecoach
