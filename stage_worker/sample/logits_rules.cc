#include "stage_worker/sample/logits_rules.h"

#include "absl/container/flat_hash_set.h"

namespace stagecoach {
namespace {

void ApplyRepetition(const TokenHistory& history, float* logits) {
  const SamplingParams& sampling = history.sampling();
  if (sampling.repeat_penalty == 1 || sampling.repeat_last_n == 0) return;
  absl::Span<const TokenId> window = history.tokens();
  if (sampling.repeat_last_n > 0 && static_cast<size_t>(sampling.repeat_last_n) < window.size()) {
    window.remove_prefix(window.size() - static_cast<size_t>(sampling.repeat_last_n));
  }
  absl::flat_hash_set<TokenId> seen;
  for (const TokenId token : window) {
    if (!seen.insert(token).second) continue;
    float& logit = logits[token];
    logit = logit > 0 ? logit / sampling.repeat_penalty : logit * sampling.repeat_penalty;
  }
}

void ApplyPresenceAndFrequency(const TokenHistory& history, float* logits) {
  const SamplingParams& sampling = history.sampling();
  if (sampling.presence_penalty == 0 && sampling.frequency_penalty == 0) return;
  // Each token is touched once, so the order of the map does not matter.
  for (const auto& [token, count] : history.output_counts()) {
    logits[token] -= sampling.presence_penalty + static_cast<float>(count) * sampling.frequency_penalty;
  }
}

}  // namespace

void ApplyLogitsRules(const TokenHistory& history, float* logits) {
  for (const auto& [token, bias] : history.sampling().logit_bias) logits[token] += bias;
  ApplyRepetition(history, logits);
  ApplyPresenceAndFrequency(history, logits);
}

}  // namespace stagecoach
