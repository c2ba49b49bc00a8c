#include "coordinator/job/job_report.h"

#include <algorithm>

#include "common/base/clock.h"

namespace stagecoach {

JobReport::JobReport(const pb::ConfigureJob& job, const JobPlan* plan, const Roster* roster)
    : block_tokens_(job.block_tokens()), plan_(plan), roster_(roster) {}

pb::LoadProgress JobReport::Progress() const {
  pb::LoadProgress progress;
  progress.set_bytes_loaded(roster_->bytes_loaded());
  progress.set_bytes_to_load(roster_->bytes_to_load());
  return progress;
}

pb::JobReady JobReport::Ready() const {
  pb::JobReady ready;
  *ready.mutable_fingerprints() = plan_->stages[0].fingerprints();
  ready.set_context(plan_->context);
  ready.set_blocks(plan_->group_blocks[plan_->full_group()]);
  ready.set_block_tokens(block_tokens_);
  ready.set_micro_batches(plan_->micro_batches);
  for (int stage = 0; stage < roster_->stages(); ++stage) Describe(stage, ready.add_stages());
  ready.set_bf16_dot(plan_->bf16_dot);
  return ready;
}

pb::EngineStatus JobReport::Status(const EngineStatus& status) const {
  pb::EngineStatus out;
  pb::JobStatistics* statistics = out.mutable_statistics();
  const SchedulerCounters& counters = status.counters;
  statistics->set_micro_batches(counters.micro_batches);
  statistics->set_prefill_rows(counters.prefill_rows);
  statistics->set_decode_rows(counters.decode_rows);
  statistics->set_decode_micro_batches(counters.decode_micro_batches);
  statistics->set_preemptions(counters.preemptions);
  statistics->mutable_prefill_sizes()->Assign(counters.prefill_sizes.begin(), counters.prefill_sizes.end());
  statistics->mutable_decode_sizes()->Assign(counters.decode_sizes.begin(), counters.decode_sizes.end());
  statistics->set_prefix_query_tokens(static_cast<uint64_t>(counters.prefix_queries));
  statistics->set_prefix_hit_tokens(static_cast<uint64_t>(counters.prefix_hits));
  const double busy_s = status.busy_us * 1e-6;
  statistics->set_busy_s(busy_s);
  statistics->set_bubble(status.bubble);
  statistics->set_bubble_floor(status.bubble_floor);
  const int64_t now_us = MonotonicUs();
  for (int stage = 0; stage < roster_->stages(); ++stage) {
    pb::StageSummary* summary = statistics->add_stages();
    Describe(stage, summary);
    const EngineStatus::Stage& work = status.stages[stage];
    summary->set_compute_s(work.compute_us * 1e-6);
    summary->set_send_s(work.send_us * 1e-6);
    summary->set_wait_s(std::max(0.0, busy_s - summary->compute_s()));
    summary->set_hop_us(work.hop_us);
    summary->set_blocks_used_peak(counters.blocks_used_peak[plan_->full_group()]);
    out.add_heartbeat_age_us(std::max<int64_t>(0, now_us - roster_->stage(stage).heard_us));
  }
  out.set_requests_waiting(status.waiting);
  out.set_requests_running(status.running);
  out.mutable_running_by_class()->Assign(status.running_by_class.begin(), status.running_by_class.end());
  out.set_waiting_tokens(status.waiting_tokens);
  out.mutable_blocks_used()->Assign(status.blocks_used.begin(), status.blocks_used.end());
  out.mutable_blocks_free()->Assign(status.blocks_free.begin(), status.blocks_free.end());
  out.mutable_blocks_cached()->Assign(status.blocks_cached.begin(), status.blocks_cached.end());
  out.set_micro_batches_in_flight(status.in_flight);
  return out;
}

void JobReport::Describe(int stage, pb::StageSummary* out) const {
  const StageRecord& record = roster_->stage(stage);
  const pb::StageAssignment& assignment = plan_->stages[stage];
  out->set_stage(stage);
  out->set_rank(record.rank);
  out->set_host(record.host);
  out->set_pid(record.pid);
  out->set_first_layer(assignment.first_layer());
  out->set_last_layer(assignment.last_layer());
  out->set_threads(assignment.threads());
  *out->mutable_cpus() = assignment.cpus();
  out->set_isa(assignment.isa());
  out->set_weight_bytes(record.ready.weight_bytes());
  out->set_kv_bytes(record.ready.kv_bytes());
  out->set_scratch_bytes(record.ready.scratch_bytes());
  out->set_tensor_bytes_read(record.ready.tensor_bytes_read());
  out->set_streamed_bytes(record.ready.streamed_bytes());
  out->set_bytes_sent(record.heartbeat.bytes_sent());
  out->set_resident_bytes(std::max(record.ready.resident_bytes(), record.heartbeat.resident_bytes()));
}

}  // namespace stagecoach
