#include "coordinator/text/pretokenizer.h"

namespace stagecoach {
namespace {

struct NamedPreTokenizer {
  const char* name;
  PreTokenizerHabits habits;
};

// The first of each kind is the usual name; the others are names that converters write for the same expression. Whole
// pieces are taken where the vocabulary was made for an encoder that looks a piece up before it joins any pair: some of
// its tokens no merge leads to.
constexpr bool kWhole = true;
constexpr bool kBos = true;
constexpr NamedPreTokenizer kNames[] = {
    {"qwen2", {PreTokenizer::kQwen2}},
    {"deepseek-r1-qwen", {PreTokenizer::kQwen2}},
    {"megrez", {PreTokenizer::kQwen2}},
    {"kormo", {PreTokenizer::kQwen2}},
    {"solar-open", {PreTokenizer::kQwen2}},
    {"llama-bpe", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"llama3", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"llama-v3", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"falcon3", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"pixtral", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"midm-2.0", {PreTokenizer::kLlamaBpe, kWhole, kBos}},
    {"smaug-bpe", {PreTokenizer::kLlamaBpe, kWhole}},  // Llama 3's without BOS, as SmolLM3 has it
    {"glm4", {PreTokenizer::kLlamaBpe, kWhole}},
    {"chatglm-bpe", {PreTokenizer::kLlamaBpe, kWhole}},
    {"dbrx", {PreTokenizer::kLlamaBpe}},
    {"gpt-2", {PreTokenizer::kGpt2}},
    {"phi-2", {PreTokenizer::kGpt2}},
    {"olmo", {PreTokenizer::kGpt2}},
    {"mpt", {PreTokenizer::kGpt2}},
    {"gigachat", {PreTokenizer::kGpt2}},
    {"granite-docling", {PreTokenizer::kGpt2}},
    {"jina-es", {PreTokenizer::kGpt2}},
    {"jina-de", {PreTokenizer::kGpt2}},
    {"jina-v2-es", {PreTokenizer::kGpt2}},
    {"jina-v2-de", {PreTokenizer::kGpt2}},
    {"starcoder", {PreTokenizer::kStarCoder}},
    {"refact", {PreTokenizer::kStarCoder}},
    {"command-r", {PreTokenizer::kStarCoder}},
    {"smollm", {PreTokenizer::kStarCoder}},
    {"codeshell", {PreTokenizer::kStarCoder}},
    {"minerva-7b", {PreTokenizer::kStarCoder}},
    {"gpt-4o", {PreTokenizer::kGpt4o, kWhole}},
    {"llama4", {PreTokenizer::kGpt4o, kWhole}},
    {"minimax-m2", {PreTokenizer::kGpt4o}},
    {"kanana2", {PreTokenizer::kGpt4o}},
    {"tekken", {PreTokenizer::kTekken, kWhole, kBos}},
    {"kimi-k2", {PreTokenizer::kKimiK2, kWhole}},
    {"deepseek-v3", {PreTokenizer::kDeepSeekV3}},
    {"joyai-llm", {PreTokenizer::kDeepSeekV3}},
    {"deepseek-llm", {PreTokenizer::kDeepSeekLlm}},
    {"deepseek-coder", {PreTokenizer::kDeepSeekCoder}},
};

constexpr SplitPattern kQwen2Patterns[] = {SplitLikeQwen2};
constexpr SplitPattern kLlamaBpePatterns[] = {SplitLikeLlamaBpe};
constexpr SplitPattern kGpt2Patterns[] = {SplitLikeGpt2};
constexpr SplitPattern kStarCoderPatterns[] = {SplitAtEachNumber, SplitLikeGpt2};
constexpr SplitPattern kGpt4oPatterns[] = {SplitLikeGpt4o};
constexpr SplitPattern kTekkenPatterns[] = {SplitLikeTekken};
constexpr SplitPattern kKimiK2Patterns[] = {SplitLikeKimiK2};
constexpr SplitPattern kDeepSeekV3Patterns[] = {SplitAtThreeNumbers, SplitAtIdeographsAndKana, SplitLikeDeepSeekV3};
constexpr SplitPattern kDeepSeekLlmPatterns[] = {SplitAtEachLineBreak, SplitAtCasedWords,   SplitAtAsciiSigns,
                                                 SplitAtSpacesAtEnd,   SplitAtAsianScripts, SplitAtNumbers};
constexpr SplitPattern kDeepSeekCoderPatterns[] = {SplitAtEachLineBreak, SplitAtWords, SplitAtPunctuation,
                                                   SplitAtAsianScripts, SplitAtEachNumber};

absl::Span<const SplitPattern> PatternsOf(PreTokenizer kind) {
  switch (kind) {
    case PreTokenizer::kQwen2: return kQwen2Patterns;
    case PreTokenizer::kLlamaBpe: return kLlamaBpePatterns;
    case PreTokenizer::kGpt2: return kGpt2Patterns;
    case PreTokenizer::kStarCoder: return kStarCoderPatterns;
    case PreTokenizer::kGpt4o: return kGpt4oPatterns;
    case PreTokenizer::kTekken: return kTekkenPatterns;
    case PreTokenizer::kKimiK2: return kKimiK2Patterns;
    case PreTokenizer::kDeepSeekV3: return kDeepSeekV3Patterns;
    case PreTokenizer::kDeepSeekLlm: return kDeepSeekLlmPatterns;
    case PreTokenizer::kDeepSeekCoder: return kDeepSeekCoderPatterns;
  }
  return kGpt2Patterns;
}

}  // namespace

std::optional<PreTokenizerHabits> PreTokenizerByName(absl::string_view name) {
  for (const NamedPreTokenizer& entry : kNames) {
    if (name == entry.name) return entry.habits;
  }
  return std::nullopt;
}

std::string SupportedPreTokenizers() {
  std::string names;
  for (const NamedPreTokenizer& entry : kNames) names.append(names.empty() ? "" : ", ").append(entry.name);
  return names;
}

PieceCutter::PieceCutter(PreTokenizer kind, absl::string_view text) : text_(text), patterns_(PatternsOf(kind)) {
  static_assert(std::size(kDeepSeekLlmPatterns) <= kMaxPatterns);
}

absl::string_view PieceCutter::Next() {
  const size_t begin = position_;
  size_t end = text_.size();
  if (begin == end) return {};
  for (size_t i = 0; i < patterns_.size(); ++i) {
    // No expression looks behind where it starts, so the rest of a piece is split as it would be from its beginning.
    if (ends_[i] <= begin) ends_[i] = begin + patterns_[i](text_.substr(begin, end - begin));
    end = ends_[i];
  }
  position_ = end;
  return text_.substr(begin, end - begin);
}

}  // namespace stagecoach
