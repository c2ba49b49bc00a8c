#include "coordinator/bench/bench_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

std::vector<BenchJob> JobsOf(const BenchLists& lists) {
  std::vector<BenchJob> jobs;
  for (const std::string& model : lists.models) {
    for (int64_t stages : lists.stages) {
      for (int64_t threads : lists.threads) jobs.push_back({model, stages, threads});
    }
  }
  return jobs;
}

std::string BenchTest::Name() const {
  if (prefill()) return absl::StrCat("pp", prompt);
  std::string name = absl::StrCat("tg", generated);
  if (depth > 0) absl::StrAppend(&name, " @ d", depth);
  if (sequences > 1) absl::StrAppend(&name, " x", sequences);
  if (equal) absl::StrAppend(&name, " equal");
  return name;
}

std::vector<BenchTest> TestsOf(const BenchLists& lists) {
  std::vector<BenchTest> tests;
  for (int64_t prompt : lists.prompts) {
    if (prompt > 0) tests.push_back({.prompt = prompt});
  }
  for (int64_t depth : lists.depths) {
    for (int64_t sequences : lists.sequences) {
      for (int64_t generated : lists.generated) {
        if (generated == 0) continue;
        const bool equal = lists.equal_sequences && sequences > 1;
        tests.push_back({.generated = generated, .depth = depth, .sequences = sequences, .equal = equal});
      }
    }
  }
  return tests;
}

int64_t MaxNewTokens(const BenchTest& test, const JobSettings& settings) {
  if (test.prefill()) return 1;
  // A sequence produces at most one token a micro-batch, so at most as many beside the prompts as these need
  // micro-batches.
  int64_t rows = std::min(settings.prefill_chunk, settings.max_num_batched_tokens);
  if (settings.chunking == Chunking::kEqualTime) rows = std::min<int64_t>(rows, kEqualTimeLeastRows);
  if (settings.policy == Policy::kDecodePriority) rows = std::min<int64_t>(rows, kPrefillQuantum);
  if (settings.policy == Policy::kThrottled) rows = std::min<int64_t>(rows, kThrottledLeastRows);
  rows = std::max<int64_t>(1, std::min(rows, settings.max_num_batched_tokens - test.sequences));
  const bool prompts_alone = settings.policy == Policy::kPrefillFirst || settings.policy == Policy::kPhases;
  const int64_t beside = prompts_alone ? 0 : test.sequences * CeilDiv(test.prompt_tokens(), rows);
  return 1 + beside + test.generated + 2 * settings.micro_batches + 2;
}

int64_t ContextOf(const BenchTest& test, const JobSettings& settings) {
  return test.prompt_tokens() + MaxNewTokens(test, settings);
}

int64_t BlocksOf(const BenchTest& test, const JobSettings& settings, int64_t block_tokens) {
  return test.sequences * CeilDiv(ContextOf(test, settings), block_tokens);
}

absl::Status CheckFits(const std::vector<BenchTest>& tests, const JobSettings& settings, const std::string& model,
                       int64_t context) {
  for (const BenchTest& test : tests) {
    const int64_t needed = ContextOf(test, settings);
    if (needed <= context) continue;
    return absl::InvalidArgumentError(absl::StrCat(test.prefill() ? "-p: " : "-d, -n: ", test.Name(), " needs ", needed,
                                                   " tokens of context, but '", model, "' has ", context,
                                                   "; ask for fewer"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
