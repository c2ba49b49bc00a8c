#include "coordinator/cli/sweep_prediction.h"

#include <memory>
#include <vector>

#include "common/model/model_description.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

SweepPrediction PredictionOfLoad(const SweepConfig& point, const std::vector<ArrivingRequest>& requests) {
  ClusterOptions options;
  options.stages = 1;
  options.max_num_seqs = 32;
  options.model = "dummy://qwen3-0.6b/q8_0";
  const auto model = OpenModel(options.model);
  EXPECT_TRUE(model.ok()) << model.status();
  const auto launch = MakeLaunchOptions(options, (*model)->hyper, {.program = "/coordinator"});
  EXPECT_TRUE(launch.ok()) << launch.status();
  const auto prediction = PredictPoint(point, requests, options, {}, *launch, *model);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.value_or(SweepPrediction());
}

TEST(PredictPoint, AnOpenLoopOfOneRequestEndsAsSoonAsOneAlone) {
  SweepConfig alone, open;
  alone.stages = open.stages = 1;
  alone.max_num_seqs = open.max_num_seqs = 32;
  alone.concurrency = 1;
  open.arrivals = "poisson:1";
  const std::vector<ArrivingRequest> one = {{.arrival_s = 0.5, .prompt_tokens = 128, .output_tokens = 64}};
  const SweepPrediction expected = PredictionOfLoad(alone, one), found = PredictionOfLoad(open, one);
  EXPECT_GT(found.itl_s, expected.itl_s) << "what a full pipeline carries is still said";
  EXPECT_DOUBLE_EQ(found.output_tokens_per_s, 64 / (expected.ttft_s + 63 * expected.itl_s));
}

}  // namespace
}  // namespace stagecoach
