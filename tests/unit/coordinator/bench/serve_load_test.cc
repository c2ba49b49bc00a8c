#include "coordinator/bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/base/shown_text.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/bench/serve_summary.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

ServeLoad RandomLoad() {
  ServeLoad load = {.model = "m", .requests = 50, .vocab = 1000};
  load.dataset.input_tokens = 20;
  load.dataset.output_tokens = 10;
  return load;
}

std::vector<Json> BodiesOf(const ServeLoad& load) {
  const std::vector<ServeRequest> requests = MakeServeRequests(load).value();
  std::vector<Json> bodies;
  for (const ServeRequest& request : requests) bodies.push_back(*ParseJson(request.body));
  return bodies;
}

struct ServeLoadTest : ::testing::Test {
  ServeLoad load = RandomLoad();
};

TEST_F(ServeLoadTest, RandomPromptsAreTokensWithinTheVocabularyAndTheSameForASeed) {
  const std::vector<Json> bodies = BodiesOf(load);
  for (const Json& body : bodies) {
    EXPECT_EQ(body["prompt"].size(), 20u);
    EXPECT_EQ(body["max_tokens"], 10);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    for (const Json& token : body["prompt"]) {
      EXPECT_GE(token.get<int>(), 100);
      EXPECT_LT(token.get<int>(), 900);
    }
  }
  EXPECT_NE(bodies[0]["prompt"], bodies[1]["prompt"]);
  EXPECT_EQ(bodies, BodiesOf(load));
  ServeLoad other = load;
  other.seed = 1;
  EXPECT_NE(bodies, BodiesOf(other));
}

TEST_F(ServeLoadTest, SharedPrefixesComeFirstAndLengthsStayInTheirRange) {
  load.dataset.prefix_tokens = 7;
  load.dataset.range_ratio = 0.5;
  const std::vector<Json> bodies = BodiesOf(load);
  size_t shortest = 1000, longest = 0;
  for (const Json& body : bodies) {
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(body["prompt"][i], bodies[0]["prompt"][i]);
    shortest = std::min(shortest, body["prompt"].size());
    longest = std::max(longest, body["prompt"].size());
  }
  EXPECT_GE(shortest, 17u);
  EXPECT_LE(longest, 37u);
  EXPECT_LT(shortest, longest);
}

TEST_F(ServeLoadTest, ChatGetsWordsInAMessage) {
  load.api = &kChatApi;
  load.vocab = 0;  // not needed
  load.dataset.prefix_tokens = 2;
  const std::vector<Json> bodies = BodiesOf(load);
  const std::string text = bodies[0]["messages"][0]["content"].get<std::string>();
  EXPECT_EQ(text.size(), 3u * 22);
  EXPECT_EQ(text.substr(0, 6), bodies[1]["messages"][0]["content"].get<std::string>().substr(0, 6));
  EXPECT_EQ(bodies[0]["messages"][0]["role"], "user");
}

TEST_F(ServeLoadTest, RandomTokensNeedAVocabularyAndWordsDoNot) {
  load.vocab = 0;
  EXPECT_THAT(MakeServeRequests(load).status().message(), HasSubstr("meta.n_vocab"));
  load.dataset.words = true;
  EXPECT_EQ(BodiesOf(load)[0]["prompt"].get<std::string>().size(), 3u * 20);
}

TEST_F(ServeLoadTest, MoreAtOnceThanThereAreClientsIsSaid) {
  EXPECT_EQ(ClientsFor(load).clients, 50);
  load.requests = kMostServeClients + 1;
  EXPECT_EQ(ClientsFor(load).clients, kMostServeClients);
  EXPECT_TRUE(ClientsFor(load).fewer);
  load.rate_per_s = 10;
  EXPECT_FALSE(ClientsFor(load).fewer) << "those that are late are found by it";
  load.rate_per_s = std::numeric_limits<double>::infinity();
  load.max_concurrency = 8;
  EXPECT_EQ(ClientsFor(load).clients, 8);
  EXPECT_FALSE(ClientsFor(load).fewer);
}

TEST_F(ServeLoadTest, GapsHaveTheMeanOfTheRateAndTheSpreadOfTheBurstiness) {
  for (const double burstiness : {0.5, 1.0, 8.0}) {
    ServeLoad load = RandomLoad();
    load.requests = 5000;
    load.dataset.input_tokens = load.dataset.output_tokens = 1;
    load.rate_per_s = 4;
    load.burstiness = burstiness;
    const std::vector<ServeRequest> requests = *MakeServeRequests(load);
    double sum = 0, squares = 0;
    for (size_t i = 1; i < requests.size(); ++i) {
      const double gap = requests[i].due_s - requests[i - 1].due_s;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
    }
    const double n = static_cast<double>(requests.size() - 1), mean = sum / n;
    EXPECT_NEAR(mean, 0.25, 0.03);
    EXPECT_NEAR((squares / n - mean * mean) / (mean * mean), 1 / burstiness, 0.25 / burstiness);
  }
}

TEST_F(ServeLoadTest, FilesGivePromptsAndLengthsAndAreReadAgainFromTheirStart) {
  testing::TempDir directory;
  load.requests = 3;
  load.dataset.file = directory.File("prompts.jsonl");
  testing::WriteFileOrDie(load.dataset.file, "{\"prompt\": \"one\", \"output_len\": 5}\n\n{\"prompt\": [1, 2]}\n");
  const std::vector<Json> bodies = BodiesOf(load);
  EXPECT_EQ(bodies[0]["prompt"], "one");
  EXPECT_EQ(bodies[0]["max_tokens"], 5);
  EXPECT_EQ(bodies[1]["prompt"], Json::array({1, 2}));
  EXPECT_EQ(bodies[1]["max_tokens"], 10);
  EXPECT_EQ(bodies[2], bodies[0]);
}

TEST_F(ServeLoadTest, AWrongLineOfAFileIsNamed) {
  testing::TempDir directory;
  load.dataset.file = directory.File("prompts.jsonl");
  const auto message_of = [&](const std::string& text) {
    testing::WriteFileOrDie(load.dataset.file, text);
    return std::string(MakeServeRequests(load).status().message());
  };
  EXPECT_THAT(message_of("{\"prompt\": \"one\"}\n{\n"), HasSubstr("line 2: "));
  EXPECT_THAT(message_of("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(message_of("{}"), HasSubstr("'prompt' or 'messages'"));
  EXPECT_THAT(message_of("{\"messages\": []}"), HasSubstr("--endpoint chat"));
  EXPECT_THAT(message_of("{\"prompt\": \"a\", \"output_len\": 0}"), HasSubstr("'output_len'"));
  EXPECT_THAT(message_of(""), HasSubstr("is empty"));
  load.dataset.file = directory.File("none");
  EXPECT_THAT(MakeServeRequests(load).status().message(), HasSubstr("cannot be read"));
}

TEST(TakeAnswerEvent, TakesTextUsageErrorsAndTheEnd) {
  ServeOutcome outcome;
  TakeAnswerEvent(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": null})", 1, &outcome);
  EXPECT_TRUE(outcome.text_at_us.empty());
  TakeAnswerEvent(R"({"choices": [{"delta": {"content": "a"}}]})", 2, &outcome);
  TakeAnswerEvent(R"({"choices": [{"delta": {"content": "", "reasoning_content": "b"}}]})", 3, &outcome);
  TakeAnswerEvent(R"({"choices": [{"text": "c"}]})", 4, &outcome);
  TakeAnswerEvent(R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
                       "prompt_tokens_details": {"cached_tokens": 4}}})",
                  5, &outcome);
  EXPECT_EQ(outcome.text_at_us, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(outcome.input_tokens, 7);
  EXPECT_EQ(outcome.output_tokens, 3);
  EXPECT_EQ(outcome.cached_tokens, 4);
  EXPECT_FALSE(outcome.done);
  TakeAnswerEvent("[DONE]", 6, &outcome);
  EXPECT_TRUE(outcome.done);
  EXPECT_TRUE(outcome.ok());
  TakeAnswerEvent(R"({"error": {"message": "gone"}})", 7, &outcome);
  EXPECT_EQ(outcome.error, "gone");
}

TEST(TakeAnswerEvent, SurvivesWhateverAServerSends) {
  for (const char* event :
       {"", "nonsense", "[]", "1", R"({"choices": 1})", R"({"choices": [1, {"delta": 2}, {"text": 3}]})",
        R"({"usage": []})", R"({"usage": {"prompt_tokens": "x", "completion_tokens": -5}})"}) {
    ServeOutcome outcome;
    TakeAnswerEvent(event, 1, &outcome);
    EXPECT_TRUE(outcome.text_at_us.empty());
    EXPECT_GE(outcome.output_tokens, 0);
  }
  ServeOutcome wordless;
  TakeAnswerEvent(R"({"error": {"message": ""}})", 1, &wordless);
  EXPECT_FALSE(wordless.ok()) << "an error is one without a word too";
}

TEST(TakeAnswerEvent, LetsNoServerCountBeyondWhatCanBeAdded) {
  ServeRun run;
  run.outcomes.resize(3);
  for (ServeOutcome& outcome : run.outcomes) {
    TakeAnswerEvent(R"({"usage": {"prompt_tokens": 9223372036854775807, "completion_tokens": 18446744073709551615,
            "prompt_tokens_details": {"cached_tokens": 9223372036854775807}}})",
                    1, &outcome);
  }
  const ServeSummary summary = SummarizeServeRun(run, ServeLoad(), Goodput(), {});
  EXPECT_GT(summary.input_tokens, 1'000'000);
  EXPECT_GT(summary.output_tokens, 1'000'000);
}

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
  EXPECT_THAT(ParseLengths("9:3").status().message(), HasSubstr("3, is below the shortest, 9"));
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
                            "{\"arrival_s\":0.5,\"prompt_tokens\":7,\"output_tokens\":1}\r\n")
                            .value();
  EXPECT_EQ(requests, (std::vector<ArrivingRequest>{{0, 5, 2}, {0.5, 7, 1}}));
}

TEST(ArrivalTrace, CanSayWhoseARequestIs) {
  const auto requests =
      TraceOf(
          "{\"arrival_s\":0,\"prompt_tokens\":5,\"output_tokens\":2,\"tenant\":\"ann\",\"weight\":2.5,"
          "\"class\":\"batch\"}\n{\"arrival_s\":0,\"prompt_tokens\":5,\"output_tokens\":2,\"tenant\":\"ben\"}")
          .value();
  EXPECT_EQ(requests, (std::vector<ArrivingRequest>{{0, 5, 2, "ann", 2.5, PriorityClass::kBatch},
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
    EXPECT_THAT(status.message(), HasSubstr("trace.jsonl', line 3: ")) << line;
    EXPECT_THAT(status.message(), HasSubstr(message)) << line;
  }
  EXPECT_THAT(TraceOf("\n\n").status().message(), HasSubstr("trace.jsonl' holds no requests"));
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

// Sent at 0.1 s, first text 100 ms later, then one more each 50 ms.
ServeOutcome Answer(int64_t start_us, int64_t tokens) {
  ServeOutcome outcome;
  outcome.due_us = outcome.sent_us = start_us + 100'000;
  for (int64_t i = 0; i < tokens; ++i) outcome.text_at_us.push_back(start_us + 200'000 + i * 50'000);
  outcome.end_us = outcome.text_at_us.back() + 1000;
  outcome.input_tokens = 8;
  outcome.output_tokens = tokens;
  outcome.has_usage = true;
  return outcome;
}

ServeRun TwoAnswers() {
  ServeRun run;
  run.start_us = 5'000'000;
  run.end_us = 7'000'000;
  run.outcomes = {Answer(5'000'000, 11), Answer(6'000'000, 5)};
  return run;
}

TEST(ServeSummary, CountsAsTheDefinitionsSay) {
  const ServeRun run = TwoAnswers();
  Goodput goodput;
  ASSERT_TRUE(AddGoodput("e2el:400", &goodput).ok());
  const ServeSummary summary = SummarizeServeRun(run, ServeLoad(), goodput, {0, 100});
  EXPECT_EQ(summary.successful, 2);
  EXPECT_EQ(summary.input_tokens, 16);
  EXPECT_EQ(summary.output_tokens, 16);
  EXPECT_DOUBLE_EQ(summary.duration_s, 2);
  EXPECT_DOUBLE_EQ(summary.ttft.mean, 100);
  EXPECT_DOUBLE_EQ(summary.tpot.mean, 50);
  EXPECT_EQ(summary.itl.count, 14);
  EXPECT_DOUBLE_EQ(summary.itl.median, 50);
  EXPECT_DOUBLE_EQ(summary.e2el.percentiles[0], 300);
  EXPECT_DOUBLE_EQ(summary.e2el.percentiles[1], 600);
  EXPECT_DOUBLE_EQ(summary.e2el.median, 450);
  EXPECT_EQ(summary.good, 1);
  EXPECT_DOUBLE_EQ(summary.peak_output_tokens_per_s, 11);
  EXPECT_EQ(summary.peak_concurrent, 1);
  EXPECT_TRUE(summary.invalid.empty());
}

TEST(ServeSummary, TheBlockHasTheOtherBenchmarksLabelsAndOrder) {
  ServeLoad load = {.rate_per_s = 2, .max_concurrency = 4};
  Goodput goodput;
  ASSERT_TRUE(AddGoodput("ttft:200", &goodput).ok());
  const ServeSummary summary = SummarizeServeRun(TwoAnswers(), load, goodput, {99});
  EXPECT_EQ(ServeSummaryText(summary, load, goodput, {99}),
            R"(VALID
============ Serving Benchmark Result ============
Successful requests:                     2         
Failed requests:                         0         
Maximum request concurrency:             4         
Request rate configured (RPS):           2.00      
Benchmark duration (s):                  2.00      
Total input tokens:                      16        
Total generated tokens:                  16        
Request throughput (req/s):              1.00      
Request goodput (req/s):                 1.00      
Output token throughput (tok/s):         8.00      
Peak output token throughput (tok/s):    11.00     
Peak concurrent requests:                1.00      
Total token throughput (tok/s):          16.00     
---------------Time to First Token----------------
Mean TTFT (ms):                          100.00    
Median TTFT (ms):                        100.00    
P99 TTFT (ms):                           100.00    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          50.00     
Median TPOT (ms):                        50.00     
P99 TPOT (ms):                           50.00     
---------------Inter-token Latency----------------
Mean ITL (ms):                           50.00     
Median ITL (ms):                         50.00     
P99 ITL (ms):                            50.00     
----------------End-to-end Latency----------------
Mean E2EL (ms):                          450.00    
Median E2EL (ms):                        450.00    
P99 E2EL (ms):                           597.00    
==================================================
)");
}

TEST(ServeSummary, FailuresMissingCountsAndLateRequestsAreSaidFirst) {
  ServeRun run = TwoAnswers();
  run.outcomes[0].error = "status 500";
  run.outcomes[1].has_usage = false;
  ServeLoad load;
  load.rate_per_s = 2;
  run.outcomes[1].due_us -= 90'000;
  const ServeSummary summary = SummarizeServeRun(run, load, Goodput(), {99});
  const std::string text = ServeSummaryText(summary, load, Goodput(), {99});
  EXPECT_THAT(text, StartsWith("INVALID: 1 requests failed; 1 answers do not say how many tokens they have; one"));
  EXPECT_THAT(text, HasSubstr("89 ms late"));
  EXPECT_EQ(summary.errors, (std::vector<std::string>{"1 x status 500"}));
  EXPECT_THAT(text, Not(HasSubstr("goodput")));
  const Json json = ServeSummaryJson(summary, load, {99});
  EXPECT_EQ(json["valid"], false);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_TRUE(json.contains("p99_ttft_ms"));
}

TEST(ServeSummary, NoAnswersAtAllAreNoCrash) {
  ServeRun run;
  EXPECT_EQ(SummarizeServeRun(run, ServeLoad(), Goodput(), {99}).ttft.count, 0);
  run.outcomes.resize(1);
  run.outcomes[0].error = "not sent";
  EXPECT_EQ(SummarizeServeRun(run, ServeLoad(), Goodput(), {99}).failed, 1);
}

TEST(Goodput, IsReadOrRefused) {
  Goodput goodput;
  EXPECT_TRUE(AddGoodput("ttft:100.5", &goodput).ok());
  EXPECT_TRUE(AddGoodput("tpot:20", &goodput).ok());
  EXPECT_EQ(goodput.ttft_ms, 100.5);
  EXPECT_EQ(goodput.tpot_ms, 20);
  for (const char* wrong : {"", "ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:nan", "itl:5", "ttft:5:6"}) {
    EXPECT_FALSE(AddGoodput(wrong, &goodput).ok()) << wrong;
  }
}

TEST(ServerMessage, IsThatOfAnErrorAndElseWhatCame) {
  EXPECT_EQ(ServerMessage(R"({"error":{"message":"no \u00e9","type":"t","code":null}})"), "no \xC3\xA9");
  for (const char* other : {"<html>", "[]", "{}", R"({"error":"x"})", R"({"error":{}})", R"({"error":{"message":1}})",
                            R"({"error":{"message":""}})"}) {
    EXPECT_EQ(ServerMessage(other), other);
  }
  EXPECT_EQ(ServerMessage(""), "without a word");
  EXPECT_EQ(ServerMessage(std::string(1000, 'x')), CutText(std::string(1000, 'x')));
}

}  // namespace
}  // namespace stagecoach
