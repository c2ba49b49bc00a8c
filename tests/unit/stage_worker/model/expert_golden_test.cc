// Whole models of experts against what another program computed from the same files.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr char kExpertsJson[] = "models/experts/reference.json";
constexpr double kLogTolerance = 1e-3;
constexpr double kSumTolerance = 1e-3;  // relative

double WorstOfTop(const std::vector<std::pair<TokenId, double>>& top, const std::vector<float>& logits) {
  double max = -HUGE_VAL, sum = 0, worst = 0;
  for (const float logit : logits) max = std::max<double>(max, logit);
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  for (const auto& [token, log] : top) {
    const double ours = static_cast<double>(logits[static_cast<size_t>(token)]) - max - std::log(sum);
    worst = std::max(worst, std::fabs(ours - log));
  }
  return worst;
}

nlohmann::json Expected(const nlohmann::json& reference, const std::string& name) {
  for (const nlohmann::json& model : reference["models"]) {
    if (model["file"] == name + "-f32.gguf") return model;
  }
  ADD_FAILURE() << name;
  return {};
}

// The log-probabilities of all tokens but the first.
std::vector<double> Scores(PipelineRig* rig, const std::vector<TokenId>& tokens) {
  const SequenceId sequence = rig->Open(tokens);
  std::vector<double> scores;
  for (size_t at = 0; at + 1 < tokens.size(); at += PipelineRig::kMaxRows) {
    const size_t end = std::min(tokens.size() - 1, at + PipelineRig::kMaxRows);
    const auto from = [&](size_t place) { return tokens.begin() + static_cast<int64_t>(place); };
    rig->Feed(sequence, {from(at), from(end)}, false, {from(at + 1), from(end + 1)});
    const StepResult result = rig->Step();
    EXPECT_EQ(result.targets.size(), 1u);
    scores.insert(scores.end(), result.targets[0].logprobs.begin(), result.targets[0].logprobs.end());
  }
  rig->Close(sequence);
  return scores;
}

class ExpertGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ExpertGolden, GreedyIdsAreTheSameAndLogProbabilitiesAgree) {
  SHARED_FILE_OR_SKIP(json, kExpertsJson);
  const nlohmann::json expected = Expected(nlohmann::json::parse(ReadFileOrDie(json)), GetParam());
  auto model = OpenModel(SharedPath("models/experts/" + expected["file"].get<std::string>()));
  ASSERT_TRUE(model.ok()) << model.status();
  PipelineRig rig(*std::move(model), {.stages = 2, .threads = 2, .kv_type = KvType::kF32});
  double worst = 0;
  for (const nlohmann::json& prompt : expected["prompts"]) {
    const auto tokens = prompt["prompt_tokens"].get<std::vector<TokenId>>();
    const auto greedy = prompt["greedy"].get<std::vector<TokenId>>();
    const SequenceId sequence = rig.Open(tokens);
    StepResult result = rig.Prefill(sequence, tokens, 13);
    for (size_t step = 0; step < greedy.size(); ++step) {
      ASSERT_EQ(result.sampled.size(), 1u);
      ASSERT_EQ(result.sampled[0].token, greedy[step]) << "step " << step << ", margin " << prompt["margins"][step];
      const auto top = prompt["top20"].find(std::to_string(step));
      if (top != prompt["top20"].end()) {
        const int64_t row = step > 0 ? 0 : static_cast<int64_t>(tokens.size() - 1) % 13;
        worst = std::max(worst, WorstOfTop(top->get<std::vector<std::pair<TokenId, double>>>(), rig.Logits(row)));
      }
      rig.Feed(sequence, {greedy[step]}, true);
      result = rig.Step();
    }
    rig.Close(sequence);
  }
  EXPECT_LE(worst, kLogTolerance);
  RecordProperty("worst_log_probability", std::to_string(worst));
}

TEST_P(ExpertGolden, SumsOfLogProbabilitiesOverATextAgree) {
  SHARED_FILE_OR_SKIP(json, kExpertsJson);
  const nlohmann::json reference = nlohmann::json::parse(ReadFileOrDie(json));
  const nlohmann::json expected = Expected(reference, GetParam());
  const auto text = reference["text"]["tokens"].get<std::vector<TokenId>>();
  const auto chunk = reference["text"]["chunk"].get<size_t>();
  auto model = OpenModel(SharedPath("models/experts/" + expected["file"].get<std::string>()));
  ASSERT_TRUE(model.ok()) << model.status();
  PipelineRig rig(*std::move(model), {.threads = 2, .kv_type = KvType::kF32});
  size_t at = 0;
  for (const nlohmann::json& part : expected["perplexity"]["chunks"]) {
    const auto begin = text.begin() + static_cast<int64_t>(at);
    const std::vector<double> scores = Scores(&rig, {begin, begin + static_cast<int64_t>(chunk)});
    double all = 0, second_half = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      all -= scores[i];
      if (i >= chunk / 2) second_half -= scores[i];
    }
    EXPECT_EQ(scores.size(), part["all_tokens"].get<size_t>());
    EXPECT_NEAR(all / part["all"].get<double>(), 1, kSumTolerance);
    EXPECT_NEAR(second_half / part["second_half"].get<double>(), 1, kSumTolerance);
    at += chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertGolden,
                         ::testing::Values("qwen3moe", "gpt-oss", "glm4moe", "deepseek2", "minimax-m2"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace stagecoach::testing
