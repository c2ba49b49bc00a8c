#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {

// The tokens of one sequence, with the border between prompt and output that the penalties need. It is the same after a
// preemption or a restart, because OpenSequence brings both parts.
class TokenHistory {
 public:
  // With room for kRoom more tokens; beyond that memory grows by doubling.
  explicit TokenHistory(const OpenSequence& open);
  static constexpr size_t kRoom = 512;

  void AppendOutput(TokenId token);

  // Prompt, then output.
  absl::Span<const TokenId> tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t outputs() const { return size() - prompt_; }
  // How often each token that occurs in the output does, in the order of first occurrence.
  struct Count {
    TokenId token;
    int32_t count;
  };
  absl::Span<const Count> output_counts() const { return output_counts_; }
  const SamplingParams& sampling() const { return sampling_; }

 private:
  SamplingParams sampling_;
  int64_t prompt_;  // tokens
  std::vector<TokenId> tokens_;
  std::vector<Count> output_counts_;            // beside the map, because it is read as a whole for every token
  absl::flat_hash_map<TokenId, size_t> place_;  // in output_counts_
};

// Changes raw logits as the sequence's sampling parameters ask, in this order:
//   1. logit bias: added, in the order of the list.
//   2. repetition penalty r: every token that occurs among the last repeat_last_n of prompt and output (-1: all), once:
//      a logit above 0 is divided by r, another multiplied by r.
//   3. presence and frequency, over the output only: logit -= presence + count * frequency.
//   4. end tokens are -infinity while the output has fewer than min_new_tokens.
// 2 and 3 are those of llama.cpp's penalties sampler. Keeps its memory between calls; for one thread.
class LogitsRules {
 public:
  // Whether the sequence asks for any of them.
  static bool ChangeAnything(const TokenHistory& history);

  // logits [vocab], in place. Tokens of the history are in [0, vocab), see CheckOpenSequence.
  void Apply(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits);

  static size_t MaxBytes(int64_t vocab);

 private:
  void ApplyRepetition(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits);

  std::vector<uint8_t> seen_;  // [vocab], all 0 between calls
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_LOGITS_RULES_H_
