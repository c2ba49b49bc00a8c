#include <algorithm>
#include <bit>
#include <limits>

#include "common/base/check.h"
#include "common/grammar/mask.h"
#include "stage_worker/sample/sampler.h"

namespace stagecoach {
namespace {

bool Repetition(const SamplingParams& sampling) { return sampling.repeat_penalty != 1 && sampling.repeat_last_n != 0; }

bool PresenceOrFrequency(const SamplingParams& sampling) {
  return sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

bool HoldsEndBack(const TokenHistory& history) {
  return history.outputs() < history.sampling().min_new_tokens && !history.sampling().end_tokens.empty();
}

// Whether the output is to go on: it is no complete text, and another token than these is allowed.
bool GoesOn(const AllowedTokens& allowed, const std::vector<TokenId>& ends) {
  if (allowed.complete) return false;
  for (size_t word = 0; word < allowed.bits.size(); ++word) {
    for (uint64_t bits = allowed.bits[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 64) + static_cast<TokenId>(std::countr_zero(bits));
      if (std::find(ends.begin(), ends.end(), token) == ends.end()) return true;
    }
  }
  return false;
}

void ApplyPresenceAndFrequency(const TokenHistory& history, float* logits) {
  const SamplingParams& sampling = history.sampling();
  for (const auto& [token, count] : history.output_counts()) {
    logits[token] -= sampling.presence_penalty + static_cast<float>(count) * sampling.frequency_penalty;
  }
}

// A window of more than this part of the vocabulary is taken in one pass over the row.
constexpr int64_t kManyTokens = 32;

}  // namespace

TokenHistory::TokenHistory(const OpenSequence& open)
    : sampling_(open.sampling), prompt_(static_cast<int64_t>(open.prompt.size())) {
  tokens_.reserve(open.prompt.size() + open.output.size() + kRoom);
  tokens_.assign(open.prompt.begin(), open.prompt.end());
  output_counts_.reserve(kRoom);
  place_.reserve(kRoom);
  for (const TokenId token : open.output) AppendOutput(token);
}

void TokenHistory::AppendOutput(TokenId token) {
  tokens_.push_back(token);
  const auto [entry, first] = place_.try_emplace(token, output_counts_.size());
  if (first) output_counts_.push_back({token, 0});
  ++output_counts_[entry->second].count;
}

void TokenHistory::CutTo(int64_t size) {
  CHECK_GE(size, prompt_);
  for (; this->size() > size; tokens_.pop_back()) {
    const auto entry = place_.find(tokens_.back());
    if (--output_counts_[entry->second].count > 0) continue;
    CHECK_EQ(entry->second + 1, output_counts_.size());  // what came first is taken back last
    output_counts_.pop_back();
    place_.erase(entry);
  }
}

bool LogitsRules::ChangeAnything(const TokenHistory& history) {
  const SamplingParams& sampling = history.sampling();
  return !sampling.logit_bias.empty() || Repetition(sampling) || PresenceOrFrequency(sampling) || HoldsEndBack(history);
}

void LogitsRules::Apply(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab, float* logits,
                        const AllowedTokens* allowed) {
  for (const auto& [token, bias] : history.sampling().logit_bias) logits[token] += bias;
  if (Repetition(history.sampling())) ApplyRepetition(kernels, history, vocab, logits);
  if (PresenceOrFrequency(history.sampling())) ApplyPresenceAndFrequency(history, logits);
  const std::vector<TokenId>& ends = history.sampling().end_tokens;
  if (HoldsEndBack(history) && (allowed == nullptr || GoesOn(*allowed, ends))) {
    for (const TokenId token : ends) logits[token] = -std::numeric_limits<float>::infinity();
  }
  if (allowed != nullptr) ForbidOtherTokens(allowed->bits, {logits, static_cast<size_t>(vocab)});
}

void LogitsRules::ApplyRepetition(const SamplingKernels& kernels, const TokenHistory& history, int64_t vocab,
                                  float* logits) {
  const SamplingParams& sampling = history.sampling();
  absl::Span<const TokenId> window = history.tokens();
  if (sampling.repeat_last_n > 0 && static_cast<size_t>(sampling.repeat_last_n) < window.size()) {
    window.remove_prefix(window.size() - static_cast<size_t>(sampling.repeat_last_n));
  }
  if (seen_.size() < static_cast<size_t>(vocab)) seen_.resize(static_cast<size_t>(vocab));
  if (static_cast<int64_t>(window.size()) > vocab / kManyTokens) {
    // The whole row, in order.
    for (const TokenId token : window) seen_[static_cast<size_t>(token)] = 1;
    kernels.penalize(seen_.data(), vocab, sampling.repeat_penalty, logits);
    std::fill_n(seen_.begin(), vocab, uint8_t{0});
    return;
  }
  for (const TokenId token : window) {
    uint8_t& seen = seen_[static_cast<size_t>(token)];
    float& logit = logits[token];
    if (seen == 0) logit = logit > 0 ? logit / sampling.repeat_penalty : logit * sampling.repeat_penalty;
    seen = 1;
  }
  for (const TokenId token : window) seen_[static_cast<size_t>(token)] = 0;
}

}  // namespace stagecoach
