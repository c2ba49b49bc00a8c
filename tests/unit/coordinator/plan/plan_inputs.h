#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_

// What most tests of the planner plan for.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/model_description.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/cluster_plan.h"
#include "gtest/gtest.h"

namespace stagecoach {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// By default 28 layers, 40960 tokens of context, a KV head width of 1024: 4096 bytes of f16 keys and values a token and
// layer.
inline std::shared_ptr<const ModelDescription> Model(const std::string& name = "qwen3-0.6b/q8_0") {
  return OpenModel("dummy://" + name).value();
}

// A stage on a host without a BF16 dot.
inline pb::Hello StageOn(const std::string& host, uint64_t available_bytes = 8 * kGiB, int cores = 4) {
  pb::Hello hello;
  hello.set_role(pb::Hello::ROLE_STAGE);
  hello.set_host(host);
  hello.set_allowed_cores(cores);
  hello.set_available_memory_bytes(available_bytes);
  hello.add_isas(pb::INSTRUCTION_SET_AVX2);
  return hello;
}

inline pb::ConfigureJob Job() {
  pb::ConfigureJob job;
  JobSettings settings;
  settings.policy = Policy::kInterleaved;
  settings.prefix_caching = false;
  settings.speculate = Speculate::kOff;  // guesses need slots of their own
  SetJobSettings(settings, &job);
  return job;
}

inline constexpr JobEpoch kEpoch = {.run_id = 7, .epoch = 3};

inline JobPlan Planned(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages,
                       const ModelDescription& model = *Model()) {
  return PlanJob(job, stages, model, kEpoch).value();
}

// Why it is refused.
inline std::string Refusal(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages, absl::StatusCode code,
                           const ModelDescription& model = *Model()) {
  const absl::Status status = PlanJob(job, stages, model, kEpoch).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

// One stage on each of so many equal hosts of 4 cores.
inline ClusterQuestion Question(int hosts, const std::string& model = "qwen3-0.6b/q8_0") {
  ClusterQuestion question;
  question.model = Model(model);
  for (int i = 0; i < hosts; ++i) {
    question.profile.hosts.push_back(AssumedHost("n" + std::to_string(i), 4, 16 * kGiB, InstructionSet::kAvx512Vnni));
    question.stage_hosts.push_back(i);
  }
  question.profile.default_link = AssumedLink();
  question.job = Job();
  question.job.set_prefill_chunk(0);
  return question;
}

inline void Slow(double factor, HostFacts* host) {
  HostSpeed& speed = host->speeds[0];
  for (double* rate : {&speed.read_gbps, &speed.int8_gops, &speed.f32_gops}) *rate /= factor;
}

inline ClusterPlan Plan(const ClusterQuestion& question) { return PlanCluster(question).value(); }

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
