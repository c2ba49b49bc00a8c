// The demo model against results that were computed in float64 by another program.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/json/json_value.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/sample/sampler.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr int kChunk = PipelineRig::kMaxRows;
// In tokens. What is compared here are numbers: the sanitizers see the four shortest prompts.
constexpr size_t kLongestPrompt = kSanitized ? 50 : 1000, kPrompts = kSanitized ? 4 : 6;

struct Prompt {
  std::string name;
  std::vector<TokenId> tokens;
  std::vector<std::pair<TokenId, double>> top20;  // logits
  std::vector<TokenId> greedy;
  std::vector<float> logits;  // [V], of the last position
};

// Of the reference file; log_sum_exp over all logits gives log-probabilities.
std::vector<Prompt> ReadPrompts(const std::string& json_path, const std::string& logits_path) {
  const nlohmann::json reference = nlohmann::json::parse(ReadFileOrDie(json_path));
  const std::string raw = ReadFileOrDie(logits_path);
  const size_t vocab = reference["logits_shape"][1].get<size_t>();
  std::vector<Prompt> prompts;
  for (const nlohmann::json& entry : reference["prompts"]) {
    Prompt prompt;
    prompt.name = entry["name"].get<std::string>();
    prompt.tokens = entry["tokens"].get<std::vector<TokenId>>();
    prompt.top20 = entry["top20"].get<std::vector<std::pair<TokenId, double>>>();
    prompt.greedy = entry["greedy"].get<std::vector<TokenId>>();
    prompt.logits.resize(vocab);
    const size_t row = entry["logits_f32_row"].get<size_t>();
    std::memcpy(prompt.logits.data(), raw.data() + row * vocab * sizeof(float), vocab * sizeof(float));
    if (prompt.tokens.size() <= kLongestPrompt) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

double LogSumExp(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

std::shared_ptr<const ModelDescription> Open(const std::string& path) { return OpenModel(path).value(); }

// How far the log-probabilities of the reference's 20 best tokens lie from ours.
struct Distance {
  double max = 0, mean = 0;
};
Distance Top20Distance(const Prompt& prompt, const std::vector<float>& logits) {
  const double reference_sum = LogSumExp(prompt.logits), sum = LogSumExp(logits);
  Distance distance;
  for (const auto& [token, logit] : prompt.top20) {
    const double error = std::fabs((logit - reference_sum) - (logits[static_cast<size_t>(token)] - sum));
    distance.max = std::max(distance.max, error);
    distance.mean += error / static_cast<double>(prompt.top20.size());
  }
  return distance;
}

// Skipped without the reference's results.
class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    SHARED_FILE_OR_SKIP(json, "models/reference.json");
    SHARED_FILE_OR_SKIP(logits, "models/reference_logits.f32");
    prompts_ = ReadPrompts(json, logits);
    ASSERT_EQ(prompts_.size(), kPrompts);
  }

  void CheckTop20(const std::string& model_path, double max, double mean);
  void CheckGreedyUpToSmallLeads(const std::string& model_path, const std::string& f32_path, double bound);

  std::vector<Prompt> prompts_;
};

// Checks every prompt's distance with one model file; the mean is over all prompts.
void Golden::CheckTop20(const std::string& model_path, double max, double mean) {
  PipelineRig rig(Open(model_path), {});
  double sum_of_means = 0;
  for (const Prompt& prompt : prompts_) {
    const SequenceId sequence = rig.Open(prompt.tokens);
    rig.Prefill(sequence, prompt.tokens, kChunk);
    const Distance distance = Top20Distance(prompt, rig.Logits(static_cast<int64_t>(rig.hidden().size()) / 256 - 1));
    EXPECT_LE(distance.max, max) << prompt.name;
    sum_of_means += distance.mean;
    rig.Close(sequence);
  }
  EXPECT_LE(sum_of_means / kPrompts, mean);
}

TEST_F(Golden, LogitsOfTheF32ModelAreWithinAThousandthAndGreedyTextIsTheSame) {
  SHARED_FILE_OR_SKIP(model_path, "models/demo-f32.gguf");
  PipelineRig rig(Open(model_path), {.stages = 2, .kv_type = KvType::kF32});
  for (const Prompt& prompt : prompts_) {
    const SequenceId sequence = rig.Open(prompt.tokens);
    StepResult result = rig.Prefill(sequence, prompt.tokens, kChunk);
    const std::vector<float> logits = rig.Logits(static_cast<int64_t>(rig.hidden().size()) / 256 - 1);
    double worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) worst = std::max<double>(worst, std::fabs(logits[i] - prompt.logits[i]));
    EXPECT_LE(worst, 1e-3) << prompt.name;

    std::vector<TokenId> greedy;
    for (;;) {
      ASSERT_EQ(result.sampled.size(), 1u);
      greedy.push_back(result.sampled[0].token);
      if (greedy.size() == prompt.greedy.size()) break;
      rig.Feed(sequence, {greedy.back()}, true);
      result = rig.Step();
    }
    EXPECT_EQ(greedy, prompt.greedy) << prompt.name;
    rig.Close(sequence);
  }
}

TEST_F(Golden, Bf16ModelIsWithinItsBound) {
  SHARED_FILE_OR_SKIP(model_path, "models/demo-bf16.gguf");
  CheckTop20(model_path, 0.08, 0.02);
}

TEST_F(Golden, F16ModelIsWithinItsBound) {
  SHARED_FILE_OR_SKIP(model_path, "models/demo-f16.gguf");
  CheckTop20(model_path, 0.08, 0.02);
}

TEST_F(Golden, Q80ModelIsWithinItsBound) { CheckTop20(DemoModelPath(), 0.2, 0.03); }

// Greedy text of a stored format follows the reference until the first position whose lead, in the reference's own f32
// model, is smaller than the format's bound; from there on both tokens are right.
void Golden::CheckGreedyUpToSmallLeads(const std::string& model_path, const std::string& f32_path, double bound) {
  PipelineRig rig(Open(model_path), {});
  PipelineRig f32(Open(f32_path), {.kv_type = KvType::kF32});
  size_t compared = 0;
  for (const Prompt& prompt : prompts_) {
    const SequenceId ours = rig.Open(prompt.tokens), theirs = f32.Open(prompt.tokens);
    StepResult result = rig.Prefill(ours, prompt.tokens, kChunk);
    f32.Prefill(theirs, prompt.tokens, kChunk);
    for (const TokenId expected : prompt.greedy) {
      const std::vector<float> logits = f32.Logits(static_cast<int64_t>(f32.hidden().size()) / 256 - 1);
      const std::vector<TokenLogprob> best = Sampler().TopLogprobs(*SelectKernels("auto").value(), logits.data(),
                                                                   static_cast<int64_t>(logits.size()), 0, 2);
      if (best[0].logprob - best[1].logprob < bound) break;
      EXPECT_EQ(result.sampled[0].token, expected) << prompt.name;
      ++compared;
      rig.Feed(ours, {expected}, true);
      result = rig.Step();
      f32.Feed(theirs, {expected}, true);
      f32.Step();
    }
    rig.Close(ours);
    f32.Close(theirs);
  }
  EXPECT_GT(compared, kSanitized ? 5u : 20u);
}

TEST_F(Golden, GreedyTextOfStoredFormatsFollowsTheReferenceUntilALeadBelowTheBound) {
  SHARED_FILE_OR_SKIP(f32_path, "models/demo-f32.gguf");
  SHARED_FILE_OR_SKIP(bf16_path, "models/demo-bf16.gguf");
  CheckGreedyUpToSmallLeads(bf16_path, f32_path, 2 * 0.08);
  CheckGreedyUpToSmallLeads(DemoModelPath(), f32_path, 2 * 0.2);
}

}  // namespace
}  // namespace stagecoach::testing
