// The names of the metrics, and what is written under each.

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/job_proto.h"
#include "coordinator/serve/metrics/cluster_json.h"
#include "coordinator/serve/metrics/service_metrics.h"

namespace stagecoach {
namespace {

using Type = MetricText::Type;

constexpr int64_t kMinuteUs = 60000000;

// Micro-batches by their rows, in powers of two.
MetricHistogram RowsHistogram(const google::protobuf::RepeatedField<uint64_t>& sizes, uint64_t rows) {
  std::vector<double> bounds;
  for (double bound = 1; bound <= 16384; bound *= 2) bounds.push_back(bound);
  MetricHistogram histogram(bounds);
  histogram.Set({sizes.data(), static_cast<size_t>(sizes.size())}, static_cast<double>(rows));
  return histogram;
}

double Sum(const google::protobuf::RepeatedField<int32_t>& values) {
  double sum = 0;
  for (const int32_t value : values) sum += value;
  return sum;
}

struct StageMetric {
  const char* name;
  Type type;
  const char* help;
  double (*value)(const SessionStatus& status, int stage);
};

constexpr StageMetric kStageMetrics[] = {
    {"stagecoach_stage_up", Type::kGauge, "1 where the stage runs and was heard of in time.",
     [](const SessionStatus& status, int stage) { return StageUp(status, stage) ? 1.0 : 0.0; }},
    {"stagecoach_stage_busy_seconds_total", Type::kCounter, "Time that the stage computed.",
     [](const SessionStatus& status, int stage) { return StageOf(status.statistics, stage).compute_s(); }},
    {"stagecoach_stage_wait_seconds_total", Type::kCounter,
     "Time that the stage did not compute while micro-batches were in flight.",
     [](const SessionStatus& status, int stage) { return StageOf(status.statistics, stage).wait_s(); }},
    {"stagecoach_stage_send_seconds_total", Type::kCounter, "Time that the stage's sends of micro-batches took.",
     [](const SessionStatus& status, int stage) { return StageOf(status.statistics, stage).send_s(); }},
    {"stagecoach_stage_bytes_sent_total", Type::kCounter, "Bytes that the stage sent.",
     [](const SessionStatus& status, int stage) {
       return static_cast<double>(StageOf(status.statistics, stage).bytes_sent());
     }},
    {"stagecoach_stage_hop_seconds", Type::kGauge, "How long one send of a micro-batch to the next stage took of late.",
     [](const SessionStatus& status, int stage) {
       return static_cast<double>(StageOf(status.engine.statistics(), stage).hop_us()) / 1e6;
     }},
    {"stagecoach_stage_resident_bytes", Type::kGauge, "Resident memory of the stage's process.",
     [](const SessionStatus& status, int stage) {
       return static_cast<double>(StageOf(status.engine.statistics(), stage).resident_bytes());
     }},
    {"stagecoach_stage_heartbeat_age_seconds", Type::kGauge, "Time since the stage was last heard of.",
     [](const SessionStatus& status, int stage) {
       return stage < status.engine.heartbeat_age_us_size()
                  ? static_cast<double>(status.engine.heartbeat_age_us(stage)) / 1e6
                  : 0.0;
     }},
};

}  // namespace

std::string ServiceMetrics::Text(const ProcessUse& use) const {
  MetricText text;
  WriteProcess(use, &text);
  WriteHttp(&text);
  WriteRequests(&text);
  WriteTokens(&text);
  WriteTimes(&text);
  WriteEngine(&text);
  WriteGuesses(&text);
  WriteStages(&text);
  WriteJobs(&text);
  if (facts_.vllm_names) WriteVllm(&text);
  return text.Take();
}

void ServiceMetrics::WriteProcess(const ProcessUse& use, MetricText* text) const {
  text->Family("stagecoach_build_info", Type::kGauge, "What runs: always 1.");
  std::set<std::string> isas;
  for (const pb::StageSummary& stage : status_.ready.stages()) isas.insert(InstructionSetName(stage.isa()));
  text->Sample(1, {{"version", facts_.version}, {"isa", absl::StrJoin(isas, ",")}, {"model", facts_.model}});
  text->Gauge("stagecoach_process_resident_memory_bytes", "Resident memory of the serving process.",
              use.resident_bytes);
  text->Counter("stagecoach_process_cpu_seconds_total", "Processor time of the serving process.", use.cpu_seconds);
  text->Gauge("stagecoach_start_time_seconds", "When the serving process began, since 1970.", facts_.start_time_s);
}

void ServiceMetrics::WriteHttp(MetricText* text) const {
  text->Family("stagecoach_http_requests_total", Type::kCounter, "Answers by route and status.");
  for (const auto& [key, count] : answered_) {
    text->Sample(count, {{"route", key.first}, {"status", absl::StrCat(key.second)}});
  }
  text->Family("stagecoach_http_connections", Type::kGauge,
               "Open connections: with a request under way, without, and those that wait for the client to close.");
  text->Sample(static_cast<double>(active_), {{"state", "active"}});
  text->Sample(static_cast<double>(idle_), {{"state", "idle"}});
  text->Sample(static_cast<double>(closing_), {{"state", "closing"}});
  text->Gauge("stagecoach_sse_streams", "Open streams of server-sent events.", static_cast<double>(streams_));
  text->Counter("stagecoach_slow_clients_total", "Connections that were closed because nobody read.", slow_clients_);
  text->Family("stagecoach_ignored_items_total", Type::kCounter,
               "Parts of requests that were accepted and mean nothing here.");
  text->Samples(ignored_, "kind");
}

double ServiceMetrics::Waiting(PriorityClass priority_class) const {
  const auto number = static_cast<int>(priority_class);
  const pb::EngineStatus& engine = status_.engine;
  const int64_t running = number < engine.running_by_class_size() ? engine.running_by_class(number) : 0;
  const int64_t unfinished = status_.unfinished_by_class[static_cast<size_t>(number)];
  return static_cast<double>(std::max<int64_t>(0, unfinished - running));
}

double ServiceMetrics::Waiting() const {
  double waiting = 0;
  for (const auto& entry : kPriorityClasses) waiting += Waiting(entry.value);
  return waiting;
}

void ServiceMetrics::WriteRequests(MetricText* text) const {
  text->Gauge("stagecoach_requests_running", "Requests that have KV blocks.",
              static_cast<double>(status_.engine.requests_running()));
  text->Family("stagecoach_requests_waiting", Type::kGauge, "Requests that were taken and do not run.");
  for (const auto& [priority_class, name] : kPriorityClasses) text->Sample(Waiting(priority_class), {{"class", name}});
  // The engine knows what preempted requests have to compute again, the front what no engine knows of.
  const int64_t waiting_tokens = status_.job_ready ? status_.engine.waiting_tokens() : unstarted_tokens_;
  text->Gauge("stagecoach_waiting_prompt_tokens", "Tokens that requests which do not run have to compute first.",
              static_cast<double>(waiting_tokens));
  text->Family("stagecoach_requests_finished_total", Type::kCounter, "Requests that ended, by API and reason.");
  for (const auto& [key, count] : finished_) text->Sample(count, {{"api", key.first}, {"reason", key.second}});
  text->Family("stagecoach_requests_refused_total", Type::kCounter, "Generating calls that were not taken.");
  text->Samples(refused_, "code");
  text->Family("stagecoach_slo_met_total", Type::kCounter,
               "Requests whose first token came, or whose tokens came on average, within the wanted time.");
  text->Samples(slo_met_, "slo");
}

void ServiceMetrics::WriteTokens(MetricText* text) const {
  text->Counter("stagecoach_prompt_tokens_total", "Tokens of prompts that were computed or found in the cache.",
                tokens_.prompt);
  text->Counter("stagecoach_generation_tokens_total", "Tokens that were generated.", tokens_.generated);
  text->Family("stagecoach_tenant_tokens_total", Type::kCounter, "The same by the name of the key.");
  for (const auto& [tenant, tokens] : tokens_of_) {
    text->Sample(tokens.prompt, {{"tenant", tenant}, {"kind", "prompt"}});
    text->Sample(tokens.generated, {{"tenant", tenant}, {"kind", "generation"}});
  }
  text->Counter("stagecoach_prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.",
                cache_queries_);
  text->Counter("stagecoach_prefix_cache_hits_total", "Tokens of prompts that the prefix cache had.", cache_hits_);
  text->Counter(
      "stagecoach_prefix_cache_stateless_total",
      "Tokens that were computed again for want of a recurrent state, though the prefix cache had their K and V.",
      static_cast<double>(status_.statistics.prefix_stateless_tokens()));
  text->Counter("stagecoach_preemptions_total", "Times that a running request lost its KV blocks to an older one.",
                static_cast<double>(status_.statistics.preemptions()));
}

void ServiceMetrics::WriteTimes(MetricText* text) const {
  text->Histogram("stagecoach_time_to_first_token_seconds", "From the acceptance of a request to its first token.",
                  ttft_);
  text->Histogram("stagecoach_inter_token_latency_seconds", "Between two tokens of a request.", itl_);
  text->Histogram("stagecoach_e2e_request_latency_seconds", "From the acceptance of a request to its end.", e2e_);
  text->Histogram("stagecoach_request_queue_time_seconds",
                  "From the acceptance of a request to the beginning of its prompt's computation.", queue_);
  text->Histogram("stagecoach_request_prefill_time_seconds", "Computation of a request's prompt.", prefill_);
  text->Histogram("stagecoach_request_decode_time_seconds", "From the first token of a request to its last.", decode_);
  text->Histogram("stagecoach_request_prompt_tokens", "Tokens of a request's prompt.", prompt_sizes_);
  text->Histogram("stagecoach_request_generation_tokens", "Tokens generated for a request.", generation_sizes_);
  text->Histogram("stagecoach_grammar_compile_seconds",
                  "Compilation of the grammar of an answer's form, which later requests for that form find.",
                  grammar_compile_);
}

double ServiceMetrics::KvUsage() const {
  double most = 0;
  const pb::EngineStatus& engine = status_.engine;
  for (int group = 0; group < std::min(engine.blocks_used_size(), engine.blocks_free_size()); ++group) {
    const double cached = group < engine.blocks_cached_size() ? engine.blocks_cached(group) : 0;
    const double used = engine.blocks_used(group), all = used + cached + engine.blocks_free(group);
    if (all > 0) most = std::max(most, used / all);
  }
  return most;
}

void ServiceMetrics::WriteEngine(MetricText* text) const {
  const pb::EngineStatus& engine = status_.engine;
  const pb::JobStatistics& sums = status_.statistics;
  text->Family("stagecoach_micro_batch_rows", Type::kHistogram, "Rows of a kind in the micro-batches that have any.");
  text->Sample(RowsHistogram(sums.prefill_sizes(), sums.prefill_rows()), {{"kind", "prefill"}});
  text->Sample(RowsHistogram(sums.decode_sizes(), sums.decode_rows()), {{"kind", "decode"}});
  text->Family("stagecoach_kv_blocks", Type::kGauge, "KV blocks of every stage, all block groups together.");
  text->Sample(Sum(engine.blocks_used()), {{"state", "referenced"}});
  text->Sample(Sum(engine.blocks_cached()), {{"state", "cached"}});
  text->Sample(Sum(engine.blocks_free()), {{"state", "free"}});
  text->Gauge("stagecoach_kv_usage_ratio", "Referenced part of the KV blocks of the fullest block group.", KvUsage());
  text->Family("stagecoach_state_slots", Type::kGauge, "Slots of recurrent states of every stage.");
  text->Sample(engine.states_used(), {{"state", "referenced"}});
  text->Sample(engine.states_cached(), {{"state", "cached"}});
  text->Sample(engine.states_free(), {{"state", "free"}});
  text->Gauge("stagecoach_micro_batches_in_flight", "Micro-batches that the stages have now.",
              engine.micro_batches_in_flight());
  double mask_s = 0, mask_hits = 0;  // of the last stage, the only one that has any
  for (const pb::StageSummary& stage : sums.stages()) {
    mask_s += stage.grammar_mask_s();
    mask_hits += static_cast<double>(stage.grammar_mask_hits());
  }
  text->Counter("stagecoach_grammar_mask_seconds_total",
                "Time that the last stage took to find out which tokens grammars allow.", mask_s);
  text->Counter("stagecoach_grammar_mask_hits_total", "Times that it knew that from before.", mask_hits);
  text->Gauge("stagecoach_pipeline_bubble_ratio", "Idle share of the stages' time while there was work, of a minute.",
              bubble_.Over(kMinuteUs));
  text->Gauge("stagecoach_pipeline_bubble_floor_ratio", "The least that the work of the same minute allowed.",
              bubble_.FloorOver(kMinuteUs));
}

void ServiceMetrics::WriteGuesses(MetricText* text) const {
  const pb::JobStatistics& sums = status_.statistics;
  text->Family("stagecoach_guesses_total", Type::kCounter, "Guesses that were sent and judged, by who guessed.");
  for (const pb::GuesserStatistics& guesser : sums.guessers()) {
    text->Sample(static_cast<double>(guesser.tried()), {{"guesser", guesser.name()}});
  }
  text->Family("stagecoach_guesses_right_total", Type::kCounter, "Those of them that were the token that came.");
  for (const pb::GuesserStatistics& guesser : sums.guessers()) {
    text->Sample(static_cast<double>(guesser.right()), {{"guesser", guesser.name()}});
  }
  text->Counter("stagecoach_void_seconds_total",
                "Time that the stages computed wrong guesses and what stood behind them.", sums.void_s());
}

void ServiceMetrics::WriteStages(MetricText* text) const {
  for (const StageMetric& metric : kStageMetrics) {
    text->Family(metric.name, metric.type, metric.help);
    for (int stage = 0; stage < status_.ready.stages_size(); ++stage) {
      text->Sample(metric.value(status_, stage),
                   {{"stage", absl::StrCat(stage)}, {"host", status_.ready.stages(stage).host()}});
    }
  }
}

void ServiceMetrics::WriteJobs(MetricText* text) const {
  text->Counter("stagecoach_job_relaunches_total", "Jobs that replaced a lost one.", status_.relaunches);
  text->Family("stagecoach_stage_losses_total", Type::kCounter, "Stages whose loss ended a job, by host.");
  text->Samples(stage_losses_, "host");
  text->Histogram("stagecoach_recovery_seconds", "From the loss of a job until the next one was ready.", recovery_);
}

void ServiceMetrics::WriteVllm(MetricText* text) const {
  const MetricLabels labels = {{"model_name", facts_.model}, {"engine", "0"}};
  const auto one = [&](absl::string_view name, Type type, absl::string_view help, const auto& value) {
    text->Family(absl::StrCat("vllm:", name), type, help);
    text->Sample(value, labels);
  };
  one("num_requests_running", Type::kGauge, "Number of requests in model execution batches.",
      static_cast<double>(status_.engine.requests_running()));
  one("num_requests_waiting", Type::kGauge, "Number of requests waiting to be processed.", Waiting());
  one("kv_cache_usage_perc", Type::kGauge, "KV-cache usage. 1 means 100 percent usage.", KvUsage());
  one("prefix_cache_queries_total", Type::kCounter, "Prefix cache queries, in queried tokens.", cache_queries_);
  one("prefix_cache_hits_total", Type::kCounter, "Prefix cache hits, in cached tokens.", cache_hits_);
  one("num_preemptions_total", Type::kCounter, "Preemptions.", static_cast<double>(status_.statistics.preemptions()));
  // A draft is one token here.
  const auto guesses = static_cast<double>(status_.statistics.guesses());
  const auto accepted = static_cast<double>(status_.statistics.guesses_right());
  one("spec_decode_num_drafts_total", Type::kCounter, "Number of spec decoding drafts.", guesses);
  one("spec_decode_num_draft_tokens_total", Type::kCounter, "Number of draft tokens.", guesses);
  one("spec_decode_num_accepted_tokens_total", Type::kCounter, "Number of accepted tokens.", accepted);
  one("prompt_tokens_total", Type::kCounter, "Prefill tokens processed.", tokens_.prompt);
  one("generation_tokens_total", Type::kCounter, "Generation tokens processed.", tokens_.generated);
  std::map<std::string, double> by_reason = {{"abort", 0}, {"length", 0}, {"stop", 0}};
  for (const auto& [key, count] : finished_) {
    by_reason[key.second == "stop" || key.second == "length" ? key.second : "abort"] += count;
  }
  text->Family("vllm:request_success_total", Type::kCounter, "Requests that ended.");
  for (const auto& [reason, count] : by_reason) {
    MetricLabels with_reason = labels;
    with_reason.emplace_back("finished_reason", reason);
    text->Sample(count, with_reason);
  }
  one("time_to_first_token_seconds", Type::kHistogram, "Time to first token.", ttft_);
  one("inter_token_latency_seconds", Type::kHistogram, "Inter-token latency.", itl_);
  one("e2e_request_latency_seconds", Type::kHistogram, "End-to-end request latency.", e2e_);
  one("request_queue_time_seconds", Type::kHistogram, "Time in the queue.", queue_);
  one("request_prefill_time_seconds", Type::kHistogram, "Time in prefill.", prefill_);
  one("request_decode_time_seconds", Type::kHistogram, "Time in decode.", decode_);
}

}  // namespace stagecoach
