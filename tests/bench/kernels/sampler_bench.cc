// What sampling one row of logits costs, by setting and by the shape of the distribution, on one thread; then what a
// step of 8 rows under grammars costs, each with a mask and a token appended. Prints VALID or INVALID first: kernels
// against the scalar ones, picked tokens against the naive sampler's, masks against trying every token.
//
//   sampler_bench [isa] [vocabulary]       default: auto 151936
//
// Times are the medians of many calls, in microseconds of CPU time. The row lies in the cache, as right after the head.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/sample/sampler.h"
#include "stage_worker/sample/sampling_tails.h"
#include "tests/bench/measuring.h"
#include "tests/testing/grammar/toy_grammars.h"
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

// --- grammars ---

constexpr size_t kRows = 8;
constexpr int kGrammarSteps = 400;
constexpr double kStepGoalUs = 480;  // of kRows, whose masks are kept

// Words of 1 to 8 letters, some with a blank before them, behind the 256 bytes; last the end.
std::shared_ptr<const GrammarVocabulary> WordVocabulary(int64_t vocab) {
  std::vector<std::string> texts(static_cast<size_t>(vocab));
  for (size_t token = 0; token < texts.size(); ++token) {
    if (token < 256) {
      texts[token] = std::string(1, static_cast<char>(token));
      continue;
    }
    const auto draw = [token](uint64_t i) { return UniformAt(token, i); };
    if (draw(0) < 0.4) texts[token].push_back(' ');
    for (auto i = static_cast<uint64_t>(1 + 7 * draw(1)); i > 0; --i) {
      texts[token].push_back(static_cast<char>((draw(2) < 0.9 ? 'a' : '0') + static_cast<int>(9.9 * draw(2 + i))));
    }
  }
  std::vector<GrammarVocabulary::Kind> kinds(texts.size(), GrammarVocabulary::Kind::kText);
  kinds.back() = GrammarVocabulary::Kind::kEnd;
  return std::make_shared<const GrammarVocabulary>(std::move(texts), std::move(kinds));
}

// Nested lists, and a text between quotes.
std::vector<std::string> GrammarPrograms() {
  GrammarAutomaton quoted;
  quoted.states.resize(3);
  quoted.states[0].bytes = {{'"', '"', 1}};
  quoted.states[1].bytes = {{' ', '!', 1}, {'"', '"', 2}, {'#', '~', 1}};
  quoted.states[2].accepting = true;
  return {testing::Lists(1000), testing::ProgramBytes(quoted)};
}

// The rows of a step: half of them under each grammar.
void OpenRows(SamplingTails* tails) {
  MicroBatch batch;
  for (const std::string& program : GrammarPrograms()) {
    batch.define_grammars.push_back({batch.define_grammars.size() + 1, program});
  }
  for (size_t row = 0; row < kRows; ++row) {
    batch.open.push_back({.sequence = row, .prompt = {1}, .grammar = row % batch.define_grammars.size() + 1});
    batch.open.back().sampling.temperature = 0.7f;
  }
  CHECK(tails->Validate(batch).ok());
  tails->Commit(batch);
}

struct GrammarSteps {
  std::vector<double> us;       // of all rows: masks, sampling, appending
  std::vector<double> mask_us;  // of them, the masks
  bool valid = true;
};

// The rows' logits take turns. `checked`: every mask is compared with what the matcher takes, token by token; slow.
GrammarSteps RunUnderGrammars(const Kernels& kernels, const std::vector<std::vector<float>>& logits, bool checked,
                              int count) {
  const auto vocab = static_cast<int64_t>(logits[0].size());
  const std::shared_ptr<const GrammarVocabulary> vocabulary = WordVocabulary(vocab);
  vocabulary->tree();
  MaskCounters counters;
  SamplingTails tails(
      kRows, [vocabulary] { return vocabulary; }, &counters);
  OpenRows(&tails);
  std::vector<GrammarMatcher> matchers;
  for (size_t row = 0; checked && row < kRows; ++row) {
    matchers.emplace_back(GrammarProgram::Decode(GrammarPrograms()[row % 2]).value(), vocabulary);
  }
  Sampler sampler;
  GrammarSteps steps;
  for (int step = 0; step < count; ++step) {
    const double begin = ThreadSeconds();
    for (size_t row = 0; row < kRows; ++row) tails.MakeMask(&tails.Of(row));
    steps.mask_us.push_back(1e6 * (ThreadSeconds() - begin));
    for (size_t row = 0; row < kRows; ++row) {
      SamplingTail& tail = tails.Of(row);
      const std::vector<float>& own = logits[(row + static_cast<size_t>(step)) % logits.size()];
      const TokenId token = sampler.Sample(kernels, tail.history(), step, own.data(), vocab, tail.allowed()).token;
      for (TokenId other = 0; checked && other < vocab; ++other) {
        const bool allowed = (tail.allowed()->bits[static_cast<size_t>(other) / 64] >> (other % 64) & 1) != 0;
        steps.valid = steps.valid && allowed == GrammarMatcher(matchers[row]).Append(other);
      }
      steps.valid = steps.valid && tail.Append(token) && (!checked || matchers[row].Append(token));
    }
    steps.us.push_back(1e6 * (ThreadSeconds() - begin));
  }
  return steps;
}

std::vector<std::vector<float>> NormalRows(int64_t vocab) {
  std::mt19937 random(2);
  std::vector<std::vector<float>> rows;
  for (size_t row = 0; row < kRows; ++row) {
    rows.push_back(testing::RandomLogits(LogitShape::kNormal, static_cast<size_t>(vocab), &random));
  }
  return rows;
}

void PrintGrammars(const Kernels& kernels, int64_t vocab) {
  GrammarSteps steps = RunUnderGrammars(kernels, NormalRows(vocab), /*checked=*/false, kGrammarSteps);
  std::sort(steps.mask_us.begin(), steps.mask_us.end());
  std::printf("%zu rows under grammars: %.0f us a step, wanted: %.0f; of it masks p50 %.0f us, p99 %.0f us\n", kRows,
              Median(steps.us), kStepGoalUs, steps.mask_us[kGrammarSteps / 2], steps.mask_us[kGrammarSteps * 99 / 100]);
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
  valid = valid && RunUnderGrammars(kernels, NormalRows(3000), /*checked=*/true, 20).valid;
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
  PrintGrammars(kernels, vocab);
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
