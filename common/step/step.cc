#include "common/step/step.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/step/sampling.h"

namespace stagecoach {
namespace {

// OK, or "<field> is <value>, expected <range>". Nothing is put together for a good value.
template <typename Value, typename Range>
absl::Status CheckField(absl::string_view field, Value value, Range range) {
  if (Contains(range, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", ", Expected(range)));
}

absl::Status CheckBias(size_t index, TokenId token, float bias, int64_t vocab) {
  const IntegerRange tokens = {0, vocab - 1};
  if (!Contains(tokens, token)) {
    return CheckField(absl::StrCat("sampling.logit_bias[", index, "].token"), token, tokens);
  }
  if (bias == -std::numeric_limits<float>::infinity() || Contains(kLogitBiasRange, bias)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.logit_bias[", index, "].bias is ", bias, ", ", Expected(kLogitBiasRange), " or -inf"));
}

}  // namespace

absl::Status CheckTokenIds(absl::string_view field, absl::Span<const TokenId> tokens, int64_t vocab) {
  const IntegerRange range = {0, vocab - 1};
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!Contains(range, tokens[i])) return CheckField(absl::StrCat(field, "[", i, "]"), tokens[i], range);
  }
  return absl::OkStatus();
}

absl::Status CheckSamplingParams(const SamplingParams& sampling, int64_t vocab) {
  absl::Status status;
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    if (!status.ok() || Contains(range, sampling.*member)) return;
    status = CheckField(absl::StrCat("sampling.", setting.name), sampling.*member, range);
  });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckField("sampling.logprobs", sampling.logprobs, IntegerRange{-1, kLogprobsRange.max}));
  RETURN_IF_ERROR(CheckField("sampling.prompt_logprobs", sampling.prompt_logprobs, kPromptLogprobsRange));
  RETURN_IF_ERROR(
      CheckField("sampling.logit_bias entries", sampling.logit_bias.size(), IntegerRange{0, kMaxLogitBias}));
  for (size_t i = 0; i < sampling.logit_bias.size(); ++i) {
    RETURN_IF_ERROR(CheckBias(i, sampling.logit_bias[i].first, sampling.logit_bias[i].second, vocab));
  }
  RETURN_IF_ERROR(CheckField("sampling.min_new_tokens", sampling.min_new_tokens, kMinNewTokensRange));
  RETURN_IF_ERROR(
      CheckField("sampling.end_tokens entries", sampling.end_tokens.size(), IntegerRange{0, kMaxEndTokens}));
  return CheckTokenIds("sampling.end_tokens", sampling.end_tokens, vocab);
}

absl::Status CheckOpenSequence(const OpenSequence& open, int64_t vocab) {
  if (open.prompt.empty()) return absl::InvalidArgumentError("prompt is empty, expected at least one token");
  RETURN_IF_ERROR(CheckTokenIds("prompt", open.prompt, vocab));
  RETURN_IF_ERROR(CheckTokenIds("output", open.output, vocab));
  return CheckSamplingParams(open.sampling, vocab);
}

absl::Status CheckReleasedBlocks(const SequenceSlice& slice, size_t groups, absl::Span<const int64_t> windows,
                                 int32_t block_tokens) {
  const std::vector<int32_t>& released = slice.released_blocks;
  if (released.empty()) return absl::OkStatus();
  if (released.size() != groups) {
    return absl::InvalidArgumentError(absl::StrCat("released_blocks has ", released.size(),
                                                   " entries, expected none or ", groups, ", one a block group"));
  }
  for (size_t group = 0; group < groups; ++group) {
    const int64_t window = WindowOf(windows, group);
    const int64_t most = FirstPlaceSeen(slice.start, window, block_tokens);
    if (released[group] >= 0 && released[group] <= most) continue;
    const std::string why = window == 0 ? "a block group without a window"
                                        : absl::StrCat("what the row at position ", slice.start,
                                                       " does not see, with a window of ", window);
    return absl::InvalidArgumentError(
        absl::StrCat("released_blocks[", group, "] is ", released[group], ", expected 0 to ", most, ", of ", why));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
