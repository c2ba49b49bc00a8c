#include "coordinator/cli/verify_answer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {
namespace {

// NaN is equal to itself here, and 0 is not -0.
bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool SameBits(const SampledToken& a, const SampledToken& b) {
  return a.token == b.token && SameBits(a.logprob, b.logprob) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) {
                      return x.token == y.token && SameBits(x.logprob, y.logprob);
                    });
}

OutputDifference Describe(const SampledToken& a, const SampledToken& b) {
  OutputDifference difference = {.position = a.position};
  if (a.token != b.token) {
    difference.tokens[0] = a.token;
    difference.tokens[1] = b.token;
    return difference;
  }
  difference.of = a.token;
  difference.logprobs[0] = a.logprob;
  difference.logprobs[1] = b.logprob;
  for (size_t i = 0; i < std::min(a.top.size(), b.top.size()) && SameBits(a.logprob, b.logprob); ++i) {
    if (a.top[i].token == b.top[i].token && SameBits(a.top[i].logprob, b.top[i].logprob)) continue;
    difference.of = a.top[i].token;
    difference.logprobs[0] = a.top[i].logprob;
    difference.logprobs[1] = b.top[i].logprob;
    break;
  }
  return difference;
}

// The tokens of both at positions that both have, in order.
std::vector<std::pair<const SampledToken*, const SampledToken*>> CommonTokens(const VerifyAnswer& a,
                                                                              const VerifyAnswer& b) {
  std::vector<std::pair<const SampledToken*, const SampledToken*>> common;
  auto other = b.tokens.begin();
  for (const SampledToken& token : a.tokens) {
    while (other != b.tokens.end() && other->position < token.position) ++other;
    if (other != b.tokens.end() && other->position == token.position) common.emplace_back(&token, &*other);
  }
  return common;
}

std::optional<OutputDifference> FirstOutput(const VerifyRequest& request, const VerifyAnswer& a,
                                            const VerifyAnswer& b) {
  const size_t scored = std::min(a.prompt_logprobs.size(), b.prompt_logprobs.size());
  for (size_t i = 0; i < scored; ++i) {
    if (SameBits(a.prompt_logprobs[i], b.prompt_logprobs[i])) continue;
    OutputDifference difference = {.position = static_cast<int64_t>(i) + 1, .prompt = true};
    difference.of = request.prompt[i + 1];
    difference.logprobs[0] = a.prompt_logprobs[i];
    difference.logprobs[1] = b.prompt_logprobs[i];
    return difference;
  }
  for (const auto& [token, other] : CommonTokens(a, b)) {
    if (!SameBits(*token, *other)) return Describe(*token, *other);
  }
  return std::nullopt;
}

std::optional<HiddenDifference> FirstHidden(const VerifyAnswer& a, const VerifyAnswer& b) {
  for (const auto& [row, layers] : a.checksums) {
    const auto other = b.checksums.find(row);
    if (other == b.checksums.end()) continue;
    const size_t most = std::min(layers.size(), other->second.size());
    for (size_t layer = 0; layer < most; ++layer) {
      if (layers[layer] != other->second[layer]) return HiddenDifference{row, static_cast<int64_t>(layer)};
    }
  }
  return std::nullopt;
}

}  // namespace

void VerifyAnswer::Take(const RowChecksums& rows) {
  const auto count = static_cast<size_t>(rows.rows);
  const size_t layers = rows.values.size() / count;
  for (size_t row = 0; row < count; ++row) {
    std::vector<uint32_t> own(layers);
    for (size_t layer = 0; layer < layers; ++layer) own[layer] = rows.values[layer * count + row];
    const int64_t position = rows.start + static_cast<int64_t>(row);
    const auto [entry, is_new] = checksums.try_emplace(position, own);
    if (!is_new && entry->second != own && !unsteady_row.has_value()) unsteady_row = position;
  }
}

absl::Status CheckAnswer(const VerifyRequest& request, const VerifyAnswer& answer, int64_t kept, int64_t layers) {
  const auto lacks = [&](absl::string_view what, auto found, auto expected) {
    return absl::InternalError(
        absl::StrCat("the answer to ", request.name, " has ", found, " ", what, ", expected ", expected));
  };
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (static_cast<int64_t>(answer.prompt_logprobs.size()) != prompt - 1)
    return lacks("log-probabilities of the prompt", answer.prompt_logprobs.size(), prompt - 1);
  if (static_cast<int64_t>(answer.tokens.size()) != request.new_tokens - kept)
    return lacks("tokens", answer.tokens.size(), request.new_tokens - kept);
  int64_t position = prompt + kept;
  for (const SampledToken& token : answer.tokens) {
    if (token.position != position) {
      return absl::InternalError(absl::StrCat("the answer to ", request.name, " has a token at position ",
                                              token.position, ", expected ", position));
    }
    ++position;
  }
  if (layers == 0) return absl::OkStatus();
  // The last token is never computed.
  for (int64_t row = 0; row + 1 < prompt + request.new_tokens; ++row) {
    const auto entry = answer.checksums.find(row);
    const int64_t found = entry == answer.checksums.end() ? 0 : static_cast<int64_t>(entry->second.size());
    if (found != layers) return lacks(absl::StrCat("checksums of position ", row), found, layers);
  }
  return absl::OkStatus();
}

std::optional<AnswerDifference> FirstDifference(absl::Span<const VerifyRequest> requests,
                                                absl::Span<const VerifyAnswer> a, absl::Span<const VerifyAnswer> b) {
  CHECK_EQ(a.size(), requests.size());
  CHECK_EQ(b.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    AnswerDifference difference = {
        .request = i, .output = FirstOutput(requests[i], a[i], b[i]), .hidden = FirstHidden(a[i], b[i])};
    if (difference.output.has_value() || difference.hidden.has_value()) return difference;
  }
  return std::nullopt;
}

VerifyCount CountCompared(absl::Span<const VerifyRequest> requests, absl::Span<const VerifyAnswer> a,
                          absl::Span<const VerifyAnswer> b) {
  VerifyCount count;
  for (size_t i = 0; i < requests.size(); ++i) {
    count.logprobs += static_cast<int64_t>(std::min(a[i].prompt_logprobs.size(), b[i].prompt_logprobs.size()));
    for (const auto& [token, other] : CommonTokens(a[i], b[i])) {
      ++count.tokens;
      count.logprobs += 1 + static_cast<int64_t>(std::min(token->top.size(), other->top.size()));
    }
    for (const auto& [row, layers] : a[i].checksums) {
      if (b[i].checksums.contains(row)) count.checksums += static_cast<int64_t>(layers.size());
    }
  }
  return count;
}

std::vector<std::vector<size_t>> AgreeingRuns(absl::Span<const VerifyRequest> requests,
                                              absl::Span<const std::vector<VerifyAnswer>> runs) {
  std::vector<std::vector<size_t>> groups;
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<size_t>& g) {
      return !FirstDifference(requests, runs[g.front()], runs[run]).has_value();
    });
    if (group == groups.end()) {
      groups.push_back({run});
    } else {
      group->push_back(run);
    }
  }
  return groups;
}

}  // namespace stagecoach
