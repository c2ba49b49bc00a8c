// Whole models with recurrent layers against what a float64 program computed from the same files.

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "common/json/json_value.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr char kRecurrentJson[] = "models/recurrent/reference.json";
constexpr double kMostLogError = 1e-3;
// Of the four prompts the sanitizers see the two shortest.
constexpr size_t kGoldenPrompts = kSanitized ? 2 : 4, kGoldenSteps = kSanitized ? 4 : 48;

using TopLogs = std::vector<std::pair<TokenId, double>>;

std::vector<double> LogsOf(const std::vector<float>& logits) {
  double max = -HUGE_VAL, sum = 0;
  for (const float logit : logits) max = std::max<double>(max, logit);
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> logs(logits.begin(), logits.end());
  for (double& log : logs) log -= max + std::log(sum);
  return logs;
}

double WorstLog(const nlohmann::json& top, size_t step, const std::vector<double>& logs) {
  const auto expected = top.find(std::to_string(step));
  if (expected == top.end()) return 0;
  double worst = 0;
  for (const auto& [token, log] : expected->get<TopLogs>()) {
    worst = std::max(worst, std::fabs(logs[static_cast<size_t>(token)] - log));
  }
  return worst;
}

double MarginOf(std::vector<double> logs) {
  std::nth_element(logs.begin(), logs.begin() + 1, logs.end(), std::greater<>());
  return logs[0] - logs[1];
}

class RecurrentGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SHARED_FILE_OR_SKIP(json, kRecurrentJson);
    const nlohmann::json reference = nlohmann::json::parse(ReadFileOrDie(json));
    for (const nlohmann::json& model : reference["models"]) {
      if (model["file"] == GetParam() + "-f32.gguf") expected_ = model;
    }
    ASSERT_FALSE(expected_.is_null()) << GetParam();
    model_ = OpenModel(SharedPath("models/recurrent/" + expected_["file"].get<std::string>())).value();
  }

  nlohmann::json expected_;
  std::shared_ptr<const ModelDescription> model_;
};

// Over three stages: one of recurrent layers alone, one that begins and one that ends with attention.
TEST_P(RecurrentGolden, GreedyIdsAreTheSameAndLogProbabilitiesAgree) {
  constexpr int kChunk = 13;
  PipelineRig rig(model_, {.cuts = {3, 5}, .threads = 2, .kv_type = KvType::kF32});
  double worst = 0, worst_margin = 0;
  for (size_t p = 0; p < kGoldenPrompts; ++p) {
    const nlohmann::json& prompt = expected_["prompts"][p];
    const auto tokens = prompt["prompt_tokens"].get<std::vector<TokenId>>();
    const auto greedy = prompt["greedy"].get<std::vector<TokenId>>();
    const SequenceId sequence = rig.Open(tokens);
    StepResult result = rig.Prefill(sequence, tokens, kChunk);
    for (size_t step = 0; step < kGoldenSteps; ++step) {
      ASSERT_EQ(result.sampled.size(), 1u);
      ASSERT_EQ(result.sampled[0].token, greedy[step]) << "step " << step << ", margin " << prompt["margins"][step];
      const std::vector<double> logs =
          LogsOf(rig.Logits(step > 0 ? 0 : static_cast<int64_t>(tokens.size() - 1) % kChunk));
      worst_margin = std::max(worst_margin, std::fabs(MarginOf(logs) - prompt["margins"][step].get<double>()));
      worst = std::max(worst, WorstLog(prompt["top20"], step, logs));
      rig.Feed(sequence, {greedy[step]}, true);
      result = rig.Step();
    }
    rig.Close(sequence);
  }
  EXPECT_LE(worst, kMostLogError);
  EXPECT_LE(worst_margin, kMostLogError);
  RecordProperty("worst_log_probability", std::to_string(worst));
  RecordProperty("worst_margin", std::to_string(worst_margin));
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentGolden, ::testing::ValuesIn(TinyRecurrentArchitectureNames()),
                         ArchitectureTestName);

}  // namespace
}  // namespace stagecoach::testing
