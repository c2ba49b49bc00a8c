// What sampling one row of logits costs, by setting and by the shape of the distribution, on one thread. Prints VALID
// or INVALID first: kernels against the scalar ones, and picked tokens against the naive sampler's.
//
//   sampler_bench [isa] [vocabulary]       default: auto 151936
//
// Times are the medians of many calls, in microseconds of CPU time. The row lies in the cache, as right after the head.

#include <cstdio>
#include <string>
#include <utility>

#include "common/base/counter_rng.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/sample/sampler.h"
#include "tests/bench/measuring.h"
#include "tests/testing/sample/naive_sampler.h"

namespace stagecoach {
namespace {

using testing::LogitShape;

constexpr LogitShape kShapes[] = {LogitShape::kNormal,      LogitShape::kFewValues, LogitShape::kAllEqual,
                                  LogitShape::kNearlyEqual, LogitShape::kWide,      LogitShape::kLonelyBest,
                                  LogitShape::kLongTail};
constexpr int kCalls = 60;
constexpr int kChecks = 3;       // comparisons with the naive sampler, for each setting and shape
constexpr int kHistory = 32768;  // tokens
constexpr double kGoalUs = 500;

struct Setting {
  const char* name;
  SamplingParams sampling;
};

std::vector<Setting> Settings(int64_t vocab) {
  SamplingParams warm;
  warm.temperature = 0.7f;
  warm.seed = 3;
  const auto with = [&warm](auto change) {
    SamplingParams sampling = warm;
    change(&sampling);
    return sampling;
  };
  std::vector<Setting> settings = {
      {"greedy", with([](SamplingParams* s) { s->temperature = 0; })},
      {"--temp 0.7", warm},
      {"--temp 1.5", with([](SamplingParams* s) { s->temperature = 1.5f; })},
      {"--top-p 0.95", with([](SamplingParams* s) { s->top_p = 0.95f; })},
      {"--top-p 0.5", with([](SamplingParams* s) { s->top_p = 0.5f; })},
      {"--min-p 0.05", with([](SamplingParams* s) { s->min_p = 0.05f; })},
      {"--top-k 40", with([](SamplingParams* s) { s->top_k = 40; })},
      {"--top-k 40 --top-p 0.95 --min-p 0.05",
       with([](SamplingParams* s) { s->top_k = 40, s->top_p = 0.95f, s->min_p = 0.05f; })},
      {"--top-k 50000 --top-p 0.95", with([](SamplingParams* s) { s->top_k = 50000, s->top_p = 0.95f; })},
      {"--repeat-penalty 1.1", with([](SamplingParams* s) { s->repeat_penalty = 1.1f; })},
      {"all penalties, over 32768 tokens", with([](SamplingParams* s) {
         s->repeat_penalty = 1.1f, s->repeat_last_n = -1, s->presence_penalty = 0.1f, s->frequency_penalty = 0.1f;
       })},
      {"1024 biases", with([vocab](SamplingParams* s) {
         for (uint64_t i = 0; i < 1024; ++i) {
           s->logit_bias.emplace_back(static_cast<TokenId>(UniformAt(1, i) * static_cast<double>(vocab)), 0.5f);
         }
       })},
      {"--logprobs 20", with([](SamplingParams* s) { s->logprobs = 20; })},
  };
  Setting everything = {"all of these at once", settings[10].sampling};
  everything.sampling.logit_bias = settings[11].sampling.logit_bias;
  everything.sampling.top_p = 0.95f;
  everything.sampling.min_p = 1e-6f;
  everything.sampling.logprobs = 20;
  settings.push_back(everything);
  return settings;
}

OpenSequence OpenWith(const SamplingParams& sampling, int64_t vocab) {
  OpenSequence open;
  open.sampling = sampling;
  for (uint64_t i = 0; i < kHistory; ++i) {
    const TokenId token = static_cast<TokenId>(UniformAt(2, i) * UniformAt(3, i) * static_cast<double>(vocab));
    (i < kHistory / 2 ? open.prompt : open.output).push_back(token);
  }
  return open;
}

// Whether the sampler picks what the naive one picks, after the rules.
bool Agrees(const Kernels& kernels, const TokenHistory& history, const std::vector<float>& logits) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  std::vector<float> adjusted = logits;
  LogitsRules().Apply(*kernels.sampling, history, vocab, adjusted.data());
  Sampler sampler;
  for (int32_t position = 0; position < kChecks; ++position) {
    if (sampler.Sample(kernels, history, position, logits.data(), vocab).token !=
        testing::NaivePick(history.sampling(), position, adjusted)) {
      return false;
    }
  }
  return true;
}

double MedianUs(const Kernels& kernels, const TokenHistory& history, const std::vector<float>& logits,
                Sampler* sampler) {
  std::vector<double> times;
  for (int32_t position = 0; position < kCalls; ++position) {
    const double begin = ThreadSeconds();
    sampler->Sample(kernels, history, position, logits.data(), static_cast<int64_t>(logits.size()));
    times.push_back(1e6 * (ThreadSeconds() - begin));
  }
  return Median(std::move(times));
}

int Run(const Kernels& kernels, int64_t vocab) {
  std::mt19937 random(1);
  std::vector<std::vector<float>> rows;
  for (const LogitShape shape : kShapes) {
    rows.push_back(testing::RandomLogits(shape, static_cast<size_t>(vocab), &random));
  }
  std::vector<TokenHistory> histories;
  const std::vector<Setting> settings = Settings(vocab);
  for (const Setting& setting : settings) histories.emplace_back(OpenWith(setting.sampling, vocab));

  bool valid = CheckKernels(kernels).valid();
  for (size_t i = 0; i < settings.size() && valid; ++i) {
    for (const std::vector<float>& row : rows) valid = valid && Agrees(kernels, histories[i], row);
  }
  std::printf("%s %s, vocabulary %lld, us a row\n", valid ? "VALID" : "INVALID", kernels.isa,
              static_cast<long long>(vocab));
  if (!valid) return 1;

  std::printf("%-38s", "");
  for (const LogitShape shape : kShapes) std::printf("%13s", testing::LogitShapeName(shape));
  double most = 0;
  Sampler sampler;
  for (size_t i = 0; i < settings.size(); ++i) {
    std::printf("\n%-38s", settings[i].name);
    for (const std::vector<float>& row : rows) {
      const double us = MedianUs(kernels, histories[i], row, &sampler);
      most = std::max(most, us);
      std::printf("%13.0f", us);
    }
  }
  std::printf("\nthe most: %.0f us, wanted: %.0f\n", most, kGoalUs);
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  const auto kernels = stagecoach::SelectKernels(argc > 1 ? argv[1] : "auto");
  const long long vocab = argc > 2 ? std::atoll(argv[2]) : 151936;
  if (!kernels.ok() || vocab < 2 || vocab > (1 << 24)) {
    std::fprintf(stderr, "usage: sampler_bench [isa] [vocabulary]; %s\n",
                 kernels.ok() ? "a vocabulary of 2 to 16777216" : std::string(kernels.status().message()).c_str());
    return 2;
  }
  return stagecoach::Run(**kernels, vocab);
}
