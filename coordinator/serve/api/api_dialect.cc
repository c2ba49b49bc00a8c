#include "coordinator/serve/api/api_dialect.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// `tokens` in so long a time, under llama.cpp's names. What cannot be divided is 0: JSON has no other word for it.
void AddTimes(const std::string& kind, int64_t tokens, int64_t us, Json* json) {
  const double count = static_cast<double>(tokens), ms = static_cast<double>(std::max<int64_t>(us, 0)) / 1000;
  (*json)[kind + "_n"] = tokens;
  (*json)[kind + "_ms"] = ms;
  (*json)[kind + "_per_token_ms"] = tokens > 0 ? ms / count : 0.0;
  (*json)[kind + "_per_second"] = ms > 0 ? count / ms * 1000 : 0.0;
}

}  // namespace

Json TimingsJson(const AnswerTotals& totals) {
  const ApiCall::Usage& usage = totals.usage;
  Json json = {{"cache_n", usage.cached_tokens}};
  AddTimes("prompt", std::max<int64_t>(usage.prompt_tokens - usage.cached_tokens, 0), totals.prompt_us, &json);
  AddTimes("predicted", usage.completion_tokens, totals.predicted_us, &json);
  return json;
}

Json ProgressJson(const pb::PrefillProgress& progress) {
  return {{"total", progress.total()}, {"cache", progress.cached()}, {"processed", progress.processed()}};
}

std::string MakeCallId(absl::string_view prefix, absl::string_view plan_id, size_t choice, size_t index) {
  constexpr absl::string_view kSymbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr uint64_t kLength = 24;
  uint64_t seed = 0;
  for (const char c : absl::StrCat(prefix, plan_id, " ", choice, " ", index)) {
    seed = MixBits(seed * 31 + static_cast<uint8_t>(c) + 1);
  }
  std::string id(prefix);
  for (uint64_t i = 0; i < kLength; ++i) {
    id += kSymbols[static_cast<size_t>(UniformAt(seed, i) * static_cast<double>(kSymbols.size()))];
  }
  return id;
}

}  // namespace stagecoach
