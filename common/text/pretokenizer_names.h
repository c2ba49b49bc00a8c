#ifndef STAGECOACH_COMMON_TEXT_PRETOKENIZER_NAMES_H_
#define STAGECOACH_COMMON_TEXT_PRETOKENIZER_NAMES_H_

// The pre-tokenizers that files of models name; coordinator/text/pretokenizer.h is what they do.

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

enum class PreTokenizer {
  kQwen2,
  kQwen35,  // as kQwen2, but marks are parts of words
  kLlamaBpe,
  kGpt2,
  kStarCoder,  // digits one by one, then as kGpt2
  kGpt4o,
  kTekken,
  kKimiK2,
  kDeepSeekV3,
  kDeepSeekLlm,  // DeepSeek LLM and V2
  kDeepSeekCoder,
};

// What a name in tokenizer.ggml.pre says about a vocabulary.
struct PreTokenizerHabits {
  PreTokenizer kind;
  bool takes_whole_pieces = false;  // a piece that is a token is that token, whatever merges would make of it
  bool adds_bos = false;            // where the file does not say
};

// Absent for an unknown name.
std::optional<PreTokenizerHabits> PreTokenizerByName(absl::string_view name);

// The known names, for messages.
std::string SupportedPreTokenizers();

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TEXT_PRETOKENIZER_NAMES_H_
