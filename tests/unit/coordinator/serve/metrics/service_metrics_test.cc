#include "coordinator/serve/metrics/service_metrics.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "common/json/json_value.h"
#include "coordinator/serve/metrics/cluster_json.h"
#include "coordinator/serve/metrics/metric_text.h"
#include "coordinator/session/session_thread.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;

// A session of two stages in the middle of its work, which has lost one before.
pb::StageSummary SampleStage(int stage) {
  pb::StageSummary summary;
  summary.set_stage(stage);
  summary.set_rank(2 - stage);
  summary.set_host(stage == 0 ? "alpha" : "be\"ta\\");
  summary.set_pid(100 + stage);
  summary.set_first_layer(stage * 4);
  summary.set_last_layer(stage * 4 + 3);
  summary.set_threads(2);
  summary.add_cpus(2 * stage);
  summary.add_cpus(2 * stage + 1);
  summary.set_isa(pb::INSTRUCTION_SET_AVX2);
  summary.set_weight_bytes(1000);
  summary.set_kv_bytes(2000);
  summary.set_scratch_bytes(300);
  summary.set_resident_bytes(4000);
  return summary;
}

SessionStatus SampleStatus() {
  SessionStatus status;
  status.state = SessionStatus::State::kReady;
  status.job_ready = true;
  status.relaunches = 1;
  status.unfinished = 7;
  status.unfinished_by_class = {1, 5, 1};
  status.losses = {
      {.number = 1, .stage = 1, .host = "gamma", .what = "stage 1 died", .at_us = 1000000, .recovered_us = 3500000}};
  status.ready.set_context(4096);
  status.ready.set_block_tokens(32);
  status.ready.set_bf16_dot(true);
  status.statistics.set_micro_batches(20);
  status.statistics.set_prefill_rows(100);
  status.statistics.set_decode_rows(40);
  status.statistics.set_preemptions(3);
  status.statistics.set_busy_s(10);
  status.statistics.set_bubble_floor(0.25);
  for (const int count : {0, 0, 0, 0, 5}) status.statistics.add_prefill_sizes(static_cast<uint64_t>(count));
  for (const int count : {10, 15}) status.statistics.add_decode_sizes(static_cast<uint64_t>(count));
  for (int stage = 0; stage < 2; ++stage) {
    *status.ready.add_stages() = SampleStage(stage);
    pb::StageSummary* sums = status.statistics.add_stages();
    *sums = SampleStage(stage);
    sums->set_compute_s(8 - stage);
    sums->set_wait_s(2 + stage);
    sums->set_send_s(0.5);
    sums->set_bytes_sent(5000);
    if (stage == 1) {
      sums->set_grammar_mask_s(1.25);
      sums->set_grammar_mask_hits(70);
    }
    pb::StageSummary* now = status.engine.mutable_statistics()->add_stages();
    *now = SampleStage(stage);
    now->set_resident_bytes(4500);
    now->set_hop_us(250);
    status.engine.add_heartbeat_age_us(stage == 0 ? 400000 : 5000000);
  }
  status.engine.set_requests_running(4);
  for (const int running : {1, 3, 0}) status.engine.add_running_by_class(running);
  status.engine.set_waiting_tokens(55);
  status.engine.set_micro_batches_in_flight(2);
  status.engine.add_blocks_used(30);
  status.engine.add_blocks_free(60);
  status.engine.add_blocks_cached(10);
  status.engine.set_states_used(3);
  status.engine.set_states_cached(2);
  status.engine.set_states_free(7);
  status.statistics.set_prefix_stateless_tokens(32);
  status.statistics.set_guesses(16);
  status.statistics.set_guesses_right(9);
  status.statistics.set_void_s(0.75);
  for (const bool suffix : {false, true}) {
    pb::GuesserStatistics* guesser = status.statistics.add_guessers();
    guesser->set_name(suffix ? "suffix" : "prediction");
    guesser->set_tried(suffix ? 10 : 4);
    guesser->set_right(suffix ? 6 : 3);
  }
  return status;
}

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
  metrics->RecordEvent(first, 9 * kSecond, &answered);
  metrics->RecordEvent(TokensAt(2 * kSecond + 40000, 1), 9 * kSecond, &answered);
  metrics->RecordEvent(TokensAt(2 * kSecond + 80000, 2), 9 * kSecond, &answered);
  metrics->RecordEvent(EndBy(Finished::REASON_STOP, 250000, 64), 3 * kSecond, &answered);
  MeteredRequest slow = begun("messages", "bob", 10);
  metrics->RecordEvent(TokensAt(5 * kSecond, 1), 5 * kSecond, &slow);
  metrics->RecordEvent(TokensAt(6 * kSecond, 1), 6 * kSecond, &slow);
  metrics->RecordEvent(EndBy(Finished::REASON_CANCELLED, 500000, 0, Finished::CODE_DEADLINE), 7 * kSecond, &slow);
  MeteredRequest waited = begun("chat", "bob", 20);
  metrics->RecordEvent(EndBy(Finished::REASON_CANCELLED, 0), 4 * kSecond, &waited);
  MeteredRequest rejected = begun("chat", "bob", 30);
  metrics->RecordEvent(EndBy(Finished::REASON_REJECTED, 0), kSecond, &rejected);
  begun("completions", "ann", 40);
  metrics->Answered("/v1/chat/completions", 200);
  metrics->Answered("/v1/chat/completions", 200);
  metrics->Answered("other", 404);
  metrics->SetConnections(3, 5, 1);
  metrics->SetStreams(2);
  metrics->CountSlowClient();
  metrics->CountIgnored("parameter");
  metrics->Refused("queue_full");
  metrics->CompiledGrammar(3000);
  metrics->CompiledGrammar(120000);
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

struct ServiceMetricsTest : ::testing::Test {
  ServiceMetrics metrics{Facts()};
};

// STAGECOACH_WRITE_GOLDEN names a file that gets the text, for a look at what a change does to it.
TEST_F(ServiceMetricsTest, AreThisText) {
  LiveThrough(&metrics);
  const std::string text = metrics.Text({.resident_bytes = 4096, .cpu_seconds = 1.5});
  if (const char* path = std::getenv("STAGECOACH_WRITE_GOLDEN")) std::ofstream(path) << text;
  EXPECT_EQ(text, Golden());
}

TEST_F(ServiceMetricsTest, APromptCountsOnceAndFromItsFirstTokenOn) {
  MeteredRequest first = {.api = "chat", .tenant = "ann", .prompt_tokens = 100};
  MeteredRequest second = {.api = "chat", .tenant = "ann", .prompt_tokens = 0};  // the same prompt's other choice
  metrics.Submitted(first);
  metrics.Submitted(second);
  EXPECT_THAT(metrics.Text({}), HasSubstr("stagecoach_prompt_tokens_total 0\n"));
  SessionEvent token = TokensAt(5, 1);
  token.cost.emplace().set_cached_tokens(64);
  metrics.RecordEvent(token, 5, &first);
  metrics.RecordEvent(token, 5, &second);
  const auto counts_once = [&] {
    const std::string text = metrics.Text({});
    EXPECT_THAT(text, HasSubstr("stagecoach_prompt_tokens_total 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_tenant_tokens_total{tenant=\"ann\",kind=\"prompt\"} 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_prefix_cache_queries_total 100\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_prefix_cache_hits_total 64\n"));
    EXPECT_THAT(text, HasSubstr("stagecoach_request_prompt_tokens_count 1\n"));
  };
  counts_once();
  metrics.RecordEvent(EndBy(Finished::REASON_STOP, 250000, 64), 9, &first);
  metrics.RecordEvent(EndBy(Finished::REASON_STOP, 250000, 96), 9, &second);
  counts_once();
  EXPECT_THAT(metrics.Text({}), HasSubstr("stagecoach_request_generation_tokens_count 2\n"));
}

TEST_F(ServiceMetricsTest, WhileNoJobRunsWhatWaitsIsWhatTheFrontKnows) {
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

TEST_F(ServiceMetricsTest, ALossAndItsRecoveryCountOnceHoweverOftenTheyAreSeen) {
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

TEST_F(ServiceMetricsTest, NoMoreTenantsAreCountedApartThanThereMayBeKeys) {
  for (int i = 0; i < 200; ++i) {
    MeteredRequest request = {.api = "chat", .tenant = "key" + std::to_string(i), .prompt_tokens = 1};
    metrics.Submitted(request);
    metrics.RecordEvent(TokensAt(5, 1), 5, &request);
  }
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("{tenant=\"key63\",kind=\"generation\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("key64")));
  EXPECT_THAT(text, HasSubstr("{tenant=\"other\",kind=\"generation\"} 136\n"));
}

TEST_F(ServiceMetricsTest, HaveTheNamesOfVllmWhereTheyAreWanted) {
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
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_drafts_total" + labels + "} 16\n"));
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_draft_tokens_total" + labels + "} 16\n"));
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_accepted_tokens_total" + labels + "} 9\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total" + labels + ",finished_reason=\"abort\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"+Inf\"} 2\n"));
}

TEST_F(ServiceMetricsTest, TheProcessIsMeasuredWhereTheSystemSays) {
  const ProcessUse use = ReadProcessUse();
  EXPECT_GT(use.resident_bytes, 1e6);
  EXPECT_GE(use.cpu_seconds, 0);
}

// `promtool` of Prometheus: in PATH, or where PROMTOOL says.
TEST_F(ServiceMetricsTest, PromtoolHasNothingToSay) {
  const char* variable = std::getenv("PROMTOOL");
  const std::string promtool = variable != nullptr ? variable : "promtool";
  const auto found = testing::RunProgram("sh", {"-c", "command -v \"$0\"", promtool});
  if (found.exit_code != 0) {
    GTEST_SKIP() << "NOT RUN: no " << promtool << " (Debian's package prometheus has one; PROMTOOL may name it)";
  }
  const std::string empty = metrics.Text(ReadProcessUse());
  LiveThrough(&metrics);
  for (const std::string& text : {empty, metrics.Text(ReadProcessUse())}) {
    const auto checked = testing::RunProgram(promtool, {"check", "metrics"}, text);
    EXPECT_EQ(checked.exit_code, 0) << checked;
    EXPECT_EQ(checked.out + checked.err, "");
  }
}

TEST(MetricText, IsAFamilyThenItsSamples) {
  MetricText text;
  text.Family("a_total", MetricText::Type::kCounter, "What \"a\" is: one\\two\nlines.");
  text.Sample(3, {{"x", "1"}, {"y", "2"}});
  text.Sample(0.1);
  text.Gauge("b", "B.", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(text.Take(),
            "# HELP a_total What \"a\" is: one\\\\two\\nlines.\n"
            "# TYPE a_total counter\n"
            "a_total{x=\"1\",y=\"2\"} 3\n"
            "a_total 0.1\n"
            "# HELP b B.\n"
            "# TYPE b gauge\n"
            "b -Inf\n");
}

TEST(MetricText, EscapesLabelsAndMakesThemUtf8) {
  MetricText text;
  text.Family("a", MetricText::Type::kGauge, "A.");
  text.Sample(1, {{"host", "back\\slash \"quoted\"\nline"}});
  text.Sample(1, {{"host", "caf\xc3\xa9"}});
  text.Sample(1, {{"host", "broken \xff end"}});
  text.Sample(1, {{"host", "cut \xe2\x82"}});
  const std::string taken = text.Take();
  EXPECT_THAT(taken, HasSubstr("{host=\"back\\\\slash \\\"quoted\\\"\\nline\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"caf\xc3\xa9\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"broken \xef\xbf\xbd end\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"cut \xef\xbf\xbd\"} 1\n"));
}

TEST(MetricText, WritesNumbersThatReadBackTheSame) {
  for (const double value : {0.1, 1e300, 123456789012345.0, 1e-300, 1.0 / 3, 9007199254740993.0}) {
    MetricText text;
    text.Gauge("a", "A.", value);
    const std::string taken = text.Take();
    EXPECT_EQ(std::stod(taken.substr(taken.rfind(' '))), value) << taken;
  }
}

TEST(MetricHistogram, CountsEachValueInTheFirstBucketThatHoldsIt) {
  MetricHistogram histogram({0.5, 1, 2});
  for (const double value : {0.5, 0.50001, 1.0, 2.5, -1.0}) histogram.Observe(value);
  histogram.Observe(2, 3);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 2, 3, 1));
  MetricText text;
  text.Family("h", MetricText::Type::kHistogram, "H.");
  text.Sample(histogram, {{"kind", "k"}});
  EXPECT_EQ(text.Take(),
            "# HELP h H.\n"
            "# TYPE h histogram\n"
            "h_bucket{kind=\"k\",le=\"0.5\"} 2\n"
            "h_bucket{kind=\"k\",le=\"1\"} 4\n"
            "h_bucket{kind=\"k\",le=\"2\"} 7\n"
            "h_bucket{kind=\"k\",le=\"+Inf\"} 8\n"
            "h_sum{kind=\"k\"} 9.50001\n"
            "h_count{kind=\"k\"} 8\n");
}

TEST(MetricHistogram, TakesWhatOthersCounted) {
  MetricHistogram histogram({1, 2});
  const std::vector<uint64_t> counts = {1, 2, 3, 4, 5};
  histogram.Set(counts, 77);
  histogram.Set(counts, 77);
  EXPECT_THAT(histogram.counts(), ElementsAre(1, 2, 12));
  EXPECT_EQ(histogram.sum(), 77);
}

TEST(MetricBounds, ReachFromAMillisecondToWhatIsAskedFor) {
  EXPECT_EQ(SecondsBounds(2560).front(), 0.001);
  EXPECT_EQ(SecondsBounds(2560).back(), 2560);
  EXPECT_EQ(SecondsBounds(80).back(), 80);
  EXPECT_THAT(CountBounds(20), ElementsAre(1, 2, 5, 10, 20));
}

TEST(LabelledCounts, KeepABoundedNumberOfValues) {
  LabelledCounts counts(2);
  for (const char* value : {"a", "b", "c", "d", "a", "c"}) counts.Add(value);
  EXPECT_EQ(counts.values().size(), 3u);
  EXPECT_EQ(counts.values().at("a"), 2);
  EXPECT_EQ(counts.values().at("b"), 1);
  EXPECT_EQ(counts.values().at("other"), 3);
}

TEST(ClusterJson, SaysEverythingOfACluster) {
  const Json json =
      ClusterJson(SampleStatus(), {.model = "m", .bubble_now = 0.25, .bubble_minute = 0.5, .bubble_floor = 0.375});
  EXPECT_EQ(CompactJson(json),
            R"({"state":"ready","model":{"name":"m","context":4096,"bf16_dot":true},"load":null,"relaunches":1,)"
            R"("losses":[{"number":1,"stage":1,"host":"gamma","what":"stage 1 died","recovery_s":2.5}],)"
            R"("requests":{"waiting":3,"running":4,"unfinished":7},"micro_batches_in_flight":2,"preemptions":3,)"
            R"("bubble":{"now":0.25,"minute":0.5,"floor":0.375},)"
            R"("kv":{"block_tokens":32,"groups":[{"used":30,"cached":10,"free":60}],)"
            R"("states":{"used":3,"cached":2,"free":7}},)"
            R"("stages":[{"stage":0,"rank":2,"host":"alpha","pid":100,"first_layer":0,"last_layer":3,"threads":2,)"
            R"("cpus":[0,1],"isa":"avx2","weight_bytes":1000,"kv_bytes":2000,"scratch_bytes":300,)"
            R"("resident_bytes":4500,"up":true,"heartbeat_age_ms":400.0,"busy_s":8.0,"wait_s":2.0,"send_s":0.5},)"
            R"({"stage":1,"rank":1,"host":"be\"ta\\","pid":101,"first_layer":4,"last_layer":7,"threads":2,)"
            R"("cpus":[2,3],"isa":"avx2","weight_bytes":1000,"kv_bytes":2000,"scratch_bytes":300,)"
            R"("resident_bytes":4500,"up":false,"heartbeat_age_ms":5000.0,"busy_s":7.0,"wait_s":3.0,"send_s":0.5}],)"
            R"("hops":[{"from":0,"to":1,"us":250,"bytes":5000},)"
            R"({"from":1,"to":"coordinator","us":250,"bytes":5000}]})");
}

TEST(ClusterJson, ADraftIsAProcessWithItsGuesses) {
  SessionStatus status = SampleStatus();
  EXPECT_FALSE(ClusterJson(status, {}).contains("draft"));
  *status.ready.mutable_draft() = SampleStage(0);
  *status.engine.mutable_statistics()->mutable_draft() = SampleStage(0);
  status.engine.mutable_statistics()->mutable_draft()->set_resident_bytes(4600);
  pb::GuesserStatistics* guesser = status.statistics.add_guessers();
  guesser->set_name("draft");
  guesser->set_tried(20);
  guesser->set_right(12);
  EXPECT_EQ(CompactJson(ClusterJson(status, {})["draft"]),
            R"({"rank":2,"host":"alpha","pid":100,"threads":2,"isa":"avx2","weight_bytes":1000,"kv_bytes":2000,)"
            R"("scratch_bytes":300,"resident_bytes":4600,"guesses":20,"guesses_right":12})");
}

TEST(ClusterJson, BeforeTheFirstJobThereIsOnlyItsProgress) {
  SessionStatus status;
  status.progress.set_bytes_loaded(5);
  status.progress.set_bytes_to_load(10);
  status.unfinished = 2;
  EXPECT_EQ(
      CompactJson(ClusterJson(status, {.model = "m"})),
      R"({"state":"loading","model":{"name":"m","context":null,"bf16_dot":null},)"
      R"("load":{"bytes_loaded":5,"bytes_to_load":10},"relaunches":0,"losses":[],)"
      R"("requests":{"waiting":2,"running":0,"unfinished":2},"micro_batches_in_flight":0,"preemptions":0,)"
      R"("bubble":{"now":0.0,"minute":0.0,"floor":0.0},"kv":{"block_tokens":0,"groups":[]},"stages":[],"hops":[]})");
}

TEST(ClusterJson, WhileAJobIsLostItsStagesAreDownAndTheirSumsStay) {
  SessionStatus status = SampleStatus();
  status.state = SessionStatus::State::kRecovering;
  status.job_ready = false;
  status.engine.Clear();
  status.losses.push_back({.number = 2, .what = "mpirun ended with exit code 1", .at_us = 9});
  const Json json = ClusterJson(status, {});
  EXPECT_EQ(json["state"], "recovering");
  EXPECT_TRUE(json["load"].is_object());
  EXPECT_TRUE(json["losses"][1]["stage"].is_null());
  EXPECT_TRUE(json["losses"][1]["host"].is_null());
  EXPECT_TRUE(json["losses"][1]["recovery_s"].is_null());
  EXPECT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][0]["up"], false);
  EXPECT_TRUE(json["stages"][0]["heartbeat_age_ms"].is_null());
  EXPECT_EQ(json["stages"][0]["busy_s"], 8.0);
  EXPECT_TRUE(json["hops"][0]["us"].is_null());
}

TEST(ClusterJson, AStageOfAJobThatHasJustBegunIsUp) {
  SessionStatus status = SampleStatus();
  status.engine.Clear();
  EXPECT_TRUE(StageUp(status, 1));
  EXPECT_EQ(ClusterJson(status, {})["stages"][1]["up"], true);
}

TEST(ClusterJson, SurvivesHostsThatAreNoUtf8) {
  SessionStatus status = SampleStatus();
  status.ready.mutable_stages(0)->set_host("a\xff");
  EXPECT_THAT(CompactJson(ClusterJson(status, {})), HasSubstr("a\xef\xbf\xbd"));
}

constexpr int64_t kSecondUs = 1000000;

pb::JobStatistics Work(double busy_s, double compute_s_of_each, uint64_t prompt_rows = 0) {
  pb::JobStatistics statistics;
  statistics.set_busy_s(busy_s);
  statistics.set_prefill_rows(prompt_rows);
  for (int stage = 0; stage < 2; ++stage) statistics.add_stages()->set_compute_s(compute_s_of_each);
  return statistics;
}

struct BubbleWindowTest : ::testing::Test {
  BubbleWindow window;
};

TEST_F(BubbleWindowTest, ForgetsWhatIsOlderThanItIsAskedFor) {
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(0, 0), 0);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  // Busy for half of each second with all stages, then with half of them.
  int64_t now_us = 0;
  double busy_s = 0, compute_s = 0;
  const auto seconds = [&](int count, double share) {
    for (int i = 0; i < 10 * count; ++i) {
      busy_s += 0.05;
      compute_s += 0.05 * share;
      window.Take(Work(busy_s, compute_s), now_us += kSecondUs / 10);
    }
  };
  seconds(120, 1);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0, 1e-6);
  seconds(15, 0.5);
  EXPECT_NEAR(window.Over(kSecondUs), 0.5, 1e-6);
  EXPECT_NEAR(window.Over(30 * kSecondUs), 0.25, 0.01);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.125, 0.01);
  EXPECT_NEAR(window.Over(1000 * kSecondUs), 0.125, 0.01) << "more than a minute is not kept";
}

// Beside what was computed, what of the time the ideal pipeline would have idled too.
pb::JobStatistics WorkWithFloor(double busy_s, double compute_s_of_each, double floor) {
  pb::JobStatistics statistics = Work(busy_s, compute_s_of_each);
  statistics.set_bubble_floor(floor);
  return statistics;
}

TEST_F(BubbleWindowTest, ItsFloorIsOfTheSameTimeHoweverDifferentTheLoadWasBefore) {
  EXPECT_EQ(window.FloorOver(60 * kSecondUs), 0);
  // One sequence for an hour: of two stages one has to idle. Then so many that the least is a tenth.
  double busy_s = 0, compute_s = 0, ideal_s = 0;
  int64_t now_us = 0;
  const auto seconds = [&](int count, double share, double ideal_share) {
    for (int i = 0; i < count; ++i) {
      busy_s += 1;
      compute_s += share;
      ideal_s += share / ideal_share;
      window.Take(WorkWithFloor(busy_s, compute_s, 1 - compute_s / ideal_s), now_us += kSecondUs);
    }
  };
  seconds(3600, 0.5, 0.5);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.5, 1e-6);
  seconds(120, 0.6, 0.9);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.1, 1e-6);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.4, 1e-6);
  seconds(120, 0.5, 0.5);
  EXPECT_NEAR(window.FloorOver(60 * kSecondUs), 0.5, 1e-6);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0.5, 1e-6);
}

TEST_F(BubbleWindowTest, WithoutWorkThereIsNoBubbleAndARelaunchBeginsAnew) {
  window.Take(Work(100, 50), 0);
  window.Take(Work(100, 50), 10 * kSecondUs);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(1, 1), 11 * kSecondUs);
  EXPECT_EQ(window.Over(kSecondUs), 0);
  window.Take(Work(2, 1.5), 12 * kSecondUs);
  EXPECT_NEAR(window.Over(kSecondUs), 0.5, 1e-6);
}

TEST_F(BubbleWindowTest, AJobOfMoreStagesCountsInAnotherMeasure) {
  for (int second = 0; second <= 10; ++second) window.Take(Work(100 + second, 90 + second), second * kSecondUs);
  pb::JobStatistics more = Work(111, 101);
  more.add_stages()->set_compute_s(0.5);
  window.Take(more, 11 * kSecondUs);
  more.set_busy_s(112);
  for (pb::StageSummary& stage : *more.mutable_stages()) stage.set_compute_s(stage.compute_s() + 1);
  window.Take(more, 12 * kSecondUs);
  EXPECT_NEAR(window.Over(60 * kSecondUs), 0, 1e-6);
}

TEST_F(BubbleWindowTest, ManyStatusesAtOnceAreOnePoint) {
  for (int i = 0; i <= 1000; ++i) window.Take(Work(i * 0.001, 0), i * 1000);
  EXPECT_NEAR(window.Over(kSecondUs), 1, 1e-6);
  EXPECT_NEAR(window.Over(300000), 1, 1e-6);
}

TEST_F(BubbleWindowTest, ThePromptRateIsThatOfTheTimeWithPrompts) {
  EXPECT_EQ(window.PromptRate(30 * kSecondUs, 0), 0);
  // Prompts of 100 tokens, each half a second of work, one every ten seconds; tokens of answers are made in between.
  double busy_s = 0;
  uint64_t rows = 0;
  for (int second = 0; second <= 60; ++second) {
    const bool prompt = second % 10 == 6;
    busy_s += prompt ? 0.5 : 0.3;
    rows += prompt ? 100 : 0;
    window.Take(Work(busy_s, 0, rows), second * kSecondUs);
    EXPECT_NEAR(window.PromptRate(30 * kSecondUs, second * kSecondUs), second < 6 ? 0 : 200, 1) << second;
  }
  window.Take(Work(busy_s + 1, 0, rows + 1000), 61 * kSecondUs);
  EXPECT_NEAR(window.PromptRate(kSecondUs / 2, 61 * kSecondUs), 1000, 1);
  EXPECT_NEAR(window.PromptRate(30 * kSecondUs, 61 * kSecondUs), 1300 / 2.5, 1);
}

TEST_F(BubbleWindowTest, RemembersThePromptRateOfAServerThatIdled) {
  for (int i = 0; i <= 5; ++i) window.Take(Work(i, i, static_cast<uint64_t>(250 * i)), i * kSecondUs);
  for (int i = 6; i < 600; ++i) window.Take(Work(5, 5, 1250), i * kSecondUs);
  EXPECT_NEAR(window.PromptRate(30 * kSecondUs, 600 * kSecondUs), 250, 1);
}

}  // namespace
}  // namespace stagecoach
