// Whole models of experts against what another program computed from the same files.

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "common/json/json_value.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr char kExpertsJson[] = "models/experts/reference.json";
constexpr double kLogTolerance = 1e-3;
constexpr double kSumTolerance = 2e-3;         // of 255 of them
constexpr double kPerplexityTolerance = 2e-5;  // relative, of a mean over three times 127 of them

using Top = std::vector<std::pair<TokenId, double>>;

double WorstOfTop(const Top& top, const std::vector<float>& logits) {
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

double Margin(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return static_cast<double>(logits[0]) - static_cast<double>(logits[1]);
}

struct TextScores {
  std::vector<double> logs;  // of all tokens but the first
  double worst_of_top = 0;
};

// `top`: log-probabilities behind some positions.
TextScores ScoreText(PipelineRig* rig, const std::vector<TokenId>& tokens, const nlohmann::json& top) {
  const SequenceId sequence = rig->Open(tokens);
  const auto from = [&](size_t place) { return tokens.begin() + static_cast<int64_t>(place); };
  TextScores scores;
  for (size_t at = 0, end = 0; at < tokens.size(); at = end) {
    const bool last = at + 1 == tokens.size();  // by itself: nothing comes after it
    end = last ? tokens.size() : std::min(tokens.size() - 1, at + PipelineRig::kMaxRows);
    rig->Feed(sequence, {from(at), from(end)}, false,
              last ? std::vector<TokenId>() : std::vector<TokenId>{from(at + 1), from(end + 1)});
    const StepResult result = rig->Step();
    for (size_t i = at; i < end; ++i) {
      const auto expected = top.find(std::to_string(i));
      if (expected == top.end()) continue;
      scores.worst_of_top =
          std::max(scores.worst_of_top, WorstOfTop(expected->get<Top>(), rig->Logits(static_cast<int64_t>(i - at))));
    }
    if (last) break;
    EXPECT_EQ(result.targets.size(), 1u);
    scores.logs.insert(scores.logs.end(), result.targets[0].logprobs.begin(), result.targets[0].logprobs.end());
  }
  rig->Close(sequence);
  return scores;
}

class ExpertGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ExpertGolden, GreedyIdsAreTheSameAndLogProbabilitiesAgree) {
  SHARED_FILE_OR_SKIP(json, kExpertsJson);
  const nlohmann::json expected = Expected(nlohmann::json::parse(ReadFileOrDie(json)), GetParam());
  const auto model = OpenModel(SharedPath("models/experts/" + expected["file"].get<std::string>())).value();
  PipelineRig rig(model, {.stages = 2, .threads = 2, .kv_type = KvType::kF32});
  double worst = 0, worst_margin = 0;
  for (const nlohmann::json& prompt : expected["prompts"]) {
    const auto tokens = prompt["prompt_tokens"].get<std::vector<TokenId>>();
    const auto greedy = prompt["greedy"].get<std::vector<TokenId>>();
    const SequenceId sequence = rig.Open(tokens);
    StepResult result = rig.Prefill(sequence, tokens, 13);
    for (size_t step = 0; step < greedy.size(); ++step) {
      ASSERT_EQ(result.sampled.size(), 1u);
      ASSERT_EQ(result.sampled[0].token, greedy[step]) << "step " << step << ", margin " << prompt["margins"][step];
      const std::vector<float> logits = rig.Logits(step > 0 ? 0 : static_cast<int64_t>(tokens.size() - 1) % 13);
      worst_margin = std::max(worst_margin, std::fabs(Margin(logits) - prompt["margins"][step].get<double>()));
      const auto top = prompt["top20"].find(std::to_string(step));
      if (top != prompt["top20"].end()) worst = std::max(worst, WorstOfTop(top->get<Top>(), logits));
      rig.Feed(sequence, {greedy[step]}, true);
      result = rig.Step();
    }
    rig.Close(sequence);
  }
  EXPECT_LE(worst, kLogTolerance);
  EXPECT_LE(worst_margin, kLogTolerance);
  RecordProperty("worst_log_probability", std::to_string(worst));
  RecordProperty("worst_margin", std::to_string(worst_margin));
}

TEST_P(ExpertGolden, LogProbabilitiesAndPerplexityOfATextAgree) {
  SHARED_FILE_OR_SKIP(json, kExpertsJson);
  const nlohmann::json reference = nlohmann::json::parse(ReadFileOrDie(json));
  const nlohmann::json expected = Expected(reference, GetParam());
  const auto text = reference["text"]["tokens"].get<std::vector<TokenId>>();
  const auto chunk = reference["text"]["chunk"].get<size_t>();
  const auto model = OpenModel(SharedPath("models/experts/" + expected["file"].get<std::string>())).value();
  PipelineRig rig(model, {.threads = 2, .kv_type = KvType::kF32});
  const nlohmann::json& perplexity = expected["perplexity"];
  double sum = 0, count = 0;
  for (size_t c = 0; c < perplexity["chunks"].size(); ++c) {
    SCOPED_TRACE(c);
    const nlohmann::json& part = perplexity["chunks"][c];
    const auto begin = text.begin() + static_cast<int64_t>(c * chunk);
    const TextScores scores = ScoreText(&rig, {begin, begin + static_cast<int64_t>(chunk)}, part["top20"]);
    ASSERT_EQ(scores.logs.size(), part["all_tokens"].get<size_t>());
    double all = 0, second_half = 0;
    for (size_t i = 0; i < scores.logs.size(); ++i) {
      all -= scores.logs[i];
      if (i >= chunk / 2) second_half -= scores.logs[i];
    }
    EXPECT_LE(scores.worst_of_top, kLogTolerance);
    EXPECT_NEAR(all, part["all"].get<double>(), kSumTolerance);
    EXPECT_NEAR(second_half, part["second_half"].get<double>(), kSumTolerance);
    RecordProperty("worst_log_probability_" + std::to_string(c), std::to_string(scores.worst_of_top));
    RecordProperty("sum_difference_" + std::to_string(c), std::to_string(all - part["all"].get<double>()));
    sum += second_half;
    count += part["second_half_tokens"].get<double>();
    EXPECT_NEAR(std::exp(sum / count) / perplexity["llama_perplexity_running"][c].get<double>(), 1,
                kPerplexityTolerance);
  }
  EXPECT_NEAR(std::exp(sum / count) / perplexity["llama_perplexity"].get<double>(), 1, kPerplexityTolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertGolden, ::testing::ValuesIn(TinyExpertArchitectureNames()),
                         ArchitectureTestName);

}  // namespace
}  // namespace stagecoach::testing
