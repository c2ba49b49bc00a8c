#include "stage_worker/sample/token_history.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace stagecoach {

TokenHistory::TokenHistory(const OpenSequence& open) : sampling_(open.sampling) {
  tokens_.reserve(open.prompt.size() + open.output.size() + kRoom);
  tokens_.assign(open.prompt.begin(), open.prompt.end());
  output_counts_.reserve(kRoom);
  for (const TokenId token : open.output) AppendOutput(token);
}

void TokenHistory::AppendOutput(TokenId token) {
  tokens_.push_back(token);
  ++output_counts_[token];
}

namespace {

absl::Status CheckTokens(SequenceId sequence, absl::string_view what, absl::Span<const TokenId> tokens, int64_t vocab) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, ": ", what, " has token ", token,
                                                     ", the vocabulary has 0 to ", vocab - 1));
    }
  }
  return absl::OkStatus();
}

// NaN is outside of every range.
absl::Status CheckRange(SequenceId sequence, absl::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sequence ", sequence, ": ", field, " is ", value, ", expected ", low, " to ", high));
}

}  // namespace

absl::Status ValidateOpenSequence(const OpenSequence& open, int64_t vocab) {
  if (open.prompt.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("sequence ", open.sequence, " has an empty prompt"));
  }
  RETURN_IF_ERROR(CheckTokens(open.sequence, "the prompt", open.prompt, vocab));
  RETURN_IF_ERROR(CheckTokens(open.sequence, "the output", open.output, vocab));
  const SamplingParams& sampling = open.sampling;
  constexpr double kMax = std::numeric_limits<float>::max();
  constexpr double kPositive = std::numeric_limits<float>::denorm_min();
  RETURN_IF_ERROR(CheckRange(open.sequence, "temperature", sampling.temperature, 0, kMax));
  RETURN_IF_ERROR(CheckRange(open.sequence, "top_k", sampling.top_k, 0, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckRange(open.sequence, "top_p", sampling.top_p, kPositive, 1));
  RETURN_IF_ERROR(CheckRange(open.sequence, "min_p", sampling.min_p, 0, 1));
  RETURN_IF_ERROR(CheckRange(open.sequence, "repeat_penalty", sampling.repeat_penalty, kPositive, kMax));
  RETURN_IF_ERROR(CheckRange(open.sequence, "presence_penalty", sampling.presence_penalty, -kMax, kMax));
  RETURN_IF_ERROR(CheckRange(open.sequence, "frequency_penalty", sampling.frequency_penalty, -kMax, kMax));
  RETURN_IF_ERROR(
      CheckRange(open.sequence, "repeat_last_n", sampling.repeat_last_n, -1, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckRange(open.sequence, "logprobs", sampling.logprobs, -1, kMaxLogprobs));
  for (const auto& [token, bias] : sampling.logit_bias) {
    RETURN_IF_ERROR(CheckTokens(open.sequence, "logit_bias", {token}, vocab));
    if (std::isnan(bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", open.sequence, ": the logit bias of token ", token, " is not a number"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
