#include "coordinator/bench/serve_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/json/json_value.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  ServeLoad load;
  load.rate_per_s = 2;
  load.max_concurrency = 4;
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

}  // namespace
}  // namespace stagecoach
