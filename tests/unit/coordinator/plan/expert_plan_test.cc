// Plans for models whose rows read only the experts that they choose.

#include <cstdint>
#include <string>

#include "coordinator/plan/cluster_plan.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

// On four large hosts that compute far faster than they read.
ClusterQuestion ReadingQuestion(const std::string& model, int32_t sequences) {
  ClusterQuestion question = Question(4, model);
  for (HostFacts& host : question.profile.hosts) {
    host.available_bytes = 512 * kGiB;
    for (HostSpeed& speed : host.speeds) speed.int8_gops *= 100, speed.f32_gops *= 100;
  }
  question.job.set_max_num_seqs(sequences);
  question.load = {.prompt_tokens = 64, .output_tokens = 64};
  return question;
}

// What groups gain over one, 16 sequences.
double GainOfGroups(const std::string& model) {
  ClusterQuestion question = ReadingQuestion(model, 16);
  const double free_s = Plan(question).decode.itl_s;
  question.job.set_decode_groups(1);
  return Plan(question).decode.itl_s / free_s;
}

TEST(ClusterPlan, FewRowsOfExpertsAreWorthAGroupOfTheirOwn) {
  EXPECT_LT(GainOfGroups("qwen3-32b/q4_k_m"), 1.2) << "every group reads all weights";
  EXPECT_GT(GainOfGroups("qwen3-30b-a3b/q4_k_m"), 1.9);
  EXPECT_GT(GainOfGroups("kimi-k2:layers=16/q4_k_m"), 2.2);
}

TEST(ClusterPlan, StagesWithDenseLeadsGetMoreLayers) {
  // 16 rows of a group read far more experts than a dense layer has weights.
  const ClusterPlan plan = Plan(ReadingQuestion("deepseek-v3/q4_k_m", 64));
  ASSERT_EQ(plan.stages(), 4);
  EXPECT_GE(plan.job.stages[0].last_layer() - plan.job.stages[0].first_layer(), 17);
  EXPECT_EQ(plan.job.stages[3].last_layer(), 61);
}

TEST(ClusterPlan, ModelsOfHundredsOfGigabytesArePlannedByTheirShape) {
  for (const char* model :
       {"qwen3-coder-480b-a35b/q4_k_m", "glm-4.5/q4_k_m", "gpt-oss-120b/mxfp4", "minimax-m2/q8_0"}) {
    ClusterQuestion question = Question(4, model);
    for (HostFacts& host : question.profile.hosts) host.available_bytes = 256 * kGiB;
    const ClusterPlan plan = Plan(question);
    ASSERT_EQ(plan.stages(), 4) << model;
    uint64_t weights = 0;
    for (const StageMemory& memory : plan.memory) weights += memory.weights;
    EXPECT_GT(weights, 55 * kGiB) << model;
    EXPECT_GT(plan.decode.tokens_per_s, 0) << model;
  }
}

}  // namespace
}  // namespace stagecoach
