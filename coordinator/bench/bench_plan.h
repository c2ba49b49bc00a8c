#ifndef STAGECOACH_COORDINATOR_BENCH_BENCH_PLAN_H_
#define STAGECOACH_COORDINATOR_BENCH_BENCH_PLAN_H_

// What a benchmark runs: the product of its lists, as jobs that each do all tests. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/job/job_settings.h"

namespace stagecoach {

// The lists of the command line, each in the user's order.
struct BenchLists {
  std::vector<std::string> models;         // paths, dummy:// ones too
  std::vector<int64_t> prompts = {512};    // tokens of a prompt; 0 asks for nothing
  std::vector<int64_t> generated = {128};  // tokens that each sequence decodes; 0 asks for nothing
  std::vector<int64_t> depths = {0};       // context before the first of these
  std::vector<int64_t> sequences = {1};    // that decode at once
  std::vector<int64_t> stages = {0};       // 0: as many as the host file or the world has, else 1
  std::vector<int64_t> threads = {0};      // of a stage; 0: allowed cores / stages of the host
  bool equal_sequences = false;            // those that decode at once
};

// One job: launched, all tests, ended.
struct BenchJob {
  std::string model;
  int64_t stages = 0;
  int64_t threads = 0;
};
std::vector<BenchJob> JobsOf(const BenchLists& lists);  // models outermost, threads innermost

// One row of the result: either a prompt of `prompt` tokens, from its submission to its first token; or `sequences`
// sequences with `depth` tokens of context that decode `generated` tokens each.
struct BenchTest {
  int64_t prompt = 0;  // 0: decode
  int64_t generated = 0;
  int64_t depth = 0;
  int64_t sequences = 1;
  // All have the same tokens, and so choose the same experts; otherwise each has its own.
  bool equal = false;

  bool prefill() const { return prompt > 0; }
  std::string Name() const;  // "pp512", "tg64", "tg64 @ d512", "tg64 @ d512 x8", "tg64 x8 equal"
  // Tokens whose rate is given.
  int64_t tokens() const { return prefill() ? prompt : generated * sequences; }
  // Of each request. The first token of a decode test is the prompt's, and not counted.
  int64_t prompt_tokens() const { return prefill() ? prompt : depth + 1; }
  friend bool operator==(const BenchTest&, const BenchTest&) = default;
};
std::vector<BenchTest> TestsOf(const BenchLists& lists);  // prompts first, then by depth, sequences, tokens

// The token limit of each request of a test, so that none ends before the last prompt is computed and the counted steps
// are over: the counted tokens, those produced beside other prompts (none if prompts go first, as in prefill-first and
// phases), and those in flight. All requests arrive at once; see BenchRunner::kMostAttempts. Here and below
// settings.micro_batches is the number in flight, not 0.
int64_t MaxNewTokens(const BenchTest& test, const JobSettings& settings);

// Tokens of context that a sequence of this test needs.
int64_t ContextOf(const BenchTest& test, const JobSettings& settings);

// KV blocks that all sequences of a test need at once.
int64_t BlocksOf(const BenchTest& test, const JobSettings& settings, int64_t block_tokens);

// OK when every test fits a model of this context; kInvalidArgument names the test, the option and both numbers.
absl::Status CheckFits(const std::vector<BenchTest>& tests, const JobSettings& settings, const std::string& model,
                       int64_t context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_BENCH_PLAN_H_
