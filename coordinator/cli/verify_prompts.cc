#include "coordinator/cli/verify_prompts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/bench/bench_measure.h"

namespace stagecoach {
namespace {

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
void LookBehindWindow(const VerifyQuestion& question, const Tokenizer* tokenizer, VerifyAsked* asked) {
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
  LookBehindWindow(question, tokenizer, &asked);
  return asked;
}

}  // namespace stagecoach
