#ifndef STAGECOACH_STAGE_WORKER_SAMPLE_TOKEN_HISTORY_H_
#define STAGECOACH_STAGE_WORKER_SAMPLE_TOKEN_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

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

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SAMPLE_TOKEN_HISTORY_H_
