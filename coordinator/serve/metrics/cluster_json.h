#ifndef STAGECOACH_COORDINATOR_SERVE_METRICS_CLUSTER_JSON_H_
#define STAGECOACH_COORDINATOR_SERVE_METRICS_CLUSTER_JSON_H_

// The state of a cluster as JSON, for GET /api/cluster and the page. One object:
//
//   state            "loading", "ready", "recovering", "draining", "ended"
//   model            {name, context, bf16_dot}; context: tokens a sequence may have, null before the first job is ready
//   load             {bytes_loaded, bytes_to_load} of the job that comes up; null while one runs
//   relaunches       jobs that replaced a lost one
//   losses           of stages, the latest last, 64 at most: [{number, stage, host, what, recovery_s}]; number counts
//                    from 1 in the session; stage and host are null where it is not known which it was; recovery_s:
//                    until the next job was ready, null before that
//   requests         {waiting, running, unfinished}; unfinished: all that were taken; waiting: of those, the ones that
//                    the engine does not run now
//   micro_batches_in_flight
//   preemptions      in all jobs
//   bubble           {now, minute, floor}: idle share of the stages' time while there was work, of the last second,
//                    minute; the least that the work of that minute allowed
//   kv               {block_tokens, groups: [{used, cached, free}]}: blocks of every stage's pool, by block group;
//                    used: by running requests; cached: of ended ones, evicted when blocks are needed.
//                    Of a model with recurrent states also "states": {used, cached, free} slots of every stage
//   stages           in the order of the layers, as of the latest job that was ready:
//                    [{stage, rank, host, pid, first_layer, last_layer, threads, cpus, isa, weight_bytes, kv_bytes,
//                      scratch_bytes, resident_bytes, up, heartbeat_age_ms, busy_s, wait_s, send_s}]
//                    cpus: numbers, empty when not bound; up: its job runs and it was heard of in time;
//                    heartbeat_age_ms: null while no job runs; busy_s, wait_s, send_s: sums over all jobs of its
//                    computing, of its idling while there was work, of its sends
//   draft            of a job that has one: {rank, host, pid, threads, isa, weight_bytes, kv_bytes, scratch_bytes,
//                    resident_bytes, guesses, guesses_right}; the last two in all jobs, of those that were judged
//   hops             one a stage, what it sends on: [{from, to, us, bytes}]; to: the next stage, or "coordinator" after
//                    the last; us: how long a send took of late, null before one; bytes: sent in all jobs
//
// Times are seconds where nothing else is said. Keys may be added.

#include <string>

#include "common/json/json.h"
#include "coordinator/session/session_thread.h"

namespace stagecoach {

// What the session does not know.
struct ClusterFacts {
  std::string model;         // as the service shows it
  double bubble_now = 0;     // BubbleWindow::Over
  double bubble_minute = 0;  // "
  double bubble_floor = 0;   // BubbleWindow::FloorOver
};

Json ClusterJson(const SessionStatus& status, const ClusterFacts& facts);

// "loading", ...: the one name of each state.
const char* StateName(SessionStatus::State state);

// Of one stage; empty where the statistics have none.
const pb::StageSummary& StageOf(const pb::JobStatistics& statistics, int stage);
// Whether a job runs and the stage was heard of in time.
bool StageUp(const SessionStatus& status, int stage);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_METRICS_CLUSTER_JSON_H_
