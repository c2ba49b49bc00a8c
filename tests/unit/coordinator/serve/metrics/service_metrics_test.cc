#include "coordinator/serve/metrics/service_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/testing/paths.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"
#include "tests/unit/coordinator/serve/metrics/metrics_samples.h"

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1000000;

SessionEvent TokensAt(int64_t at_us, int count) {
  SessionEvent event;
  event.at_us = at_us;
  for (int i = 0; i < count; ++i) event.tokens.emplace_back();
  return event;
}

SessionEvent EndBy(Finished::Reason reason, int64_t prefill_us, int64_t cached = 0,
                   Finished::Code code = Finished::CODE_UNSPECIFIED) {
  SessionEvent event;
  event.finished.emplace();
  event.finished->set_reason(reason);
  event.finished->set_code(code);
  event.finished->mutable_cost()->set_prefill_us(prefill_us);
  event.finished->mutable_cost()->set_cached_tokens(cached);
  return event;
}

ServiceFacts Facts() {
  return {.version = "1.2", .model = "a \"model\"\n", .start_time_s = 1.7e9, .slo_ttft_s = 1.5, .slo_itl_s = 0.05};
}

// Two requests that were answered, one that was cancelled while it waited, one that no engine took, and one that waits.
void LiveThrough(ServiceMetrics* metrics) {
  const auto begun = [&](const char* api, const char* tenant, int64_t tokens) {
    MeteredRequest request = {.api = api, .tenant = tenant, .prompt_tokens = tokens, .accepted_us = kSecond};
    metrics->Submitted(request);
    return request;
  };
  MeteredRequest answered = begun("chat", "ann", 100);
  SessionEvent first = TokensAt(2 * kSecond, 1);
  first.cost.emplace().set_cached_tokens(64);
  metrics->Took(first, 9 * kSecond, &answered);
  metrics->Took(TokensAt(2 * kSecond + 40000, 1), 9 * kSecond, &answered);
  metrics->Took(TokensAt(2 * kSecond + 80000, 2), 9 * kSecond, &answered);
  metrics->Took(EndBy(Finished::REASON_STOP, 250000, 64), 3 * kSecond, &answered);
  MeteredRequest slow = begun("messages", "bob", 10);
  metrics->Took(TokensAt(5 * kSecond, 1), 5 * kSecond, &slow);
  metrics->Took(TokensAt(6 * kSecond, 1), 6 * kSecond, &slow);
  metrics->Took(EndBy(Finished::REASON_CANCELLED, 500000, 0, Finished::CODE_DEADLINE), 7 * kSecond, &slow);
  MeteredRequest waited = begun("chat", "bob", 20);
  metrics->Took(EndBy(Finished::REASON_CANCELLED, 0), 4 * kSecond, &waited);
  MeteredRequest rejected = begun("chat", "bob", 30);
  metrics->Took(EndBy(Finished::REASON_REJECTED, 0), kSecond, &rejected);
  begun("completions", "ann", 40);
  metrics->Answered("/v1/chat/completions", 200);
  metrics->Answered("/v1/chat/completions", 200);
  metrics->Answered("other", 404);
  metrics->SetConnections(3, 5, 1);
  metrics->SetStreams(2);
  metrics->SlowClient();
  metrics->Ignored("parameter");
  metrics->Refused("queue_full");
  metrics->TakeStatus(SampleStatus(), 0);
  SessionStatus later = SampleStatus();
  later.statistics.set_busy_s(30);
  for (pb::StageSummary& stage : *later.statistics.mutable_stages()) stage.set_compute_s(stage.compute_s() + 5);
  later.statistics.set_bubble_floor(0.375);
  metrics->TakeStatus(later, 10 * kSecond);
}

std::string Golden() {
  std::ifstream file(testing::SourcePath("tests/unit/coordinator/serve/metrics/metrics.txt"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// STAGECOACH_WRITE_GOLDEN names a file that gets the text, for a look at what a change does to it.
TEST(ServiceMetrics, AreThisText) {
  ServiceMetrics metrics(Facts());
  LiveThrough(&metrics);
  const std::string text = metrics.Text({.resident_bytes = 4096, .cpu_seconds = 1.5});
  if (const char* path = std::getenv("STAGECOACH_WRITE_GOLDEN")) std::ofstream(path) << text;
  EXPECT_EQ(text, Golden());
}

TEST(ServiceMetrics, QueueAndPrefillTogetherAreTheTimeToTheFirstToken) {
  ServiceMetrics metrics(Facts());
  LiveThrough(&metrics);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("stagecoach_time_to_first_token_seconds_sum 5\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_request_queue_time_seconds_sum 4.25\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_request_prefill_time_seconds_sum 0.75\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_requests_finished_total{api=\"messages\",reason=\"deadline\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_slo_met_total{slo=\"ttft\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_slo_met_total{slo=\"itl\"} 1\n"));
}

TEST(ServiceMetrics, APromptCountsOnceAndFromItsFirstTokenOn) {
  ServiceMetrics metrics(Facts());
  MeteredRequest first = {.api = "chat", .tenant = "ann", .prompt_tokens = 100};
  MeteredRequest second = {.api = "chat", .tenant = "ann", .prompt_tokens = 0};  // the same prompt's other choice
  metrics.Submitted(first);
  metrics.Submitted(second);
  EXPECT_THAT(metrics.Text({}), HasSubstr("stagecoach_prompt_tokens_total 0\n"));
  SessionEvent token = TokensAt(5, 1);
  token.cost.emplace().set_cached_tokens(64);
  metrics.Took(token, 5, &first);
  metrics.Took(token, 5, &second);
  const auto counts_once = [&] {
    const std::string text = metrics.Text({});
    EXPECT_THAT(text, HasSubstr("stagecoach_prompt_tokens_total 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_tenant_tokens_total{tenant=\"ann\",kind=\"prompt\"} 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_prefix_cache_queries_total 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_prefix_cache_hits_total 64\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_request_prompt_tokens_count 1\n"));
  };
  counts_once();
  metrics.Took(EndBy(Finished::REASON_STOP, 250000, 64), 9, &first);
  metrics.Took(EndBy(Finished::REASON_STOP, 250000, 96), 9, &second);
  counts_once();
  EXPECT_THAT(metrics.Text({}), HasSubstr("stagecoach_request_generation_tokens_count 2\n"));
}

TEST(ServiceMetrics, WhileNoJobRunsWhatWaitsIsWhatTheFrontKnows) {
  ServiceMetrics metrics(Facts());
  LiveThrough(&metrics);
  SessionStatus status = SampleStatus();
  status.job_ready = false;
  status.engine.Clear();
  metrics.TakeStatus(status, 11 * kSecond);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("stagecoach_waiting_prompt_tokens 40\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_requests_waiting{class=\"interactive\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_requests_waiting{class=\"default\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_requests_waiting{class=\"batch\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_stage_up{stage=\"0\",host=\"alpha\"} 0\n"));
}

TEST(ServiceMetrics, ALossAndItsRecoveryCountOnceHoweverOftenTheyAreSeen) {
  ServiceMetrics metrics(Facts());
  SessionStatus status = SampleStatus();
  status.losses[0].recovered_us = 0;
  metrics.TakeStatus(status, 0);
  metrics.TakeStatus(status, 1);
  EXPECT_THAT(metrics.Text({}), HasSubstr("stagecoach_recovery_seconds_count 0\n"));
  for (int i = 0; i < 3; ++i) metrics.TakeStatus(SampleStatus(), 2 + i);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("stagecoach_stage_losses_total{host=\"gamma\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_recovery_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("stagecoach_recovery_seconds_sum 2.5\n"));
}

TEST(ServiceMetrics, NoMoreTenantsAreCountedApartThanThereMayBeKeys) {
  ServiceMetrics metrics(Facts());
  for (int i = 0; i < 200; ++i) {
    MeteredRequest request = {.api = "chat", .tenant = "key" + std::to_string(i), .prompt_tokens = 1};
    metrics.Submitted(request);
    metrics.Took(TokensAt(5, 1), 5, &request);
  }
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("{tenant=\"key63\",kind=\"generation\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("key64")));
  EXPECT_THAT(text, HasSubstr("{tenant=\"other\",kind=\"generation\"} 136\n"));
}

TEST(ServiceMetrics, HaveTheNamesOfVllmWhereTheyAreWanted) {
  ServiceFacts facts = Facts();
  facts.model = "m";
  ServiceMetrics plain(facts);
  EXPECT_THAT(plain.Text({}), Not(HasSubstr("vllm:")));
  facts.vllm_names = true;
  ServiceMetrics metrics(facts);
  LiveThrough(&metrics);
  const std::string text = metrics.Text({});
  const std::string labels = "{model_name=\"m\",engine=\"0\"";
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running" + labels + "} 4\n"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_waiting" + labels + "} 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc" + labels + "} 0.3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total" + labels + ",finished_reason=\"abort\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"+Inf\"} 2\n"));
}

TEST(ServiceMetrics, TheProcessIsMeasuredWhereTheSystemSays) {
  const ProcessUse use = ReadProcessUse();
  EXPECT_GT(use.resident_bytes, 1e6);
  EXPECT_GE(use.cpu_seconds, 0);
}

// `promtool` of Prometheus: in PATH, or where PROMTOOL says.
TEST(ServiceMetrics, PromtoolHasNothingToSay) {
  const char* variable = std::getenv("PROMTOOL");
  const std::string promtool = variable != nullptr ? variable : "promtool";
  const auto found = testing::RunProgram("sh", {"-c", "command -v \"$0\"", promtool});
  if (found.exit_code != 0) {
    GTEST_SKIP() << "NOT RUN: no " << promtool << " (Debian's package prometheus has one; PROMTOOL may name it)";
  }
  ServiceMetrics metrics(Facts());
  const std::string empty = metrics.Text(ReadProcessUse());
  LiveThrough(&metrics);
  for (const std::string& text : {empty, metrics.Text(ReadProcessUse())}) {
    const auto checked = testing::RunProgram(promtool, {"check", "metrics"}, text);
    EXPECT_EQ(checked.exit_code, 0) << checked;
    EXPECT_EQ(checked.out + checked.err, "");
  }
}

}  // namespace
}  // namespace stagecoach
