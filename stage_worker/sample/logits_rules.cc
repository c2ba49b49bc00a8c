#include "stage_worker/sample/logits_rules.h"

#include <algorithm>
#include <cstring>

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

// A window of more than this part of the vocabulary is taken in one pass over the row.
constexpr int64_t kManyTokens = 32;

float Penalized(float logit, float penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

// Every logit whose token was seen. As vectors of the compiler: of the plain loop it makes branches, which half of the
// logits mispredict.
void PenalizeSeen(const uint8_t* seen, int64_t vocab, float penalty, float* logits) {
  constexpr int64_t kLanes = 4;
  using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
  using Words = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
  using Bytes = uint8_t __attribute__((vector_size(kLanes)));
  int64_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
    Floats x;
    Bytes marks;
    std::memcpy(&x, logits + i, sizeof(x));
    std::memcpy(&marks, seen + i, sizeof(marks));
    const Floats divided = x / penalty, multiplied = x * penalty;
    const Floats penalized = x > 0 ? divided : multiplied;
    x = __builtin_convertvector(marks, Words) != 0 ? penalized : x;
    std::memcpy(logits + i, &x, sizeof(x));
  }
  for (; i < vocab; ++i) {
    if (seen[i] != 0) logits[i] = Penalized(logits[i], penalty);
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
  if (seen_.size() < static_cast<size_t>(vocab)) seen_.resize(static_cast<size_t>(vocab));
  if (static_cast<int64_t>(window.size()) > vocab / kManyTokens) {
    // The whole row, in order.
    for (const TokenId token : window) seen_[static_cast<size_t>(token)] = 1;
    PenalizeSeen(seen_.data(), vocab, sampling.repeat_penalty, logits);
    std::fill_n(seen_.begin(), vocab, uint8_t{0});
    return;
  }
  for (const TokenId token : window) {
    uint8_t& seen = seen_[static_cast<size_t>(token)];
    if (seen == 0) logits[token] = Penalized(logits[token], sampling.repeat_penalty);
    seen = 1;
  }
  for (const TokenId token : window) seen_[static_cast<size_t>(token)] = 0;
}

size_t LogitsRules::MaxBytes(int64_t vocab) { return static_cast<size_t>(vocab); }

}  // namespace stagecoach
