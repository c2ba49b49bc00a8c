#include "coordinator/text/pretokenizer.h"

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
// pieces are taken where the vocabulary was made for an encoder that looks a piece up before it joins any pair: some of
// its tokens no merge leads to.
constexpr bool kWhole = true;
constexpr bool kBos = true;
constexpr absl::string_view kBetweenNames = ", ";
constexpr NamedPreTokenizers kNames[] = {
    {{PreTokenizer::kQwen2}, "qwen2, deepseek-r1-qwen, megrez, kormo, solar-open"},
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

// By PreTokenizer, each up to the first that is null.
const SplitPattern PieceCutter::kPatterns[][kMaxPatterns + 1] = {
    {SplitLikeQwen2},
    {SplitLikeLlamaBpe},
    {SplitLikeGpt2},
    {SplitAtEachNumber, SplitLikeGpt2},
    {SplitLikeGpt4o},
    {SplitLikeTekken},
    {SplitLikeKimiK2},
    {SplitAtThreeNumbers, SplitAtIdeographsAndKana, SplitLikeDeepSeekV3},
    {SplitAtEachLineBreak, SplitAtCasedWords, SplitAtAsciiSigns, SplitAtSpacesAtEnd, SplitAtAsianScripts,
     SplitAtNumbers},
    {SplitAtEachLineBreak, SplitAtWords, SplitAtPunctuation, SplitAtAsianScripts, SplitAtEachNumber},
};

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

absl::string_view PieceCutter::Next() {
  const size_t begin = position_;
  size_t end = text_.size();
  if (begin == end) return {};
  for (size_t i = 0; patterns_[i] != nullptr; ++i) {
    // No expression looks behind where it starts, so the rest of a piece is split as it would be from its beginning.
    if (ends_[i] <= begin) ends_[i] = begin + patterns_[i](text_.substr(begin, end - begin));
    end = ends_[i];
  }
  position_ = end;
  return text_.substr(begin, end - begin);
}

}  // namespace stagecoach
