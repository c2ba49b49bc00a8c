#include "coordinator/serve/metrics/cluster_json.h"

#include <algorithm>
#include <utility>

#include "common/json/json_value.h"
#include "common/wire/job_proto.h"
#include "coordinator/session/run_summary.h"

namespace stagecoach {
namespace {

constexpr int64_t kLateUs = 3000000;  // heartbeats come once a second

Json LossesJson(const std::vector<StageLoss>& losses) {
  Json list = Json::array();
  for (const StageLoss& loss : losses) {
    Json entry = {{"number", loss.number}, {"stage", nullptr}, {"host", nullptr}, {"what", loss.what}};
    if (loss.stage.has_value()) entry["stage"] = *loss.stage;
    if (!loss.host.empty()) entry["host"] = loss.host;
    entry["recovery_s"] = nullptr;
    if (loss.recovered_us > 0) entry["recovery_s"] = static_cast<double>(loss.recovered_us - loss.at_us) / 1e6;
    list.push_back(std::move(entry));
  }
  return list;
}

Json KvJson(const SessionStatus& status) {
  const pb::EngineStatus& engine = status.engine;
  Json groups = Json::array();
  for (int group = 0; group < std::min(engine.blocks_used_size(), engine.blocks_free_size()); ++group) {
    groups.push_back({{"used", engine.blocks_used(group)},
                      {"cached", group < engine.blocks_cached_size() ? engine.blocks_cached(group) : 0},
                      {"free", engine.blocks_free(group)}});
  }
  Json json = {{"block_tokens", status.ready.block_tokens()}, {"groups", std::move(groups)}};
  if (engine.states_used() + engine.states_cached() + engine.states_free() > 0) {
    json["states"] = {
        {"used", engine.states_used()}, {"cached", engine.states_cached()}, {"free", engine.states_free()}};
  }
  return json;
}

Json StageJson(const SessionStatus& status, int stage) {
  const pb::StageSummary& agreed = status.ready.stages(stage);
  const pb::StageSummary& now = StageOf(status.engine.statistics(), stage);
  const pb::StageSummary& sums = StageOf(status.statistics, stage);
  Json cpus = Json::array();
  for (const int32_t cpu : agreed.cpus()) cpus.push_back(cpu);
  Json json = {{"stage", stage},
               {"rank", agreed.rank()},
               {"host", agreed.host()},
               {"pid", agreed.pid()},
               {"first_layer", agreed.first_layer()},
               {"last_layer", agreed.last_layer()},
               {"threads", agreed.threads()},
               {"cpus", std::move(cpus)},
               {"isa", InstructionSetName(agreed.isa())},
               {"weight_bytes", agreed.weight_bytes()},
               {"kv_bytes", agreed.kv_bytes()},
               {"scratch_bytes", agreed.scratch_bytes()},
               {"resident_bytes", std::max(agreed.resident_bytes(), now.resident_bytes())},
               {"up", StageUp(status, stage)},
               {"heartbeat_age_ms", nullptr},
               {"busy_s", sums.compute_s()},
               {"wait_s", sums.wait_s()},
               {"send_s", sums.send_s()}};
  if (stage < status.engine.heartbeat_age_us_size()) {
    json["heartbeat_age_ms"] = static_cast<double>(status.engine.heartbeat_age_us(stage)) / 1e3;
  }
  return json;
}

Json DraftJson(const SessionStatus& status) {
  const pb::StageSummary& agreed = status.ready.draft();
  const pb::GuesserStatistics& guesses = DraftGuesses(status.statistics);
  return {{"rank", agreed.rank()},
          {"host", agreed.host()},
          {"pid", agreed.pid()},
          {"threads", agreed.threads()},
          {"isa", InstructionSetName(agreed.isa())},
          {"weight_bytes", agreed.weight_bytes()},
          {"kv_bytes", agreed.kv_bytes()},
          {"scratch_bytes", agreed.scratch_bytes()},
          {"resident_bytes", std::max(agreed.resident_bytes(), status.engine.statistics().draft().resident_bytes())},
          {"guesses", guesses.tried()},
          {"guesses_right", guesses.right()}};
}

Json HopJson(const SessionStatus& status, int stage) {
  const int64_t hop_us = StageOf(status.engine.statistics(), stage).hop_us();
  Json json = {{"from", stage}, {"to", "coordinator"}, {"us", nullptr}};
  if (stage + 1 < status.ready.stages_size()) json["to"] = stage + 1;
  if (hop_us > 0) json["us"] = hop_us;
  json["bytes"] = StageOf(status.statistics, stage).bytes_sent();
  return json;
}

}  // namespace

const char* StateName(SessionStatus::State state) {
  switch (state) {
    case SessionStatus::State::kLoading: return "loading";
    case SessionStatus::State::kReady: return "ready";
    case SessionStatus::State::kRecovering: return "recovering";
    case SessionStatus::State::kDraining: return "draining";
    case SessionStatus::State::kEnded: return "ended";
  }
  return "unknown";
}

const pb::StageSummary& StageOf(const pb::JobStatistics& statistics, int stage) {
  return stage < statistics.stages_size() ? statistics.stages(stage) : pb::StageSummary::default_instance();
}

bool StageUp(const SessionStatus& status, int stage) {
  if (!status.job_ready) return false;
  if (stage >= status.engine.heartbeat_age_us_size()) return true;  // the job has just begun
  return status.engine.heartbeat_age_us(stage) < kLateUs;
}

Json ClusterJson(const SessionStatus& status, const ClusterFacts& facts) {
  const pb::EngineStatus& engine = status.engine;
  Json model = {{"name", facts.model}, {"context", nullptr}, {"bf16_dot", nullptr}};
  if (status.ready.context() > 0) {
    model["context"] = status.ready.context();
    model["bf16_dot"] = status.ready.bf16_dot();
  }
  Json load = nullptr;
  if (!status.job_ready && status.state != SessionStatus::State::kEnded) {
    load = {{"bytes_loaded", status.progress.bytes_loaded()}, {"bytes_to_load", status.progress.bytes_to_load()}};
  }
  Json stages = Json::array(), hops = Json::array();
  for (int stage = 0; stage < status.ready.stages_size(); ++stage) {
    stages.push_back(StageJson(status, stage));
    hops.push_back(HopJson(status, stage));
  }
  const int64_t waiting = std::max<int64_t>(0, status.unfinished - engine.requests_running());
  Json json = {
      {"state", StateName(status.state)},
      {"model", std::move(model)},
      {"load", std::move(load)},
      {"relaunches", status.relaunches},
      {"losses", LossesJson(status.losses)},
      {"requests", {{"waiting", waiting}, {"running", engine.requests_running()}, {"unfinished", status.unfinished}}},
      {"micro_batches_in_flight", engine.micro_batches_in_flight()},
      {"preemptions", status.statistics.preemptions()},
      {"bubble", {{"now", facts.bubble_now}, {"minute", facts.bubble_minute}, {"floor", facts.bubble_floor}}},
      {"kv", KvJson(status)},
      {"stages", std::move(stages)},
      {"hops", std::move(hops)}};
  if (status.ready.has_draft()) json["draft"] = DraftJson(status);
  return json;
}

}  // namespace stagecoach
