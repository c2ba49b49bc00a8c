// The reference against what another program computed from the same files: what the reference is worth as an oracle.

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/json/json_value.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/reference/reference_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

constexpr char kJson[] = "models/experts/reference.json";
// Of models with recurrent layers: what another program computed in double, and what llama.cpp's relative made of them.
constexpr char kRecurrentJson[] = "models/recurrent/reference.json";
constexpr double kDoubleTolerance = 1e-4;  // of numbers that are written with four digits behind the point or more
// The other program computes in float: it differs from itself by up to 1e-4 when it takes a prompt in one batch or
// token by token.
constexpr double kLogTolerance = 1e-3;
constexpr double kSumTolerance = 1e-2;  // of 255 of them
constexpr size_t kSteps = kSanitized ? 2 : 48, kPrompts = kSanitized ? 1 : 3;

using Top = std::vector<std::pair<TokenId, double>>;

std::vector<double> LogProbabilities(std::vector<double> logits) {
  const double sum = reference::LogSumExp(logits);
  for (double& logit : logits) logit -= sum;
  return logits;
}

TokenId Best(const std::vector<double>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double WorstOfTop(const Top& top, const std::vector<double>& logits) {
  const std::vector<double> ours = LogProbabilities(logits);
  double worst = 0;
  for (const auto& [token, log] : top) worst = std::max(worst, std::fabs(log - ours[static_cast<size_t>(token)]));
  return worst;
}

class AgainstLlamaCpp : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SHARED_FILE_OR_SKIP(json, kJson);
    const nlohmann::json all = nlohmann::json::parse(ReadFileOrDie(json));
    text_ = all["text"]["tokens"].get<std::vector<TokenId>>();
    chunk_ = all["text"]["chunk"].get<size_t>();
    for (const nlohmann::json& model : all["models"]) {
      if (model["file"] == GetParam() + "-f32.gguf") expected_ = model;
    }
    ASSERT_FALSE(expected_.is_null()) << GetParam();
    model_ = ReferenceModel::Open(SharedPath("models/experts/" + expected_["file"].get<std::string>()));
  }

  nlohmann::json expected_;
  std::vector<TokenId> text_;
  size_t chunk_ = 0;
  std::unique_ptr<ReferenceModel> model_;
};

TEST_P(AgainstLlamaCpp, GreedyIdsAreTheSameAndLogProbabilitiesAgree) {
  double worst = 0;
  for (size_t p = 0; p < kPrompts; ++p) {
    const nlohmann::json& prompt = expected_["prompts"][p];
    const auto greedy = prompt["greedy"].get<std::vector<TokenId>>();
    const auto margins = prompt["margins"].get<std::vector<double>>();
    model_->Clear();
    std::vector<double> logits = model_->Logits(prompt["prompt_tokens"].get<std::vector<TokenId>>()).back();
    for (size_t step = 0; step < kSteps; ++step) {
      ASSERT_EQ(Best(logits), greedy[step]) << "prompt " << p << ", step " << step << ", margin " << margins[step];
      const auto top = prompt["top20"].find(std::to_string(step));
      if (top != prompt["top20"].end()) worst = std::max(worst, WorstOfTop(top->get<Top>(), logits));
      logits = model_->Feed(greedy[step]);
    }
  }
  EXPECT_LE(worst, kLogTolerance);
  RecordProperty("worst_log_probability", std::to_string(worst));
}

// The chunks of the text stand alone, each from position 0.
TEST_P(AgainstLlamaCpp, PerplexityIsTheSame) {
  const nlohmann::json& chunks = expected_["perplexity"]["chunks"];
  const size_t count = kSanitized ? 1 : chunks.size(), length = kSanitized ? 32 : chunk_;
  double worst = 0;
  for (size_t c = 0; c < count; ++c) {
    const TokenId* tokens = text_.data() + c * chunk_;
    double all = 0, second_half = 0;
    model_->Clear();
    for (size_t i = 0; i < length; ++i) {
      const std::vector<double> logits = model_->Feed(tokens[i]);
      const auto top = chunks[c]["top20"].find(std::to_string(i));
      if (top != chunks[c]["top20"].end()) worst = std::max(worst, WorstOfTop(top->get<Top>(), logits));
      if (i + 1 == chunk_) break;
      const double surprise = -LogProbabilities(logits)[static_cast<size_t>(tokens[i + 1])];
      all += surprise;
      if (i >= chunk_ / 2) second_half += surprise;
    }
    if (kSanitized) continue;
    EXPECT_NEAR(all, chunks[c]["all"].get<double>(), kSumTolerance) << "chunk " << c;
    EXPECT_NEAR(second_half, chunks[c]["second_half"].get<double>(), kSumTolerance) << "chunk " << c;
    RecordProperty("sum_difference_" + std::to_string(c), std::to_string(all - chunks[c]["all"].get<double>()));
  }
  EXPECT_LE(worst, kLogTolerance);
  RecordProperty("worst_log_probability", std::to_string(worst));
}

class AgainstDouble : public ::testing::TestWithParam<std::string> {};

TEST_P(AgainstDouble, GreedyIdsAreTheSameAndLogProbabilitiesAgree) {
  SHARED_FILE_OR_SKIP(json, kRecurrentJson);
  const nlohmann::json all = nlohmann::json::parse(ReadFileOrDie(json));
  nlohmann::json expected;
  for (const nlohmann::json& model : all["models"]) {
    if (model["file"] == GetParam() + "-f32.gguf") expected = model;
  }
  ASSERT_FALSE(expected.is_null());
  const auto model = ReferenceModel::Open(SharedPath("models/recurrent/" + expected["file"].get<std::string>()));
  double worst = 0;
  for (size_t p = 0; p < expected["prompts"].size(); ++p) {
    const nlohmann::json& prompt = expected["prompts"][p];
    const auto greedy = prompt["greedy"].get<std::vector<TokenId>>();
    model->Clear();
    std::vector<double> logits = model->Logits(prompt["prompt_tokens"].get<std::vector<TokenId>>()).back();
    for (size_t step = 0; step < greedy.size(); ++step) {
      ASSERT_EQ(Best(logits), greedy[step]) << "prompt " << p << ", step " << step;
      const auto top = prompt["top20"].find(std::to_string(step));
      if (top != prompt["top20"].end()) worst = std::max(worst, WorstOfTop(top->get<Top>(), logits));
      logits = model->Feed(greedy[step]);
    }
  }
  EXPECT_LE(worst, kDoubleTolerance);
  RecordProperty("worst_log_probability", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstDouble, ::testing::ValuesIn(TinyRecurrentArchitectureNames()),
                         ArchitectureTestName);

INSTANTIATE_TEST_SUITE_P(Models, AgainstLlamaCpp, ::testing::ValuesIn(TinyExpertArchitectureNames()),
                         ArchitectureTestName);

}  // namespace
}  // namespace stagecoach::testing
