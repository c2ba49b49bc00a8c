#include "common/text/pretokenizer_names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stagecoach {
namespace {

struct NamedPreTokenizers {
  PreTokenizerHabits habits;
  absl::string_view names;
};

// The first of each kind is the usual name; the others are names that converters write for the same expression. Whole
// pieces are taken where the vocabulary's encoder looks a piece up before joining: no merge leads to some tokens.
constexpr bool kWhole = true;
constexpr bool kBos = true;
constexpr absl::string_view kBetweenNames = ", ";
constexpr NamedPreTokenizers kNames[] = {
    {{PreTokenizer::kQwen2}, "qwen2, deepseek-r1-qwen, megrez, kormo, solar-open"},
    {{PreTokenizer::kQwen35}, "qwen35"},
    {{PreTokenizer::kLlamaBpe, kWhole, kBos}, "llama-bpe, llama3, llama-v3, falcon3, pixtral, midm-2.0"},
    {{PreTokenizer::kLlamaBpe, kWhole}, "smaug-bpe, glm4, chatglm-bpe"},  // Llama 3's without BOS: SmolLM3's
    {{PreTokenizer::kLlamaBpe}, "dbrx"},
    {{PreTokenizer::kGpt2},
     "gpt-2, phi-2, olmo, mpt, gigachat, granite-docling, jina-es, jina-de, jina-v2-es, jina-v2-de"},
    {{PreTokenizer::kStarCoder}, "starcoder, refact, command-r, smollm, codeshell, minerva-7b"},
    {{PreTokenizer::kGpt4o, kWhole}, "gpt-4o, llama4"},
    {{PreTokenizer::kGpt4o}, "minimax-m2, kanana2"},
    {{PreTokenizer::kTekken, kWhole, kBos}, "tekken"},
    {{PreTokenizer::kKimiK2, kWhole}, "kimi-k2"},
    {{PreTokenizer::kDeepSeekV3}, "deepseek-v3, joyai-llm"},
    {{PreTokenizer::kDeepSeekLlm}, "deepseek-llm"},
    {{PreTokenizer::kDeepSeekCoder}, "deepseek-coder"},
};

}  // namespace

std::optional<PreTokenizerHabits> PreTokenizerByName(absl::string_view name) {
  for (const NamedPreTokenizers& entry : kNames) {
    for (const absl::string_view known : absl::StrSplit(entry.names, kBetweenNames)) {
      if (name == known) return entry.habits;
    }
  }
  return std::nullopt;
}

std::string SupportedPreTokenizers() {
  return absl::StrJoin(kNames, kBetweenNames,
                       [](std::string* out, const NamedPreTokenizers& entry) { absl::StrAppend(out, entry.names); });
}

}  // namespace stagecoach
