#include "stage_worker/sample/logits_rules.h"

#include <bit>

namespace stagecoach {
namespace {

bool Repetition(const SamplingParams& sampling) { return sampling.repeat_penalty != 1 && sampling.repeat_last_n != 0; }

bool PresenceOrFrequency(const SamplingParams& sampling) {
  return sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

void ApplyPresenceAndFrequency(const TokenHistory& history, float* logits) {
  const SamplingParams& sampling = history.sampling();
  for (const auto& [token, count] : history.output_counts()) {
    logits[token] -= sampling.presence_penalty + static_cast<float>(count) * sampling.frequency_penalty;
  }
}

}  // namespace

bool LogitsRules::ChangeAnything(const TokenHistory& history) {
  const SamplingParams& sampling = history.sampling();
  return !sampling.logit_bias.empty() || Repetition(sampling) || PresenceOrFrequency(sampling);
}

void LogitsRules::Apply(const TokenHistory& history, int64_t vocab, float* logits) {
  for (const auto& [token, bias] : history.sampling().logit_bias) logits[token] += bias;
  if (Repetition(history.sampling())) ApplyRepetition(history, vocab, logits);
  if (PresenceOrFrequency(history.sampling())) ApplyPresenceAndFrequency(history, logits);
}

void LogitsRules::ApplyRepetition(const TokenHistory& history, int64_t vocab, float* logits) {
  const SamplingParams& sampling = history.sampling();
  absl::Span<const TokenId> window = history.tokens();
  if (sampling.repeat_last_n > 0 && static_cast<size_t>(sampling.repeat_last_n) < window.size()) {
    window.remove_prefix(window.size() - static_cast<size_t>(sampling.repeat_last_n));
  }
  // No branch depends on a token, which nothing could foresee.
  seen_.assign(static_cast<size_t>(vocab) / 64 + 1, 0);
  for (const TokenId token : window) seen_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  for (size_t word = 0; word < seen_.size(); ++word) {
    for (uint64_t rest = seen_[word]; rest != 0; rest &= rest - 1) {
      float& logit = logits[word * 64 + static_cast<size_t>(std::countr_zero(rest))];
      logit = logit > 0 ? logit / sampling.repeat_penalty : logit * sampling.repeat_penalty;
    }
  }
}

size_t LogitsRules::MaxBytes(int64_t vocab) { return (static_cast<size_t>(vocab) / 64 + 1) * sizeof(uint64_t); }

}  // namespace stagecoach
