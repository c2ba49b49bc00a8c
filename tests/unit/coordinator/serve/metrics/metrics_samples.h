#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_METRICS_METRICS_SAMPLES_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_METRICS_METRICS_SAMPLES_H_

// A session of two stages in the middle of its work, which has lost one before.

#include "coordinator/session/session_thread.h"

namespace stagecoach {

inline pb::StageSummary SampleStage(int stage) {
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

inline SessionStatus SampleStatus() {
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
  return status;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SERVE_METRICS_METRICS_SAMPLES_H_
