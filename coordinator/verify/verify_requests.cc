#include "coordinator/verify/verify_requests.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "coordinator/bench/bench_measure.h"

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

// Short, of some languages and signs, and longer than two chunks of 64 tokens.
constexpr const char* kTexts[] = {
    "Why is the sky blue?",
    "A list of three: 1. Grüße aus Köln; 2. こんにちは、世界; 3. for (int i = 0; i < 10; ++i) { sum += i * 0.5; }\n"
    "What do they have in common?",
    "A stagecoach went over the mountains every week with letters, parcels and whoever could pay. At each station "
    "fresh horses waited, and a driver who knew the next part of the road; he took the reins, looked at the list, "
    "and drove on without asking who had driven before him. What arrived was what had been sent, whichever way the "
    "day had been cut into parts: with ten stations or with two, with one long halt or with many short ones, by "
    "night or by day, alone on the road or behind three other coaches. When a wheel broke, another coach took up the "
    "load where it stood, and the letters did not know. An old clerk in the valley kept a book of it. He wrote down "
    "every seal at departure and compared it with the seal on arrival, line by line, for forty years, and in all "
    "those years he found"};
constexpr int64_t kMadeUpTokens[] = {7, 45, 150};
constexpr uint64_t kMadeUpSeed = 20251123;
constexpr int32_t kBestTokens = 5;

SamplingParams Greedy() {
  SamplingParams sampling;
  sampling.logprobs = kBestTokens;
  return sampling;
}

SamplingParams Sampled(uint64_t seed) {
  SamplingParams sampling = Greedy();
  sampling.temperature = 0.8f;
  sampling.top_k = 40;
  sampling.top_p = 0.95f;
  sampling.seed = seed;
  return sampling;
}

int64_t RoomForPrompt(const VerifyQuestion& question) {
  return std::max<int64_t>(question.context - question.new_tokens, 1);
}

std::vector<std::vector<TokenId>> BuiltInPrompts(const VerifyQuestion& question, const Tokenizer* tokenizer) {
  std::vector<std::vector<TokenId>> prompts;
  uint64_t drawn = 0;
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    std::vector<TokenId> tokens;
    if (tokenizer != nullptr) tokens = tokenizer->Encode(kTexts[i], /*add_special=*/true, /*parse_special=*/false);
    const int64_t made_up = tokens.empty() ? kMadeUpTokens[i] : 0;  // no tokenizer, or one that knows none of the text
    for (int64_t t = 0; t < made_up; ++t) tokens.push_back(RandomToken(kMadeUpSeed, drawn++, question.vocab));
    prompts.push_back(std::move(tokens));
  }
  return prompts;
}

// The longest text over and over, never twice the same.
std::vector<TokenId> LongPrompt(size_t size, const VerifyQuestion& question, const Tokenizer* tokenizer) {
  std::vector<TokenId> prompt;
  for (uint64_t year = 1; prompt.size() < size; ++year) {
    if (tokenizer == nullptr) {
      prompt.push_back(RandomToken(kMadeUpSeed + 1, year, question.vocab));
      continue;
    }
    const std::string text = absl::StrCat("In the year ", year, ": ", kTexts[std::size(kTexts) - 1], "\n");
    const std::vector<TokenId> tokens = tokenizer->Encode(text, /*add_special=*/year == 1, /*parse_special=*/false);
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    if (tokens.empty()) break;
  }
  prompt.erase(prompt.begin() + static_cast<std::ptrdiff_t>(std::min(size, prompt.size())), prompt.end());
  return prompt;
}

// Adds the long prompt or the note. Behind a window there is a block to give back once a row lies a block beyond it.
void AddPromptBeyondWindow(const VerifyQuestion& question, const Tokenizer* tokenizer, VerifyAsked* asked) {
  if (question.window == 0) return;
  int64_t longest = 0;
  for (const VerifyRequest& request : asked->requests) {
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()));
  }
  const int64_t needed = question.window + question.block_tokens, wanted = needed + question.block_tokens;
  const int64_t size = std::min(wanted, RoomForPrompt(question));
  if (longest >= needed) return;
  if (question.window > kMostVerifiedWindow) {
    asked->note = absl::StrCat("no prompt is longer than the window of ", question.window,
                               " positions: one of verify's own is made for windows up to ", kMostVerifiedWindow,
                               "; -p can give one");
  } else if (size < needed) {
    asked->note =
        absl::StrCat("no prompt is longer than the window of ", question.window, " positions: that takes a context of ",
                     needed + question.new_tokens, " tokens, and it is ", question.context);
  } else {
    asked->requests.push_back({"long prompt, greedy", LongPrompt(static_cast<size_t>(size), question, tokenizer),
                               Greedy(), question.new_tokens});
    asked->long_prompt = true;
  }
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

VerifyAsked VerifyRequests(const VerifyQuestion& question, const Tokenizer* tokenizer) {
  VerifyAsked asked;
  std::vector<std::vector<TokenId>> prompts = BuiltInPrompts(question, tokenizer);
  const int64_t room = RoomForPrompt(question);
  for (std::vector<TokenId>& prompt : prompts) {
    if (static_cast<int64_t>(prompt.size()) <= room) continue;
    prompt.erase(prompt.begin() + room, prompt.end());
    asked.cut_to = room;
  }
  for (const std::string& text : question.prompts) {
    prompts.push_back(tokenizer->Encode(text, /*add_special=*/true, /*parse_special=*/false));
  }
  for (const std::vector<TokenId>& prompt : prompts) {
    asked.requests.push_back(
        {absl::StrCat("prompt ", asked.requests.size() + 1, ", greedy"), prompt, Greedy(), question.new_tokens});
  }
  asked.requests.push_back({"prompt 1, sampled", prompts.front(), Sampled(question.seed), question.new_tokens});
  AddPromptBeyondWindow(question, tokenizer, &asked);
  return asked;
}

}  // namespace stagecoach
