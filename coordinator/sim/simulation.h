#ifndef STAGECOACH_COORDINATOR_SIM_SIMULATION_H_
#define STAGECOACH_COORDINATOR_SIM_SIMULATION_H_

// A whole run in simulated time: the real engine and scheduler over a SimPipeline, with relaunches after lost stages.
// Deterministic: equal options give equal runs, bit for bit.
//
// Not modelled: kernels that slow each other down through shared caches, other programs, congestion control, the
// operating system's scheduling, and any coordinator time beyond a constant.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/obs/step_record.h"
#include "coordinator/bench/arrivals.h"
#include "coordinator/engine/front.h"
#include "coordinator/schedule/scheduler.h"
#include "coordinator/sim/sim_front.h"
#include "coordinator/sim/sim_guesses.h"
#include "coordinator/sim/sim_pipeline.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// The losses of stages. The job is lost with its stage; the next one takes over what was unfinished.
struct SimFailures {
  std::vector<double> at_s;                // at these times; what falls into a relaunch changes nothing
  double mean_between_s = 0;               // and by chance: of one stage, exponential; 0: never
  double detect_s = 6;                     // until the coordinator knows (a rank is lost after 6 s without a heartbeat)
  double relaunch_s = 30;                  // until the next job is ready
  static constexpr int kMostInVain = 100;  // jobs in a row that are lost without one token: then it is given up
};

struct SimOptions {
  SimCluster cluster;
  SchedulerOptions scheduler;  // valid
  int32_t decode_groups = 0;   // 0: found out from the stages' times, as in a job
  SimOutcomes guesses;  // of made-up guesses (sim_guesses.h); as far ahead as scheduler.most_guesses. nullptr: none
  int64_t vocab = 2;
  std::vector<ArrivingRequest> requests;
  int64_t concurrency = 0;               // RequestFeed's
  double hand_over_s = 0;                // SimFront's
  double slo_ttft_s = 0, slo_itl_s = 0;  // of a good request; 0: none
  SimFailures failures;
  uint64_t seed = 0;  // of jitter and failures
  // Told of every micro-batch, as a job's logs are: submitted when the coordinator's turn is over. nullptr: nobody is.
  StepSink* steps = nullptr;
  // Called when a job begins, before its stages are ready; its micro-batches follow. Empty: nobody.
  std::function<void(int64_t at_us)> on_job;
};

struct SimOutcome {
  SweepResult result;                      // all but what the jobs' statistics say
  std::vector<SimulatedRequest> requests;  // in order of arrival
  std::vector<EngineStatus> jobs;          // at the end of each
  int64_t begin_ns = 0, end_ns = 0;        // the first arrival, the last token
  uint64_t events = 0;                     // of the stages: what it took to simulate

  int relaunches() const { return static_cast<int>(jobs.size()) - 1; }
};

// kResourceExhausted: failures leave no time to get on, or it takes longer than kLongestRunS. kInternal: work is left,
// but nothing ever happens again, or the scheduler's books do not balance in the end; both are faults of this program.
absl::StatusOr<SimOutcome> Simulate(const SimOptions& options);

// The timeline of a simulated run, in the form of a real one (coordinator/trace); its header says that it is simulated.
// All hosts share one clock, from 0. Kept in memory until saved: of a micro-batch 40 bytes per stage, 32 per sequence
// and 200. Not thread-safe.
class SimTrace : public StepSink {
 public:
  // `header`: of every job, but for when it begins; no time since the epoch, and simulated.
  explicit SimTrace(TraceHeader header);

  void BeginJob(int64_t at_us);            // before its first micro-batch
  void Write(StepRecord record) override;  // CHECK: a job has begun

  // Writes the jobs, in place of what the file holds. Errors: those of WriteTrace.
  absl::Status Save(const std::string& path);

  const std::vector<TraceJob>& jobs() const { return jobs_; }  // aligned once saved

 private:
  TraceHeader header_;
  std::vector<TraceJob> jobs_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIMULATION_H_
