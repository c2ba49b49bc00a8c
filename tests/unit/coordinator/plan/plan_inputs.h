#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_

// What most tests of the planner plan for.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/model/model_description.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/assumed_facts.h"
#include "coordinator/plan/cluster_plan.h"
#include "gtest/gtest.h"

namespace stagecoach {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// By default 28 layers, 40960 tokens of context, a KV head width of 1024: 4096 bytes of f16 keys and values a token and
// layer.
inline std::shared_ptr<const ModelDescription> Model(const std::string& name = "qwen3-0.6b/q8_0") {
  auto model = OpenModel("dummy://" + name);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

// One stage on each of so many equal hosts of 4 cores.
inline ClusterQuestion Question(int hosts, const std::string& model = "qwen3-0.6b/q8_0") {
  ClusterQuestion question;
  auto opened = OpenModel("dummy://" + model);
  EXPECT_TRUE(opened.ok()) << opened.status();
  question.model = *opened;
  for (int i = 0; i < hosts; ++i) {
    question.profile.hosts.push_back(AssumedHost("n" + std::to_string(i), 4, 16 * kGiB, InstructionSet::kAvx512Vnni));
    question.stage_hosts.push_back(i);
  }
  question.profile.default_link = AssumedLink();
  SetJobSettings({.policy = Policy::kInterleaved, .prefill_chunk = 0, .prefix_caching = false}, &question.job);
  return question;
}

inline ClusterPlan Plan(const ClusterQuestion& question) {
  absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : ClusterPlan{};
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_PLAN_PLAN_INPUTS_H_
