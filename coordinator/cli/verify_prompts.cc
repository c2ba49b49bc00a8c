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
    "A stagecoach went over the mountains every week with letters, parcels and whoever could pay. At each station fresh "
    "horses waited, and a driver who knew the next part of the road; he took the reins, looked at the list, and drove on "
    "without asking who had driven before him. What arrived was what had been sent, whichever way the day had been cut "
    "into parts: with ten stations or with two, with one long halt or with many short ones, by night or by day, alone on "
    "the road or behind three other coaches. When a wheel broke, another coach took up the load where it stood, and the "
    "letters did not know. An old clerk in the valley kept a book of it. He wrote down every seal at departure and "
    "compared it with the seal on arrival, line by line, for forty years, and in all those years he found"};
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

std::vector<std::vector<TokenId>> BuiltInPrompts(const VerifyQuestion& question, const Tokenizer* tokenizer) {
  const auto room = static_cast<size_t>(std::max<int64_t>(question.context - question.new_tokens, 1));
  std::vector<std::vector<TokenId>> prompts;
  uint64_t drawn = 0;
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    std::vector<TokenId> tokens;
    if (tokenizer != nullptr) tokens = tokenizer->Encode(kTexts[i], /*add_special=*/true, /*parse_special=*/false);
    for (int64_t t = 0; tokenizer == nullptr && t < kMadeUpTokens[i]; ++t) {
      tokens.push_back(RandomToken(kMadeUpSeed, drawn++, question.vocab));
    }
    if (tokens.size() > room) tokens.resize(room);
    prompts.push_back(std::move(tokens));
  }
  return prompts;
}

}  // namespace

std::vector<VerifyRequest> VerifyRequests(const VerifyQuestion& question, const Tokenizer* tokenizer) {
  std::vector<std::vector<TokenId>> prompts = BuiltInPrompts(question, tokenizer);
  for (const std::string& text : question.prompts) {
    prompts.push_back(tokenizer->Encode(text, /*add_special=*/true, /*parse_special=*/false));
  }
  std::vector<VerifyRequest> requests;
  for (const std::vector<TokenId>& prompt : prompts) {
    requests.push_back(
        {absl::StrCat("prompt ", requests.size() + 1, ", greedy"), prompt, Greedy(), question.new_tokens});
  }
  requests.push_back({"prompt 1, sampled", prompts.front(), Sampled(question.seed), question.new_tokens});
  return requests;
}

}  // namespace stagecoach
